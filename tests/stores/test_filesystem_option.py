"""A pyarrow or fsspec filesystem as `filesystem=`: what its paths become, and who opens them."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import fs

import kip33
from kip33.builds.commit import begin_build, commit_build
from kip33.builds.task import build_bin
from kip33.demo import COPIED_MS, START_MS, make_archive
from kip33.formats.times import iso_time
from kip33.stores import filesystems
from kip33.stores import settings as store_settings
from kip33.stores.filesystem_option import (
    place_on,
    places_on,
    require_for_tasks,
    use_storage_options,
)
from kip33.stores.filesystems import can_travel, given_filesystem
from kip33.stores.locations import Location
from tests.builders.plans import plan_build
from tests.cases import each_case

LOCAL = fs.LocalFileSystem()


def bucket_store(region: str = "us-east-1") -> fs.S3FileSystem:
    return fs.S3FileSystem(anonymous=True, region=region)


class Azure(MemoryFileSystem):
    """Stands for adlfs, whose paths begin with a container."""

    protocol = "abfs"


class Hosted(MemoryFileSystem):
    """Stands for those whose paths begin with a host or a container."""

    protocol = "hosted"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("hosted://").lstrip("/")


@pytest.fixture(autouse=True)
def _process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_settings._Process, "settings", {})
    monkeypatch.setattr(store_settings._Process, "options", {})
    monkeypatch.setattr(filesystems._ByRoot, "given", {})
    monkeypatch.setattr(filesystems._ByRoot, "other_buckets", None)


@pytest.fixture
def memory() -> Iterator[Any]:
    store = fsspec.filesystem("memory")
    yield store
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo archive and its catalog."""
    root = tmp_path_factory.mktemp("filesystems")
    make_archive(root / "archive")
    plan = plan_build(str(root / "archive"), str(root / "indexes"), now_ms=COPIED_MS)
    begun = begin_build(plan)
    commit_build(
        begun, [build_bin(plan.build, begun.draft.staging, len(begun.copied_parts), plan.files)]
    )
    return root


def first_log(folder: Path) -> str:
    return next(
        one.path for one in kip33.list_segments(folder / "archive") if one.topic == "orders"
    )


def test_a_subtree_of_a_disk_gives_absolute_uris(folder: Path) -> None:
    subtree = fs.SubTreeFileSystem(str(folder), LOCAL)
    listed = kip33.list_segments("archive", filesystem=subtree)
    assert listed == kip33.list_segments(folder / "archive")
    log = f"archive/{first_log(folder)}"
    built = kip33.build_time_index(log, filesystem=subtree)
    assert built.status == kip33.build_time_index(folder / log).status == "ok"
    index = f"indexes/{first_log(folder).removesuffix('log')}timeindex"
    assert kip33.verify_segment(log, index, filesystem=subtree).verdict == "identical"
    assert kip33.read_time_index(index, filesystem=subtree) == built.time_index
    assert kip33.read_time_index(folder / index) == built.time_index


def test_a_catalog_on_a_subtree_is_the_catalog_of_its_path(folder: Path) -> None:
    subtree = fs.SubTreeFileSystem(str(folder), fs.SubTreeFileSystem("/", LOCAL))
    opened = kip33.open_catalog("/indexes/_catalog", filesystem=subtree)
    assert opened == kip33.open_catalog(folder / "indexes" / "_catalog")
    assert opened.offsets_for_times([("orders", None, START_MS)]).num_rows > 0


def test_a_path_of_fsspecs_local_filesystem_is_a_local_path(folder: Path) -> None:
    local = fsspec.filesystem("file")
    in_folder = fsspec.filesystem("dir", path=str(folder), fs=local)
    expected = kip33.list_segments(folder / "archive")
    assert kip33.list_segments(f"{folder}/archive", filesystem=local) == expected
    assert kip33.list_segments("archive", filesystem=in_folder) == expected


def put(source: Path, store: Any, target: str) -> None:
    for file in sorted(source.rglob("*")):
        if file.is_file():
            store.pipe(f"{target}/{file.relative_to(source)}", file.read_bytes())


