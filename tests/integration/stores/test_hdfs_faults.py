"""What goes wrong with HDFS: name nodes change over, data nodes stop; nothing is half done."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from kip33.stores import settings as store_settings
from kip33.stores.files import read_whole, scanned, size_of
from kip33.stores.hdfs import open_hdfs
from kip33.stores.locations import Location
from kip33.stores.own_files import publish
from tests.demo_archive import make_archive
from tests.integration.servers.hdfs import HdfsServer
from tests.integration.stores.places import Place, in_hdfs

pytestmark = pytest.mark.integration


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


def test_who_may_not_write_is_told_so(place: Place, hdfs_server: HdfsServer) -> None:
    location = Location.of(f"{place.uri}/closed/file")
    publish(location, b"bytes")
    from hdfs_native import Client

    client = Client(hdfs_server.uri, hdfs_server.client_options)
    client.set_permission(location.parent.path, 0o500)
    client.set_owner(location.parent.path, "somebody", "else")
    try:
        publish(location, b"other")
    except PermissionError as error:
        assert "Permission denied" in str(error)
        assert "\n" not in str(error)
    else:  # the tests' user is HDFS's superuser
        assert read_whole(location, most_bytes=10) == b"other"


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
