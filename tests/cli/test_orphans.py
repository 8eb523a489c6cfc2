"""`kip33 catalog --orphans`: files that belong to no segment, by name and size."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kip33.archive.layouts import layout_of
from kip33.archive.leftover_files import list_leftovers
from kip33.stores.locations import Location
from tests.builders.changing_archive import CLICKS, ORDERS, ChangingArchive, batches, built_archive
from tests.builders.layouts import WRITERS, Stored, aiven, aiven_stem, segment_id
from tests.builders.segment_builder import Record, end_txn_marker, segment, v2_batch
from tests.cli.console import Command, file_named

DEAD = "0123456789abcdef0123456789abcdef"
Orphans = Callable[[], list[tuple[str, str, int]]]


def aborted_transaction(base_offset: int) -> bytes:
    written = v2_batch(
        base_offset, [Record(1000)], transactional=True, producer_id=5, producer_epoch=0,
        base_sequence=base_offset // 40,
    )  # fmt: skip
    aborted = end_txn_marker(base_offset + 1, 1001, producer_id=5, commit=False)
    return segment([written, aborted])


@pytest.fixture
def changing(tmp_path: Path) -> ChangingArchive:
    """Two partitions with two segments each, built with both kinds of index files."""
    return built_archive(tmp_path)


@pytest.fixture
def orphans(command: Command, changing: ChangingArchive) -> Orphans:
    """Return a function that gives each leftover's kind, its path and its bytes."""

    def found() -> list[tuple[str, str, int]]:
        done = command("catalog", changing.catalog, "--orphans", "--format", "json")
        assert done.exit_code == 0, done.stderr
        [answer] = done.lines
        by_kind: dict[str, dict[str, int]] = {}
        for one in answer["leftovers"]:
            total = by_kind.setdefault(one["leftover"], {"files": 0, "size_bytes": 0})
            total["files"] += one["files"]
            total["size_bytes"] += one["size_bytes"]
        assert answer["by_kind"] == by_kind
        root = changing.folder.as_uri() + "/"
        return [
            (one["leftover"], one["uri"].removeprefix(root), one["size_bytes"])
            for one in answer["leftovers"]
        ]

    return found