@pytest.mark.parametrize(
    "wrap", [lambda store: store, lambda s: fs.PyFileSystem(fs.FSSpecHandler(s))]
)
def test_an_archive_in_an_fsspec_filesystem_is_read_as_on_disk(
    folder: Path, memory: Any, wrap: Any
) -> None:
    put(folder / "archive", memory, "/archive")
    store = wrap(memory)
    listed = kip33.list_segments("archive", filesystem=store)
    assert [one.path for one in listed] == [
        one.path for one in kip33.list_segments(folder / "archive")
    ]
    log = first_log(folder)
    assert listed[0].log_uri.startswith("memory:///archive/")
    with_uri = kip33.read_records(f"memory:///archive/{log}", filesystem=store)
    expected = list(kip33.read_records(folder / "archive" / log))
    assert list(with_uri) == expected
    found = kip33.find_offset(f"archive/{log}", expected[3].timestamp, filesystem=store)
    assert found == kip33.find_offset(folder / "archive" / log, expected[3].timestamp)
    assert {kip33.build_time_index(one).status for one in listed} >= {"ok", "truncated"}
    batches = list(kip33.scan_batches(f"archive/{log}", filesystem=store))
    assert len(batches) == len(list(kip33.scan_batches(folder / "archive" / log)))


def test_a_catalog_in_an_fsspec_filesystem_is_asked_as_on_disk(folder: Path, memory: Any) -> None:
    put(folder / "indexes", memory, "/backup")
    opened = kip33.open_catalog("backup/_catalog", filesystem=memory)
    on_disk = kip33.open_catalog(folder / "indexes" / "_catalog")
    assert opened.uri == "memory:///backup/_catalog"
    assert opened.segments().equals(on_disk.segments())


def test_what_is_missing_is_a_location_error(memory: Any) -> None:
    with pytest.raises(kip33.LocationError, match="memory:///none"):
        kip33.open_catalog("none", filesystem=memory)
    with pytest.raises(kip33.LocationError, match="memory:///x/0"):
        kip33.build_time_index("/x/0.log", 0, filesystem=memory)


def test_a_bucket_is_served_by_the_filesystem_that_was_given_for_it() -> None:
    one, other = bucket_store(), bucket_store("eu-west-1")
    assert place_on("one/indexes", None, one) == Location.of("s3://one/indexes")
    assert Location.of("s3://one/archive/0.log").filesystem() is one
    assert Location.of("s3://archive/0.log").filesystem() is one  # the only one of its scheme
    assert place_on("s3://other/indexes", None, other).filesystem() is other
    assert Location.of("s3://one/indexes").filesystem() is one
    assert given_filesystem("s3a://archive") is None  # which of the two is not known


def test_the_last_setting_of_a_bucket_is_used() -> None:
    store = bucket_store()
    place = place_on("one/indexes", None, store)
    use_storage_options({"endpoint": "http://mine:9000", "region": "x"}, [place])
    assert place.filesystem() is not store
    place_on("one/indexes", None, store)
    assert place.filesystem() is store
    assert given_filesystem("s3a://other") is None  # `storage_options` name S3


def in_a_task() -> None:
    """Send what this process has to itself, as to a task; options travel as settings."""
    sent = pickle.dumps((store_settings.settings(), filesystems.filesystems_for_tasks()))
    store_settings._Process.options = {}
    filesystems.use_stores(*pickle.loads(sent))


def test_a_bucket_that_the_options_reach_is_reached_by_them_in_tasks() -> None:
    place_on("s3://archive/x", {"endpoint": "http://mine:9000", "region": "x"})
    place_on("indexes/x", None, bucket_store())
    assert given_filesystem("s3a://archive") is None
    in_a_task()
    assert given_filesystem("s3a://archive") is None
    assert given_filesystem("s3a://indexes") == bucket_store()


def test_the_only_filesystem_reaches_other_buckets_in_tasks_as_well() -> None:
    """Spark itself has settings of S3, and they are no reason not to use it."""
    store_settings.use_settings({"fs.s3a.downgrade.syncable.exceptions": "true"})
    place_on("indexes/x", None, bucket_store())
    assert given_filesystem("s3a://archive") == bucket_store()
    in_a_task()
    assert given_filesystem("s3a://archive") == bucket_store()
    assert given_filesystem("gs://archive") is None


