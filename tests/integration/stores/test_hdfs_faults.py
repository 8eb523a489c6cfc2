"""What goes wrong with HDFS: name nodes change over, data nodes stop; nothing is half done."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from kip33.demo import make_archive
from kip33.stores import settings as store_settings
from kip33.stores.files import read_whole, scanned, size_of
from kip33.stores.hdfs import open_hdfs
from kip33.stores.locations import Location
from kip33.stores.own_files import publish
from tests.integration.servers.hdfs import HdfsServer
from tests.integration.stores.places import Place, in_hdfs

pytestmark = pytest.mark.integration
POLICY = Path(__file__).parents[3] / "conf" / "retention.toml"


@pytest.fixture
def place(new_place: Callable[[str], Place], hdfs_server: HdfsServer) -> Place:
    store_settings.use_settings(hdfs_server.client_options)
    return new_place("hdfs")


def test_a_file_is_replaced_in_one_step(place: Place) -> None:
    """Whoever reads meanwhile sees the old one or the new one, never none."""
    location = Location.of(f"{place.uri}/index")
    old, new = b"o" * 1000, b"n" * 2000
    publish(location, old)
    seen: set[bytes | None] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(read_whole(location, most_bytes=5000))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(10):
        publish(location, new)
        publish(location, old)
    done.set()
    reader.join()
    assert seen <= {old, new}
    assert place.files("").keys() == {"index"}


def test_what_is_not_there_and_what_is_no_file(place: Place) -> None:
    base = Location.of(f"{place.uri}/folder")
    store = base.filesystem()
    publish(base.child("file"), b"bytes")
    assert size_of(base) is None
    assert size_of(base.child("none")) is None
    with pytest.raises(FileNotFoundError):
        store.open_input_file(base.child("none").path)
    with pytest.raises(FileNotFoundError):
        store.delete_file(base.child("none").path)
    with pytest.raises(FileNotFoundError):
        store.get_file_info(fs.FileSelector(base.child("none").path))
    with pytest.raises(NotADirectoryError):
        store.get_file_info(fs.FileSelector(base.child("file").path))
    with pytest.raises(OSError, match="Path is not a file") as said:
        store.open_input_file(base.path)
    assert "\n" not in str(said.value)
    with pytest.raises(IsADirectoryError):
        store.delete_file(base.path)
    [info] = store.get_file_info(fs.FileSelector(base.path))
    assert (info.base_name, info.size) == ("file", 5)
    assert abs(info.mtime_ns / 1e9 - time.time()) < 3600
    assert info.mtime_ns % 1_000_000 == 0
    store.delete_dir(base.path)
    assert store.get_file_info(base.path).type == fs.FileType.NotFound


def test_any_part_of_a_file_is_read(place: Place) -> None:
    location = Location.of(f"{place.uri}/large")
    data = bytes(range(256)) * 80_000  # beyond one range that comes ahead
    publish(location, data)
    with scanned(location) as (read_into, size_bytes, _):
        assert size_bytes == len(data)
        for position, size in ((0, 10), (len(data) - 5, 10), (8_388_600, 20), (100, 0)):
            view = memoryview(bytearray(size))
            copied = read_into(position, view)
            assert bytes(view[:copied]) == data[position : position + size]


def test_a_file_writes_and_copies_through_arrow(place: Place) -> None:
    store, base = place.filesystem, place.path
    with store.open_output_stream(f"{base}/one") as stream:
        stream.write(pa.py_buffer(b"bytes"))
    store.copy_file(f"{base}/one", f"{base}/other")
    assert place.files("") == {"one": b"bytes", "other": b"bytes"}


def test_builds_go_on_when_the_other_name_node_takes_over(
    ha_hdfs_server: HdfsServer, tmp_path: Path
) -> None:
    place = in_hdfs(tmp_path, ha_hdfs_server, "ha")
    make_archive(tmp_path / "demo")
    place.put(tmp_path / "demo", "logs")
    build = (
        "build",
        f"{place.uri}/logs",
        "--index-dir",
        f"{place.uri}/indexes",
        "--format",
        "json",
    )
    first = place.run(*build)
    assert first.code == 0, first.err
    before = place.files("indexes")
    ha_hdfs_server.failover()
    again = place.run(*build, "--full")
    assert again.code == 0, again.err
    assert again.record["by_status"] == first.record["by_status"]
    after = place.files("indexes")
    assert {p: d for p, d in after.items() if p.endswith("index")} == {
        p: d for p, d in before.items() if p.endswith("index")
    }


def test_a_data_node_that_is_away_makes_rows_that_the_next_build_completes(
    place: Place, hdfs_server: HdfsServer, tmp_path: Path
) -> None:
    make_archive(tmp_path / "demo")
    place.put(tmp_path / "demo", "logs")
    build = (
        *("build", f"{place.uri}/logs", "--index-dir", str(tmp_path / "indexes")),
        *("--format", "json"),
    )
    hdfs_server.stop_datanode()
    try:
        ran = place.run(*build)
    finally:
        hdfs_server.start_datanode()
    assert ran.code == 0, ran.err
    assert ran.record["by_status"]["unreadable"] > 10
    again = place.run(*build)
    assert again.code == 0, again.err
    assert "unreadable" not in again.record["by_status"]


def test_a_name_node_that_is_away_is_one_line(place: Place) -> None:
    gone = "hdfs://127.0.0.1:9/logs"
    attempts = {"spark.hadoop.dfs.client.failover.max.attempts": "2"}
    ran = place.run("verify", gone, conf=attempts)
    assert ran.code == 2
    [line] = [line for line in ran.err.splitlines() if line]
    assert line.startswith(f"Error: {gone}: SOURCE cannot be read: Connection refused")


def test_an_unknown_name_service_is_one_line(place: Place) -> None:
    ran = place.run("verify", "hdfs://nobody/logs")
    assert ran.code == 2
    [line] = [line for line in ran.err.splitlines() if line]
    assert line.startswith("Error: hdfs://nobody")


def test_a_client_that_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from kip33.errors import LocationError

    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(LocationError, match=r"pip install 'kip33\[hdfs\]'"):
        open_hdfs({}, "hdfs://127.0.0.1:9")


def test_records_without_a_data_node_are_an_error_and_then_all_there(
    place: Place, hdfs_server: HdfsServer, tmp_path: Path
) -> None:
    catalog = built_in_hdfs(place, tmp_path, index_dir=str(tmp_path / "indexes"))
    count = ("count", catalog, "--topic", "payments", "--per", "365d", "--format", "jsonl")
    whole = place.run(*count)
    assert whole.code == 0, whole.err
    hdfs_server.stop_datanode()
    try:
        without = place.run(*count)
    finally:
        hdfs_server.start_datanode()
    assert without.code == 1, without.err
    assert "could not be read, the first is hdfs://" in without.err
    assert place.run(*count).out == whole.out


def test_a_restore_without_a_data_node_restores_nothing_and_then_all(
    place: Place, hdfs_server: HdfsServer, tmp_path: Path
) -> None:
    built_in_hdfs(place, tmp_path, index_dir=str(tmp_path / "indexes"))
    log_dir = tmp_path / "log-dir"
    restore = ("restore", f"{place.uri}/logs", "--topic", "payments", "--to", str(log_dir))
    hdfs_server.stop_datanode()
    try:
        without = place.run(*restore)
    finally:
        hdfs_server.start_datanode()
    assert without.code == 1, without.err
    assert "could not be read, the first is hdfs://" in without.err
    assert not list(log_dir.glob("payments-*"))
    again = place.run(*restore)
    assert again.code == 0, again.err
    [restored] = (log_dir / "payments-0").glob("*.log")
    [original] = (tmp_path / "demo").glob(f"*/payments-0/{restored.name}")
    assert restored.read_bytes() == original.read_bytes()


def test_a_plan_without_a_data_node_deletes_nothing_and_then_ends(
    place: Place, hdfs_server: HdfsServer, tmp_path: Path
) -> None:
    """The journal's files need a data node; deletions need only the name node."""
    catalog = built_in_hdfs(place, tmp_path, index_dir=f"{place.uri}/indexes")
    plan = str(tmp_path / "plan.jsonl")
    judged = place.run(
        *("retention", catalog, "--policy", POLICY, "--now", "2023-12-01", "--plan", plan)
    )
    assert judged.code == 0, judged.err
    before = place.files("logs").keys()
    hdfs_server.stop_datanode()
    try:
        without = place.run("retention", "--apply", plan)
    finally:
        hdfs_server.start_datanode()
    assert without.code != 0, without.err
    assert "Traceback" not in without.err
    assert place.files("logs").keys() == before
    again = place.run("retention", "--apply", plan)
    assert again.code == 0, again.err
    assert place.files("logs").keys() < before


def built_in_hdfs(place: Place, tmp_path: Path, *, index_dir: str) -> str:
    """Build the demo archive in HDFS and return the catalog's path or URI."""
    make_archive(tmp_path / "demo")
    place.put(tmp_path / "demo", "logs")
    built = place.run("build", f"{place.uri}/logs", "--index-dir", index_dir)
    assert built.code == 0, built.err
    return f"{index_dir}/_catalog"
