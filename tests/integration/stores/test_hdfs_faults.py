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
    where = (f"{place.uri}/logs", "--index-dir", f"{place.uri}/indexes")
    build = ("build", *where, "--format", "json")
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


def test_without_a_data_node_nothing_is_half_done_and_afterwards_all_is(
    place: Place, hdfs_server: HdfsServer, tmp_path: Path
) -> None:
    """The journal's files need a data node; deletions need only the name node."""
    make_archive(tmp_path / "demo")
    place.put(tmp_path / "demo", "logs")
    log_dir, plan, catalog = tmp_path / "log-dir", tmp_path / "plan.jsonl", f"{place.uri}/indexes"
    known = place.run("build", f"{place.uri}/logs", "--index-dir", catalog)
    assert known.code == 0, known.err
    catalog += "/_catalog"
    judged = place.run(
        *("retention", catalog, "--policy", POLICY, "--now", "2023-12-01", "--plan", plan)
    )
    assert judged.code == 0, judged.err
    catalog = str(tmp_path / "indexes" / "_catalog")
    known = place.run("build", f"{place.uri}/logs", "--index-dir", tmp_path / "indexes")
    assert known.code == 0, known.err
    build = ("build", f"{place.uri}/logs", "--index-dir", tmp_path / "new", "--format", "json")
    count = ("count", catalog, "--topic", "payments", "--per", "365d", "--format", "jsonl")
    restore = ("restore", f"{place.uri}/logs", "--topic", "payments", "--to", log_dir)
    apply = ("retention", "apply", plan, "--delete")
    whole, before = place.run(*count), place.files("logs").keys()
    assert whole.code == 0, whole.err
    hdfs_server.stop_datanode()
    try:
        built, *reads, applied = (place.run(*one) for one in (build, count, restore, apply))
    finally:
        hdfs_server.start_datanode()
    assert built.code == 0, built.err
    assert built.record["by_status"]["unreadable"] > 10
    for without in reads:
        assert without.code == 1, without.err
        assert "hdfs://" in without.err
    assert not list(log_dir.glob("payments-*"))
    assert applied.code != 0, applied.err
    assert "Traceback" not in applied.err
    assert place.files("logs").keys() == before

    built, counted, restored, applied = (place.run(*one) for one in (build, count, restore, apply))
    assert (built.code, restored.code, applied.code) == (0, 0, 0), (built, restored, applied)
    assert "unreadable" not in built.record["by_status"]
    assert counted.out == whole.out
    [log] = (log_dir / "payments-0").glob("*.log")
    [original] = (tmp_path / "demo").glob(f"*/payments-0/{log.name}")
    assert log.read_bytes() == original.read_bytes()
    assert place.files("logs").keys() < before


def test_a_name_node_that_is_away_or_unknown_is_one_line(place: Place) -> None:
    attempts = {"spark.hadoop.dfs.client.failover.max.attempts": "2"}
    gone = "hdfs://127.0.0.1:9/logs"
    said = f"{gone}: SOURCE cannot be read: Connection refused"
    for source, error, code in ((gone, said, 1), ("hdfs://nobody/logs", "hdfs://nobody", 2)):
        ran = place.run("verify", source, conf=attempts)
        assert ran.code == code, ran.err
        assert ran.line.startswith(f"Error: {error}")


def test_a_client_that_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from kip33.errors import LocationError

    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(LocationError, match=r"pip install 'kip33\[hdfs\]'"):
        open_hdfs({}, "hdfs://127.0.0.1:9")