def test_a_subtree_of_a_bucket_begins_at_its_folder() -> None:
    store = bucket_store()
    subtree = fs.SubTreeFileSystem("bucket/prefix", store)
    assert place_on("indexes", None, subtree).uri == "s3a://bucket/prefix/indexes"
    assert place_on("s3://bucket/indexes", None, subtree).uri == "s3a://bucket/indexes"
    assert Location.of("s3://bucket/indexes").filesystem() == store
    with pytest.raises(ValueError, match=r"'\.\.' found"):
        place_on("../indexes", None, subtree)


def test_uris_of_other_schemes_are_places_elsewhere(tmp_path: Path) -> None:
    store = bucket_store()
    archive, indexes = places_on(["bucket/archive", tmp_path.as_uri()], None, store)
    assert (archive.uri, indexes.uri) == ("s3a://bucket/archive", tmp_path.as_uri())


WRONG_STORES = [
    ("x", object(), "object found"),
    ("x", "memory", "str found"),
    ("x", fs._MockFileSystem(), "mock found"),
    ("s3://bucket/x", LOCAL, "s3://bucket/x found"),
    ("x/y", Hosted(), "paths begin with /"),
    ("container/x", Azure(), "Azure found"),
]


@each_case(("path", "store", "token"), WRONG_STORES)
def test_a_filesystem_that_cannot_serve_the_place_is_one_line(
    path: str, store: Any, token: str
) -> None:
    with pytest.raises(ValueError, match=token) as error:
        kip33.list_segments(path, filesystem=store)
    assert "\n" not in str(error.value)
    assert filesystems._ByRoot.given == {}


def test_options_and_a_filesystem_are_not_given_at_once() -> None:
    with pytest.raises(ValueError, match="one of them"):
        kip33.list_segments("b/x", filesystem=bucket_store(), storage_options={"access_key": "a"})


def test_nothing_is_written_where_a_file_may_not_be_replaced_atomically(
    folder: Path, memory: Any
) -> None:
    plan = kip33.open_catalog(folder / "indexes" / "_catalog").plan_retention(
        {"defaults": {"retention.ms": "1d", "cleanup.policy": "delete"}}
    )
    with pytest.raises(ValueError, match="atomically"):
        kip33.write_plan(plan, "/plan.jsonl", filesystem=memory)
    assert memory.find("/") == []
    kip33.write_plan(plan, "plan.jsonl", filesystem=fs.SubTreeFileSystem(str(folder), LOCAL))
    applied = kip33.apply_plan("plan.jsonl", filesystem=fs.SubTreeFileSystem(str(folder), LOCAL))
    assert applied.partitions


def test_a_filesystem_of_this_process_alone_is_not_sent_to_tasks(memory: Any) -> None:
    place = place_on("/archive", None, memory)
    with pytest.raises(ValueError, match="memory:///archive"):
        require_for_tasks([place])
    bucket = place_on("bucket/x", None, bucket_store())
    require_for_tasks([bucket, Location.of("/disk")])
    assert list(filesystems.filesystems_for_tasks()) == ["s3a://bucket", "s3a://"]


def test_a_filesystem_that_cannot_be_pickled_cannot_be_sent() -> None:
    class Stuck(MemoryFileSystem):
        def __reduce__(self) -> Any:
            raise RuntimeError("stuck")

    store = fs.PyFileSystem(fs.FSSpecHandler(Stuck()))
    assert not can_travel("stuck://", store)
    assert can_travel("s3a://bucket", bucket_store())


OPEN_A_STORE = [
    kip33.list_segments,
    kip33.build_time_index,
    kip33.verify_segment,
    kip33.read_time_index,
    kip33.open_catalog,
    kip33.apply_plan,
    lambda log, **options: list(kip33.scan_batches(log, **options)),
    lambda log, **options: list(kip33.read_records(log, **options)),
    lambda log, **options: kip33.find_offset(log, iso_time(5), **options),
]


@pytest.mark.parametrize("call", OPEN_A_STORE)
def test_every_function_that_opens_a_store_takes_one_or_options(
    call: Any, memory: Any, tmp_path: Path
) -> None:
    with pytest.raises((kip33.LocationError, kip33.PlanError), match="memory:///x"):
        call(f"/x/{0:020d}.log", filesystem=memory)
    with pytest.raises((kip33.LocationError, kip33.PlanError)):
        call(tmp_path / f"{0:020d}.log", storage_options={"fs.s3a.endpoint": "mine"})
    assert store_settings.added_options() == {"fs.s3a.endpoint": "mine"}