def test_every_file_belongs_to_a_segment(
    command: Command, changing: ChangingArchive, orphans: Orphans
) -> None:
    for name in ("partition.metadata", "leader-epoch-checkpoint", f"{40:020d}.snapshot"):
        (changing.source / ORDERS / name).write_text("version: 0")
    for name in ("meta.properties", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown"):
        (changing.source / "b1" / name).write_text("0")
    assert orphans() == []
    shown = command("catalog", changing.catalog, "--orphans")
    assert shown.stdout == f"{changing.source.as_uri()}: every file belongs to a segment.\n"


def test_what_a_broker_marked(changing: ChangingArchive, orphans: Orphans) -> None:
    folder = changing.source / ORDERS
    for suffix in ("deleted", "cleaned", "swap"):
        (folder / f"{7:020d}.log.{suffix}").write_bytes(bytes(10))
        (folder / f"{7:020d}.index.{suffix}").write_bytes(bytes(3))
    for kind in ("delete", "stray", "future"):
        marked = changing.source / f"b1/orders-1.{DEAD}-{kind}"
        marked.mkdir()
        (marked / f"{0:020d}.log").write_bytes(bytes(100))
        (marked / f"{0:020d}.index").write_bytes(bytes(8))
    name = f"source/{ORDERS}/{7:020d}"
    assert orphans() == [
        *(
            (f".{one} file", f"{name}.{kind}.{one}", size)
            for one in ("deleted", "cleaned", "swap")
            for kind, size in (("index", 3), ("log", 10))
        ),
        *(
            (f"-{one} directory", f"source/b1/orders-1.{DEAD}-{one}", 108)
            for one in ("delete", "stray", "future")
        ),
    ]


def test_a_retention_plan_leaves_no_index_file_of_ours(
    command: Command, changing: ChangingArchive, orphans: Orphans
) -> None:
    for base_offset in (80, 120):
        changing.write(changing.log(ORDERS, base_offset), aborted_transaction(base_offset))
    changing.write(changing.log(ORDERS, 160), batches(160, 20))
    changing.build(offset_index=True, producer_snapshots=True)
    policy = file_named("policy.toml", b"[defaults]\ncleanup.policy = 'delete'\nretention.ms = 1\n")
    plan = changing.folder / "plan.jsonl"
    for options in (
        (changing.catalog, "--policy", policy, "--plan", plan),
        ("--apply", plan),
    ):
        assert command("retention", *options).exit_code == 0

    left = {path.name for path in changing.index_root.rglob(f"{ORDERS}/*")}
    assert left == {f"{160:020d}.{kind}" for kind in ("index", "timeindex", "snapshot")}
    assert orphans() == []


def test_our_index_files_whose_log_is_deleted(changing: ChangingArchive, orphans: Orphans) -> None:
    changing.build(offset_index=True, producer_snapshots=True)
    changing.log(CLICKS, 40).unlink()
    changing.build(offset_index=True, producer_snapshots=True)
    time_index = changing.index(CLICKS, 40)
    files = [time_index.with_suffix(suffix) for suffix in (".index", ".snapshot", ".timeindex")]
    ours = "index file of kip33 without a log"
    kinds = [(ours, f"indexes/{CLICKS}/{file.name}", file.stat().st_size) for file in files]
    assert orphans() == kinds

    time_index.write_bytes(b"of another program")
    assert orphans() == [
        *kinds[:2],
        ("index file without a log", kinds[2][1], 18),
    ], "a file that changed is not ours"


def test_index_files_that_kip33_did_not_write(changing: ChangingArchive, orphans: Orphans) -> None:
    (changing.source / ORDERS / f"{90:020d}.timeindex").write_bytes(bytes(12))
    (changing.index_root / ORDERS / f"{91:020d}.index").write_bytes(bytes(8))
    kind = "index file without a log"
    assert orphans() == [
        (kind, f"indexes/{ORDERS}/{91:020d}.index", 8),
        (kind, f"source/{ORDERS}/{90:020d}.timeindex", 12),
    ]


def test_unknown_files_and_temporary_ones(changing: ChangingArchive, orphans: Orphans) -> None:
    (changing.source / ORDERS / "core.1234").write_bytes(bytes(5))
    (changing.source / "b1/orders.tar").write_bytes(bytes(6))
    temporary = f".{0:020d}.timeindex.{DEAD}.tmp"
    (changing.index_root / ORDERS / temporary).write_bytes(bytes(7))
    (changing.index_root / "notes.txt").write_bytes(bytes(8))
    assert orphans() == [
        ("temporary file of kip33", f"indexes/{ORDERS}/{temporary}", 7),
        ("unknown file", "indexes/notes.txt", 8),
        ("unknown file", "source/b1/orders-0/core.1234", 5),
        ("unknown file", "source/b1/orders.tar", 6),
    ]


def test_a_catalog_in_the_index_directory_is_no_leftover(
    command: Command, changing: ChangingArchive
) -> None:
    indexes = changing.folder / "other"
    assert command("build", changing.source, "--index-dir", indexes).exit_code == 0
    done = command("catalog", indexes / "_catalog", "--orphans", "--format", "json")
    assert done.lines[0]["leftovers"] == []


def test_in_place_our_orphans_are_among_the_files_of_the_source(tmp_path: Path) -> None:
    from kip33.builds.leftovers import find_leftovers
    from kip33.catalog.catalog import Catalog

    changing = ChangingArchive(tmp_path, in_place=True)
    for base_offset in (0, 40):
        changing.write(changing.log(ORDERS, base_offset), batches(base_offset, 20))
    changing.build()
    changing.log(ORDERS).unlink()
    changing.build()
    catalog = Catalog.at(str(changing.catalog))
    [found] = find_leftovers(catalog, catalog.require_newest()).found
    assert (found.kind.value, found.uri) == (
        "index file of kip33 without a log",
        changing.index(ORDERS).as_uri(),
    )


def test_a_directory_that_cannot_be_listed_is_a_warning(
    command: Command, changing: ChangingArchive
) -> None:
    (changing.source / "loop").symlink_to(changing.source)
    done = command("catalog", changing.catalog, "--orphans")
    assert (
        f"Warning: {changing.source.as_uri()}/loop: a link to a directory above itself; "
        "leftovers in it are not shown" in done.stderr
    )


@pytest.mark.parametrize("name", WRITERS)
def test_every_file_that_an_uploader_writes_belongs_to_a_segment(tmp_path: Path, name: str) -> None:
    layout, write, _ = WRITERS[name]
    log = segment([batches(0, 3)])
    write(tmp_path, [Stored("t", number, 0, log, bytes(12), bytes(8)) for number in range(2)])
    assert list_leftovers(Location.of(tmp_path), layout_of(layout)).found == []


def test_uploads_without_a_manifest(tmp_path: Path) -> None:
    stored = [Stored("t", 0, base, batches(base, 3), bytes(12), bytes(8)) for base in (0, 40, 80)]
    aiven(tmp_path, stored)
    first, second, _ = (aiven_stem(tmp_path, one) for one in stored)
    first.with_name(f"{first.name}.rsm-manifest").unlink()
    second.with_name(f"{second.name}.log").unlink()
    found = list_leftovers(Location.of(tmp_path), layout_of("aiven")).found
    assert sorted((one.kind.value, Path(one.uri).name) for one in found) == [
        ("manifest without a log", f"{second.name}.rsm-manifest"),
        ("upload without a manifest", f"{first.name}.indexes"),
        ("upload without a manifest", f"{first.name}.log"),
    ]


def test_an_hdfs_upload_without_its_log(tmp_path: Path) -> None:
    _, write, _ = WRITERS["hdfs directories"]
    one = Stored("t", 0, 0, batches(0, 3), bytes(12), bytes(8))
    write(tmp_path, [one])
    [log] = tmp_path.glob("*/*/log")
    log.unlink()
    found = list_leftovers(Location.of(tmp_path), layout_of("hdfs-rsm")).found
    assert {one.kind.value for one in found} == {"upload without a manifest"}
    assert {Path(one.uri).parent.name for one in found} == {segment_id(one)}


def test_tables_and_lines_have_the_same(command: Command, changing: ChangingArchive) -> None:
    (changing.source / "b1/orders.tar").write_bytes(bytes(2048))
    shown = command("catalog", changing.catalog, "--orphans")
    lines: list[dict[str, Any]] = command(
        "catalog", changing.catalog, "--orphans", "--format", "jsonl"
    ).lines
    assert "b1/orders.tar" in shown.stdout
    assert "2.0 KiB" in shown.stdout
    assert [line["kind"] for line in lines] == ["leftover", "summary"]
    assert not lines[0]["is_ours"]
    assert lines[1]["by_kind"] == {"unknown file": {"files": 1, "size_bytes": 2048}}


@pytest.fixture
def with_orphans(changing: ChangingArchive) -> ChangingArchive:
    """A log is deleted, and a build has seen it."""
    changing.log(CLICKS).unlink()
    changing.build(offset_index=True)
    return changing


def test_a_plan_is_written_and_applied(command: Command, with_orphans: ChangingArchive) -> None:
    orphans = ("catalog", with_orphans.catalog, "--orphans")
    names = [f"indexes/{CLICKS}/{0:020d}{suffix}" for suffix in (".index", ".timeindex")]
    paths = [with_orphans.folder / name for name in names]
    size_bytes = sum(path.stat().st_size for path in paths)

    [planned] = command(*orphans, "--plan", "plan.jsonl", "--format", "json").lines
    assert list(planned) == ["snapshot", "source", "by_kind", "plan", "leftovers"]
    plan = planned["plan"]
    assert (plan["files"], plan["size_bytes"], plan["left_out"]) == (2, size_bytes, [])

    [tried] = command(*orphans, "--apply", "plan.jsonl", "--dry-run", "--format", "json").lines
    assert all(path.exists() for path in paths)
    [done] = command(*orphans, "--apply", "plan.jsonl", "--format", "json").lines
    assert not any(path.exists() for path in paths)
    assert tried == done | {"dry_run": True}
    assert (done["by_outcome"], done["files_removed"]) == ({"removed": 2}, 2)
    assert (done["plan_id"], done["bytes_removed"]) == (plan["plan_id"], size_bytes)
    assert [one["uri"] for one in done["results"]] == [path.as_uri() for path in paths]


def test_a_plan_does_not_replace_a_file_of_another(
    command: Command, with_orphans: ChangingArchive
) -> None:
    plan = file_named("plan.jsonl", b"precious\n")

    done = command("catalog", with_orphans.catalog, "--orphans", "--plan", plan)

    assert done.exit_code == 2
    assert "does not replace" in done.stderr and done.stderr.count("\n") == 1
    assert Path(plan).read_bytes() == b"precious\n"


def test_the_tables_of_a_plan_and_its_apply(
    command: Command, with_orphans: ChangingArchive
) -> None:
    orphans = ("catalog", with_orphans.catalog, "--orphans")
    marked = with_orphans.source / f"b1/orders-1.{DEAD}-delete"
    marked.mkdir()
    (marked / f"{0:020d}.log").write_bytes(bytes(100))
    shown = command(*orphans, "--plan", "plan.jsonl", "--remove", "delete-directories")
    assert "2 files in 2 leftovers" in shown.stdout
    assert f"{marked.as_uri()}: was modified less than a day ago" in shown.stderr
    with_orphans.index(CLICKS).write_bytes(b"of another program")
    done = command(*orphans, "--apply", "plan.jsonl")
    assert done.exit_code == 4
    assert "18 bytes found, the plan says" in done.stdout
    records = command(*orphans, "--apply", "plan.jsonl", "--format", "jsonl").lines
    assert [line["kind"] for line in records] == ["result", "result", "summary"]
    assert records[-1]["by_outcome"] == {"already removed": 1, "kept": 1}
