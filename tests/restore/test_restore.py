"""`kip33 restore`: what is restored, what is refused, and what the log directory then has.

Kafka's own files are compared in `tests/integration/kafka/test_restored_files.py`.
"""

import errno
import gzip
import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kip33 import build_index, restore_archive
from kip33.archive.plans import with_content_id
from kip33.archive.sources import RESTORE_JOURNAL, RESTORE_STAGING
from kip33.errors import LocationError, LockedError, RestoreError
from kip33.formats.partition_metadata import PartitionMetadata, parse_offset_checkpoint
from kip33.formats.producer_snapshot import ProducerSnapshot, ProducerState
from kip33.formats.transaction_index import TransactionIndex
from kip33.indexing.verification import verify_file
from kip33.local.local_engine import LocalEngine
from kip33.restore import restore_apply, restore_complete
from kip33.restore.restore_apply import planned_or_begun, restore
from kip33.restore.restore_complete import abandon
from kip33.restore.restore_plan import STAGED_RUN, load_topic_ids, plan_restore
from kip33.restore.restore_request import RestoreRequest
from kip33.restore.restore_source import ONLY_THE_LAST
from kip33.rules.index_builder import IndexSettings, TopicSettings
from kip33.rules.index_verdict import IndexVerdict
from kip33.stores.locations import Location
from kip33.stores.own_files import temporary_files_of, temporary_of
from tests.archive.test_broker_locks import held_by_another
from tests.builders.layouts import uuid22
from tests.builders.partition_copies import INTERVAL_BYTES, everything_in, files_of
from tests.builders.segment_builder import Record, end_txn_marker, v2_batch
from tests.cases import each_case

T = 1_700_000_000_000
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")
TOPIC_ID = "bn9RMmT4REWVDFQzf3IUaQ"
OLDER_ID = "e4rNbTcjT_elpYRxU0Jgtw"
SETTINGS = TopicSettings(IndexSettings("recover", INTERVAL_BYTES))


def batch(base: int, **how: int | bool) -> bytes:
    return v2_batch(base, [Record(T + base + i, value=b"v" * 20) for i in range(10)], **how)


def log_of(base: int, batches: int = 3, **how: int | bool) -> bytes:
    return b"".join(batch(base + 10 * number, **how) for number in range(batches))


def write_logs(directory: Path, logs: dict[int, bytes]) -> Path:
    directory.mkdir(parents=True)
    for base, data in logs.items():
        (directory / f"{base:020d}.log").write_bytes(data)
    return directory


def archived(folder: Path) -> Path:
    """Return an archive with two partitions of three and one segments, logs alone."""
    logs = {base: log_of(base, leader_epoch=base // 30) for base in (0, 30, 60)}
    write_logs(folder / "archive" / "orders-0", logs)
    write_logs(folder / "archive" / "orders-1", {500: log_of(500)})
    return folder / "archive"


def formatted(folder: Path) -> Path:
    """Return a log directory as `kafka-storage format` leaves it."""
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "meta.properties").write_text("version=1\n")
    return folder / "data"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return archived(tmp_path)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return formatted(tmp_path)


def asked(source: Path, log_dir: Path, **how: Any) -> RestoreRequest:
    places = {"source": Location.of(source), "log_dir": Location.of(log_dir)}
    return RestoreRequest(**(places | {"settings": SETTINGS} | how))


def restored(source: Path, log_dir: Path, **how: Any) -> dict[str, Any]:
    return restore(asked(source, log_dir, **how), LocalEngine())


def dry_run(source: Path, log_dir: Path, **how: Any) -> dict[str, Any]:
    return planned_or_begun(asked(source, log_dir, **how), LocalEngine())


def new_topic(log_dir: Path, name: str, topic_id: str = TOPIC_ID) -> Path:
    """Make a partition's directory as a broker leaves it that has just created the topic."""
    folder = log_dir / name
    folder.mkdir()
    for kind in ("log", "index", "timeindex"):
        (folder / f"{0:020d}.{kind}").write_bytes(b"")
    (folder / "leader-epoch-checkpoint").write_bytes(b"")
    (folder / "partition.metadata").write_bytes(PartitionMetadata(topic_id).to_bytes())
    return folder


def problem_of(summary: dict[str, Any], partition: int = 0) -> str:
    [row] = [row for row in summary["partitions"] if row["partition"] == partition]
    return str(row["problem"])


def test_all_files_of_a_stopped_broker_are_there(source: Path, log_dir: Path) -> None:
    summary = restored(source, log_dir)
    assert (summary["partitions_restored"], summary["partitions_refused"]) == (2, 0)
    files = files_of(log_dir / "orders-0")
    originals = files_of(source / "orders-0")
    assert {name: files[name] for name in originals} == originals
    assert {name for name in files if name.endswith("snapshot")} == {
        f"{offset:020d}.snapshot" for offset in (30, 60, 90)
    }
    assert files["leader-epoch-checkpoint"] == b"0\n3\n0 0\n1 30\n2 60\n"
    for base in (0, 30, 60):
        log = Location.of(log_dir / "orders-0" / f"{base:020d}.log")
        time_index, index = (
            Location.of(f"{log.path[:-4]}.{kind}") for kind in ("timeindex", "index")
        )
        verdict, _ = verify_file(
            log, time_index, index, base_offset=base, topic="orders", settings=SETTINGS.default
        )
        assert verdict.verdict == verdict.offset_index_verdict == IndexVerdict.IDENTICAL


def test_the_log_directory_gets_its_checkpoints(source: Path, log_dir: Path) -> None:
    restored(source, log_dir)
    ends = {("orders", 0): 90, ("orders", 1): 530}
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert parse_offset_checkpoint((log_dir / name).read_text()) == ends
    assert sorted(path.name for path in log_dir.iterdir()) == [
        *(".kafka_cleanshutdown", "meta.properties", "orders-0", "orders-1"),
        *("recovery-point-offset-checkpoint", "replication-offset-checkpoint"),
    ]


def test_lines_of_other_partitions_stay_and_old_ones_of_these_go(
    source: Path, log_dir: Path
) -> None:
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n2\nothers 7 99\norders 0 5\n")
    for name in ("log-start-offset-checkpoint", "cleaner-offset-checkpoint"):
        (log_dir / name).write_text("0\n2\nothers 7 99\norders 0 5\n")
    restored(source, log_dir, partitions=frozenset([0]))
    text = (log_dir / "recovery-point-offset-checkpoint").read_text()
    assert text == "0\n2\nothers 7 99\norders 0 90\n"
    for name in ("log-start-offset-checkpoint", "cleaner-offset-checkpoint"):
        assert (log_dir / name).read_text() == "0\n1\nothers 7 99\n"


def test_a_crash_of_other_partitions_is_not_hidden(source: Path, log_dir: Path) -> None:
    write_logs(log_dir / "others-7", {0: log_of(0)})
    summary = restored(source, log_dir)
    assert not (log_dir / ".kafka_cleanshutdown").exists()
    assert "others-7 were not shut down cleanly" in summary["notes"][0]


def test_other_partitions_of_a_stopped_broker_stay_clean(source: Path, log_dir: Path) -> None:
    others = write_logs(log_dir / "others-7", {0: log_of(0)})
    (others / "partition.metadata").write_bytes(PartitionMetadata(TOPIC_ID).to_bytes())
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":8}')
    before = files_of(others)
    assert restored(source, log_dir)["notes"] == []
    assert (log_dir / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":8}'
    assert files_of(others) == before


def test_the_empty_partition_of_a_new_topic_is_replaced(source: Path, log_dir: Path) -> None:
    new_topic(log_dir, "orders-0")
    summary = restored(source, log_dir)
    assert [row["topic_id"] for row in summary["partitions"]] == [TOPIC_ID, None]
    files = files_of(log_dir / "orders-0")
    assert files["partition.metadata"] == PartitionMetadata(TOPIC_ID).to_bytes()
    assert files[f"{0:020d}.log"] == log_of(0, leader_epoch=0)


def test_the_topic_id_of_the_archive_is_kept(source: Path, log_dir: Path) -> None:
    metadata = PartitionMetadata(TOPIC_ID).to_bytes()
    (source / "orders-0" / "partition.metadata").write_bytes(metadata)
    restored(source, log_dir)
    assert (log_dir / "orders-0" / "partition.metadata").read_bytes() == metadata


def test_a_partition_with_data_is_not_replaced(source: Path, log_dir: Path) -> None:
    there = write_logs(log_dir / "orders-0", {0: log_of(0)})
    before = files_of(there)
    summary = restored(source, log_dir)
    assert "the partition has data, which a restore does not replace" in problem_of(summary)
    assert files_of(there) == before
    assert (log_dir / "orders-1").is_dir()


def test_the_same_restore_again_finds_all_there_already(source: Path, log_dir: Path) -> None:
    first = restored(source, log_dir)
    before = everything_in(log_dir)
    times = {path: path.stat().st_mtime_ns for path in log_dir.rglob("*")}
    dry = dry_run(source, log_dir)
    again = restored(source, log_dir)
    for summary in (dry, again):
        counts = ("partitions_restored", "partitions_refused", "partitions_there")
        assert [summary[name] for name in counts] == [0, 0, 2]
        assert all(row["is_there"] and row["problem"] is None for row in summary["partitions"])
        for old, new in zip(first["partitions"], summary["partitions"], strict=True):
            assert old | {"is_there": True} == new
    assert everything_in(log_dir) == before
    assert {path: path.stat().st_mtime_ns for path in log_dir.rglob("*") if path in times} == times

    shutil.rmtree(log_dir / "orders-1")
    one = restored(source, log_dir)
    assert [one[name] for name in counts] == [1, 0, 1]
    assert everything_in(log_dir) == before


def test_so_does_one_that_cut_logs_or_began_at_a_time(source: Path, tmp_path: Path) -> None:
    damaged = source / "orders-1" / f"{500:020d}.log"
    damaged.write_bytes(damaged.read_bytes() + b"\0\1\2")
    for number, how in enumerate(
        ({"from_ms": T + 40}, {"until_ms": T + 40, "is_truncated": True}, {"is_linked": True})
    ):
        log_dir = formatted(tmp_path / f"{number}")
        assert restored(source, log_dir, **how)["partitions_restored"]
        again = restored(source, log_dir, **how)
        assert again["partitions_restored"] == 0
        refused = [row["problem"] for row in again["partitions"] if row["problem"]]
        assert not [one for one in refused if "has data" in one], how


def hole(source: Path) -> None:
    (source / "orders-0" / f"{30:020d}.log").unlink()


DRY: dict[str, tuple[Callable[[Path], object], dict[str, Any]]] = {
    "nothing is wrong": (lambda _: None, {}),
    "links": (lambda _: None, {"is_linked": True}),
    "a new cluster": (lambda _: None, {"leader_epoch": 0}),
    "a cut": (lambda _: None, {"until_ms": T + 45, "is_truncated": True}),
    "a byte of a log before the last": (lambda to: flip(to / "orders-0" / f"{30:020d}.log"), {}),
    "missing offsets": (hole, {}),
    "missing offsets are allowed": (hole, {"allow_holes": True}),
    "leader epochs fall": (lambda to: add_log(to, 60, log_of(60)), {}),
    "a log spans 2^31": (lambda to: add_log(to, 60, log_of(60, leader_epoch=2) + batch(2**32)), {}),
    "a segment ends after the next one begins": (lambda to: add_log(to, 80, log_of(80)), {}),
}


@each_case(("change", "how"), DRY)
def test_a_dry_run_of_an_archive_has_the_figures_of_the_restore(
    change: Any, how: Any, tmp_path: Path
) -> None:
    source, log_dir = archived(tmp_path), formatted(tmp_path)
    change(source)
    before = everything_in(tmp_path)
    dry = dry_run(source, log_dir, **how)
    assert everything_in(tmp_path) == before
    assert dry.pop("free_bytes") > 0
    done = restored(source, log_dir, **how)
    done["bytes_copied"] += done["bytes_there"]  # it is copied again when a log is split
    assert dry | {"applied": True, "bytes_there": done["bytes_there"]} == done


def one_record_more(log_dir: Path) -> None:
    """Append as a broker does."""
    log = log_dir / "orders-0" / f"{60:020d}.log"
    log.write_bytes(log.read_bytes() + log_of(90))


def checkpoint(log_dir: Path) -> None:
    name = "recovery-point-offset-checkpoint"
    (log_dir / name).write_text("0\n2\norders 0 89\norders 1 530\n")


def add_log(source: Path, base_offset: int, data: bytes) -> None:
    (source / "orders-0" / f"{base_offset:020d}.log").write_bytes(data)


CHANGED: dict[str, Callable[[Path, Path], object]] = {
    "a broker wrote": lambda _, log_dir: one_record_more(log_dir),
    "a broker deleted": lambda _, log_dir: (log_dir / "orders-0" / f"{0:020d}.log").unlink(),
    "another byte": lambda _, log_dir: flip(log_dir / "orders-0" / f"{30:020d}.log"),
    "another byte of an index": lambda _, to: flip(to / "orders-0" / f"{30:020d}.timeindex"),
    "another snapshot": lambda _, log_dir: flip(log_dir / "orders-0" / f"{30:020d}.snapshot"),
    "another file": lambda _, log_dir: (log_dir / "orders-0" / "mine").touch(),
    "a checkpoint": lambda _, log_dir: checkpoint(log_dir),
    "a broker crashed": lambda _, log_dir: (log_dir / ".kafka_cleanshutdown").unlink(),
    "a longer archive": lambda source, _: add_log(source, 90, log_of(90)),
    "other records": lambda source, _: add_log(source, 30, log_of(30, leader_epoch=2)),
}


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


@each_case("change", CHANGED)
def test_what_is_not_exactly_as_it_would_be_is_refused(change: Any, tmp_path: Path) -> None:
    source, log_dir = archived(tmp_path), formatted(tmp_path)
    restored(source, log_dir)
    change(source, log_dir)
    before = everything_in(log_dir)
    again = restored(source, log_dir)
    assert "the partition has data, which a restore does not replace" in problem_of(again)
    assert again["partitions_restored"] == 0
    assert everything_in(log_dir) == before


METADATA = PartitionMetadata(TOPIC_ID).to_bytes()


BESIDE_A_NEW_TOPIC = [
    ("00000000000000000042.log.bak", b"mine", False),
    ("00000000000000000000.log.gz", b"mine", False),
    ("saved.tar", b"mine", False),
    ("saved.tar", b"", False),
    ("00000000000000000000.log", b"mine", False),
    ("00000000000000000000.log.deleted", b"", False),
    ("00000000000000000007.log", b"", False),
    ("0.log", b"", False),
    ("00000000000000000000.snapshot", b"mine", False),
    ("00000000000000000000.index", b"mine", False),
    ("00000000000000000000.index", bytes(10_485_760), True),  # of a broker that was killed
    ("00000000000000000000.timeindex", bytes(10_485_756), True),
    ("leader-epoch-checkpoint", b"0\n1\n0 0\n", True),  # it had a leader
    ("leader-epoch-checkpoint", b"0\n1\n0 7\n", False),
    ("leader-epoch-checkpoint", b"mine", False),
    ("partition.metadata", METADATA, True),
    ("partition.metadata", b"mine", False),
    (".kip33-truncate.json", b"{}", False),
]


def test_only_what_a_broker_makes_for_a_new_topic_is_replaced(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, (name, data, is_replaced) in enumerate(BESIDE_A_NEW_TOPIC):
        with subtests.test(f"{name}, {len(data)} bytes"):
            folder = tmp_path / str(number)
            folder.mkdir()
            source = archived(folder)
            log_dir = formatted(folder)
            (new_topic(log_dir, "orders-0") / name).write_bytes(data)
            before = everything_in(log_dir / "orders-0")
            [planned] = [
                one for one in plan_restore(asked(source, log_dir)).partitions if not one.partition
            ]
            problem = problem_of(restored(source, log_dir))
            is_free = planned.problem is None and planned.obstacle is None
            assert (is_free, problem == "None") == (is_replaced, is_replaced), problem
            if not is_replaced:
                assert problem in (planned.problem, planned.obstacle)
                assert name in problem
                assert everything_in(log_dir / "orders-0") == before
            assert (log_dir / "orders-1").is_dir()


def test_the_first_foreign_files_of_a_partition_are_named(source: Path, log_dir: Path) -> None:
    folder = new_topic(log_dir, "orders-0")
    for name in ("d", "b", "c", "a", "e"):
        (folder / name).write_bytes(b"")
    assert "replace: a, b, c and 2 others; move it away" in problem_of(restored(source, log_dir))


def _file(place: Path) -> None:
    place.write_bytes(b"mine")


def _link_to_a_directory(place: Path) -> None:
    place.symlink_to(new_topic(place.parent.parent, "elsewhere-0"))


def _dead_link(place: Path) -> None:
    place.symlink_to("nowhere")


def _folder(place: Path) -> None:
    place.mkdir()


@each_case("make", (_file, _link_to_a_directory, _dead_link))
def test_a_link_or_a_file_at_a_partitions_place_refuses_the_partition(
    make: Any, tmp_path: Path
) -> None:
    source, log_dir = archived(tmp_path), formatted(tmp_path)
    make(log_dir / "orders-0")
    before = everything_in(log_dir)
    [planned] = [
        one for one in plan_restore(asked(source, log_dir)).partitions if not one.partition
    ]
    summary = restored(source, log_dir)
    assert planned.problem == problem_of(summary)
    assert "orders-0: this is a link or no directory" in problem_of(summary)
    assert before.items() <= everything_in(log_dir).items()
    assert (log_dir / "orders-1").is_dir()


FOREIGN = [
    *((RESTORE_JOURNAL, make) for make in (_folder, _dead_link, _link_to_a_directory)),
    *((RESTORE_STAGING, make) for make in (_file, _dead_link, _link_to_a_directory)),
    (f"{RESTORE_STAGING}/saved.tar", _file),
    (f"{RESTORE_STAGING}/orders-0", _folder),
    (f"{RESTORE_STAGING}/partitions", _link_to_a_directory),
    (f"{RESTORE_STAGING}/partitions/orders-0/mine", _file),
    (f"{RESTORE_STAGING}/partitions/clicks", _folder),
    (f"{RESTORE_STAGING}/partitions/clicks-0/{0:020d}.log", _dead_link),
    (f"{RESTORE_STAGING}/facts/orders-0/mine.json", _file),
    (f"{RESTORE_STAGING}/partitions/orders-0/{0:020d}.log", _file),  # as a restore names it
    (f"{RESTORE_STAGING}/facts/orders-0/{0:020d}.json", _file),
    (f"{RESTORE_STAGING}/replaced/orders-0/partition.metadata", _file),
    (f"{RESTORE_STAGING}/replaced", _folder),
    (f"{RESTORE_STAGING}/{STAGED_RUN}", _file),
]


@each_case(("name", "make"), FOREIGN)
def test_what_is_at_the_places_of_a_restores_own_files_is_not_touched(
    name: Any, make: Any, tmp_path: Path
) -> None:
    source, log_dir = archived(tmp_path), formatted(tmp_path)
    (log_dir / name).parent.mkdir(parents=True, exist_ok=True)
    make(log_dir / name)
    before = everything_in(log_dir)
    for act in (partial(plan_restore, asked(source, log_dir)), partial(restored, source, log_dir)):
        with pytest.raises(RestoreError, match="no restore made") as refused:
            act()
        shown = name.split("/")[1:2] if make is _file else [(log_dir / name).name]
        assert all(part in str(refused.value) for part in shown)
    assert everything_in(log_dir) == before


def test_a_foreign_file_with_the_name_of_a_temporary_file_stays(
    source: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = [
        Path(temporary_of(Location.of(log_dir / name)).path)
        for name in (RESTORE_JOURNAL, *CHECKPOINTS)
    ]
    for path in foreign:
        path.write_bytes(b"mine")
    killed("_place", source, log_dir, monkeypatch)
    abandon(Location.of(log_dir))
    restored(source, log_dir)
    assert sorted(log_dir.rglob("*.tmp")) == sorted(foreign)
    assert {path.read_bytes() for path in foreign} == {b"mine"}


DAMAGE = {
    "cut short": (lambda log: log[:-7], "only the end of a partition's last"),
    "changed": (lambda log: log[:50] + b"?" + log[51:], "CRC"),
}


@each_case(("damage", "problem"), DAMAGE)
def test_damage_before_the_last_segment_refuses_a_partition(
    damage: Any, problem: str, tmp_path: Path
) -> None:
    source, log_dir = archived(tmp_path), formatted(tmp_path)
    log = source / "orders-0" / f"{30:020d}.log"
    log.write_bytes(damage(log.read_bytes()))
    summary = restored(source, log_dir)
    assert problem in problem_of(summary)
    assert not (log_dir / "orders-0").exists()
    assert (log_dir / "orders-1").is_dir()


def test_a_log_that_a_broker_would_rename_into_place_refuses_a_partition(
    source: Path, tmp_path: Path
) -> None:
    first = source / "orders-0" / f"{0:020d}.log"
    first.rename(f"{first}.swap")
    with pytest.warns(UserWarning, match=r"1 of 4 logs could not be read, .*\.log\.swap"):
        build_index(source, tmp_path / "indexes")
    for place in (source, tmp_path / "indexes" / "_catalog"):
        orders, other = restore_archive(place, tmp_path / f"of {place.name}").partitions
        assert f"{first.name}.swap: a broker that starts renames this" in (orders.problem or "")
        assert other.problem is None


def test_a_damaged_end_of_a_tenth_of_the_last_segment_is_cut(source: Path, log_dir: Path) -> None:
    log = source / "orders-0" / f"{60:020d}.log"
    log.write_bytes(log_of(60, 12, leader_epoch=2)[:-7])
    planned = dry_run(source, log_dir)
    summary = restored(source, log_dir)
    [row] = [row for row in summary["partitions"] if row["partition"] == 0]
    assert (row["problem"], row["end_offset"]) == (None, 170)
    assert "are cut, as a broker cuts them" in row["notes"][0]
    assert row["notes"] == planned["partitions"][0]["notes"]
    assert (log_dir / "orders-0" / log.name).read_bytes() == log_of(60, 11, leader_epoch=2)


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def test_a_larger_cut_refuses_the_partition_unless_it_is_allowed(
    source: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """A plan says it, too, with a catalog and without one."""
    cases = {
        "a torn batch of three": (log_of(60, leader_epoch=2)[:-7], 80),
        "a bit of the first batch of a thousand": (flipped(log_of(60, 1000), 80), 60),
        "a compressed log": (gzip.compress(log_of(60)), 60),
    }
    for name, (data, end_offset) in cases.items():
        with subtests.test(name):
            (source / "orders-0" / f"{60:020d}.log").write_bytes(data)
            build_index(source, tmp_path / "indexes", topics=["orders"])
            for number, place in enumerate((source, tmp_path / "indexes" / "_catalog")):
                log_dir = tmp_path / f"{end_offset} {len(data)} {number}"
                planned = restore_archive(place, log_dir, dry_run=True).partitions[0]
                done = restore_archive(place, log_dir, workers=1).partitions[0]
                for row in (planned, done):
                    assert "a broker would cut" in (row.problem or "")
                    assert "give --allow-cut" in (row.problem or "")
                assert ("gzip (1f8b)" in (done.problem or "")) == (name == "a compressed log")
                assert not (log_dir / "orders-0").exists()
                allowed = restore_archive(place, log_dir / "all", allow_cut=True, workers=1)
                assert allowed.partitions[0].end_offset == end_offset


def test_a_partition_without_any_batch_is_refused(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    cases = {
        "gzip": (gzip.compress(log_of(0)), "these look like gzip (1f8b)"),
        "zstd": (bytes.fromhex("28b52ffd") + log_of(0), "these look like zstd (28b52ffd)"),
        "text": (b"offset,key,value\n1,a,b\n" * 20, "these look like text"),
        "zeros": (bytes(1 << 20), "only zeros follow"),
    }
    for name, (data, said) in cases.items():
        with subtests.test(name):
            archive = tmp_path / name
            write_logs(archive / "orders-0", {0: data})
            for allow_cut in (False, True):
                how = {"allow_cut": allow_cut}
                summary = restored(archive, tmp_path / f"{name} {allow_cut}", **how)
                planned = dry_run(archive, tmp_path / "dry", **how)
                assert summary["partitions_restored"] == planned["partitions_restored"] == 0
                for problem in (problem_of(summary), problem_of(planned)):
                    assert "no batch" in problem and "valid" in problem and said in problem


FAR = 2**31 + 10


def test_a_log_whose_offsets_span_2_31_is_split_as_kafka_splits_it(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """`tests/integration/kafka/test_restored_files.py` compares the files with Kafka's."""
    near, far = batch(0) + batch(20), batch(FAR) + batch(FAR + 2**31)
    cases = {
        "a segment before the last": {0: near + far, FAR + 2**31 + 10: batch(FAR + 2**31 + 10)},
        "the last segment": {0: near + far},
        "its first batch is not at its base offset": {0: batch(7) + far},
    }
    for number, (name, logs) in enumerate(cases.items()):
        with subtests.test(name):
            archive = tmp_path / str(number)
            write_logs(archive / "orders-0", logs)
            built = build_index(archive, tmp_path / f"{number} indexes")
            assert built.missing_offsets == 0
            catalog = tmp_path / f"{number} indexes" / "_catalog"
            for place in (archive, catalog):
                log_dir = tmp_path / f"{number} {place.name}"
                [row] = restore_archive(place, log_dir, workers=1).partitions
                assert row.problem is None
                whole = b"".join(logs.values())
                files = files_of(log_dir / "orders-0")
                kept = {name: data for name, data in files.items() if name.endswith(".log")}
                assert b"".join(kept.values()) == whole
                first = int.from_bytes(whole[:8])
                bases = dict.fromkeys((first, FAR, FAR + 2**31, *[b for b in logs if b]))
                assert [int(name[:20]) for name in kept] == list(bases)


def test_records_that_are_missing_after_a_split_log_are_a_hole(tmp_path: Path) -> None:
    logs = {0: batch(0) + batch(FAR), FAR + 15: batch(FAR + 15)}
    write_logs(tmp_path / "archive" / "orders-0", logs)
    built = build_index(tmp_path / "archive", tmp_path / "indexes")
    assert (built.by_hole, built.missing_offsets) == ({"certain": 1}, 5)


def test_what_keeps_a_broker_from_starting_is_named(source: Path, log_dir: Path) -> None:
    """`tests/integration/kafka/test_log_directory.py` has the list. Own partitions are replaced."""
    (log_dir / "lost+found").mkdir()
    (log_dir / "others-0").mkdir()
    (log_dir / "others-0" / "leader-epoch-checkpoint").write_text("garbage")
    new_topic(log_dir, "orders-0")
    (log_dir / "orders-1").mkdir()
    lines = [
        "lost%2Bfound: this directory is no partition",
        "others-0/leader-epoch-checkpoint: line 1: 'garbage' found",
        "no partition.metadata in others-0; a KRaft broker before 3.7.1 refuses to start",
    ]
    for summary in (dry_run(source, log_dir), restored(source, log_dir)):
        for line in lines:
            assert [note for note in summary["notes"] if line in note], line
        assert not [note for note in summary["notes"] if "orders-1" in note]


def test_a_log_that_ends_before_its_log_start_is_refused(source: Path, log_dir: Path) -> None:
    """A broker deletes all its segments. A log that ends there is one without records."""
    (source / "log-start-offset-checkpoint").write_text("0\n2\norders 0 91\norders 1 530\n")
    for summary in (dry_run(source, log_dir), restored(source, log_dir)):
        said = problem_of(summary)
        assert "the log ends at 90, before its log start offset 91; a broker that starts" in said
        assert summary["partitions_restored"] == 1
    assert summary["partitions"][1]["start_offset"] == 530


def test_zeros_of_a_preallocated_log_are_left_out(
    tmp_path: Path, log_dir: Path, subtests: pytest.Subtests
) -> None:
    """Those of a closed one, too, if the next segment begins at its end."""
    zeros = bytes(100_000)
    cases = {
        "the last segment": ({0: log_of(0), 30: log_of(30) + zeros}, 60),
        "a segment before the last": ({0: log_of(0) + zeros, 30: log_of(30)}, 60),
        "the last segment has no batch yet": ({0: log_of(0), 30: zeros}, 30),
        "records are missing after a segment": ({0: log_of(0) + zeros, 40: log_of(40)}, None),
    }
    for number, (name, (logs, end_offset)) in enumerate(cases.items()):
        with subtests.test(name):
            archive = tmp_path / str(number)
            write_logs(archive / "orders-0", logs)
            [row] = restored(archive, log_dir / str(number), is_linked=True)["partitions"]
            assert row["end_offset"] == end_offset
            if end_offset is None:
                assert ONLY_THE_LAST in row["problem"]
                continue
            assert "the last 100,000 bytes are zeros" in row["notes"][0]
            for base, data in logs.items():
                log = log_dir / str(number) / "orders-0" / f"{base:020d}.log"
                assert log.read_bytes() == data.removesuffix(zeros)


def test_missing_offsets_refuse_a_partition(source: Path, log_dir: Path) -> None:
    (source / "orders-0" / f"{30:020d}.log").unlink()
    assert "offsets 30 to 59 are missing" in problem_of(restored(source, log_dir))
    shutil.rmtree(log_dir / "orders-1")
    summary = restored(source, log_dir, allow_holes=True)
    assert summary["partitions_refused"] == 0
    assert "offsets 30 to 59 are missing" in summary["partitions"][0]["notes"][0]


def test_the_replica_with_most_bytes_is_restored(tmp_path: Path, log_dir: Path) -> None:
    write_logs(tmp_path / "archive" / "b1" / "orders-0", {0: log_of(0, 2)})
    write_logs(tmp_path / "archive" / "b2" / "orders-0", {0: log_of(0, 3)})
    [row] = restored(tmp_path / "archive", log_dir)["partitions"]
    assert (row["replica"], row["replicas"], row["end_offset"]) == ("b2", 2, 30)


def test_of_two_topics_with_one_name_the_newest_is_restored(tmp_path: Path) -> None:
    """The older one has more bytes, and a partition that the newest one never had."""
    archive = tmp_path / "archive"
    for log_dir, topic_id, partition, batches in (
        ("b1", OLDER_ID, 0, 3),
        ("b1", OLDER_ID, 1, 1),
        ("b2", TOPIC_ID, 0, 2),
    ):
        folder = write_logs(archive / log_dir / f"orders-{partition}", {0: log_of(0, batches)})
        (folder / "partition.metadata").write_bytes(PartitionMetadata(topic_id).to_bytes())
        if topic_id == OLDER_ID:
            os.utime(folder / f"{0:020d}.log", (0, 0))
    for summary in (
        restored(archive, tmp_path / "data"),
        dry_run(archive, tmp_path / "dry"),
    ):
        [row] = summary["partitions"]
        assert (row["partition"], row["replica"], row["topic_id"]) == (0, "b2", TOPIC_ID)
        [note] = [note for note in summary["notes"] if OLDER_ID in note]
        assert "by the times of its files" in note
        assert "is left out (b1, partitions 0, 1): give --replica" in note
    named = restored(archive, tmp_path / "older", replica="b1")
    assert [row["topic_id"] for row in named["partitions"]] == [OLDER_ID, OLDER_ID]
    with pytest.raises(RestoreError, match=f"an older one with the id {OLDER_ID} is left out"):
        plan_restore(asked(archive, tmp_path / "dry", partitions=frozenset([1])))


def test_the_topic_id_may_be_that_of_a_copy_that_is_not_read(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    folder = write_logs(archive / "b1" / "orders-0", {0: log_of(0, 2)})
    (folder / "partition.metadata").write_bytes(PartitionMetadata(TOPIC_ID).to_bytes())
    write_logs(archive / "b2" / "orders-0", {0: log_of(0, 3)})
    [row] = restored(archive, tmp_path / "data")["partitions"]
    assert (row["replica"], row["replicas"], row["topic_id"]) == ("b2", 2, TOPIC_ID)


def test_a_partition_of_one_of_several_topics_is_refused_if_its_topic_is_not_known(
    tmp_path: Path, log_dir: Path
) -> None:
    archive = tmp_path / "archive"
    for name, topic_id in (("b1", OLDER_ID), ("b2", TOPIC_ID), ("b3", None)):
        folder = write_logs(archive / name / f"orders-{int(topic_id is None)}", {0: log_of(0, 2)})
        if topic_id:
            (folder / "partition.metadata").write_bytes(PartitionMetadata(topic_id).to_bytes())
    summary = restored(archive, log_dir)
    assert (summary["partitions_restored"], summary["partitions_refused"]) == (1, 1)
    assert "its topic id is not known, and there are several topics" in problem_of(summary, 1)


def time_of(offset: int) -> int:
    return T + offset


RANGES = [
    ("from the middle of a segment", {"from_ms": time_of(45)}, [30, 60], 45, 90),
    ("from a segment's first record", {"from_ms": time_of(60)}, [60], 60, 90),
    ("from after the last record", {"from_ms": time_of(500)}, [60], 90, 90),
    ("until the middle", {"until_ms": time_of(45)}, [0, 30], 0, 60),
    ("until a segment's first", {"until_ms": time_of(60)}, [0, 30], 0, 60),
    ("until after the last", {"until_ms": time_of(500)}, [0, 30, 60], 0, 90),
    ("until, cut", {"until_ms": time_of(45), "is_truncated": True}, [0, 30], 0, 40),
    ("between", {"from_ms": time_of(15), "until_ms": time_of(35)}, [0, 30], 15, 60),
    ("from an offset", {"from_offsets": {("orders", 0): 31}}, [30, 60], 31, 90),
    ("from after the end", {"from_offsets": {("orders", 0): 99}}, [60], 90, 90),
]


@each_case(("name", "how", "bases", "start", "end"), RANGES)
def test_a_range(name: str, how: Any, bases: Any, start: int, end: int, tmp_path: Path) -> None:
    source, log_dir = archived(tmp_path), formatted(tmp_path)
    [row] = restored(source, log_dir, partitions=frozenset([0]), **how)["partitions"]
    assert (row["start_offset"], row["end_offset"]) == (start, end)
    logs = sorted(path.name for path in (log_dir / "orders-0").glob("*.log"))
    assert logs == [f"{base:020d}.log" for base in bases]
    starts = log_dir / "log-start-offset-checkpoint"
    wanted = {("orders", 0): start} if start > bases[0] else {}
    assert parse_offset_checkpoint(starts.read_text() if starts.exists() else "") == wanted


def test_a_range_before_the_first_record_is_refused(source: Path, log_dir: Path) -> None:
    summary = restored(source, log_dir, until_ms=1)
    assert summary["partitions_restored"] == 0
    assert "no record is before --until" in problem_of(summary)
    assert sorted(path.name for path in log_dir.iterdir()) == ["meta.properties"]


def test_the_log_start_offset_of_the_source_is_kept(source: Path, log_dir: Path) -> None:
    (source / "log-start-offset-checkpoint").write_text("0\n1\norders 0 35\n")
    [row] = restored(source, log_dir, partitions=frozenset([0]))["partitions"]
    assert row["start_offset"] == 35
    assert (log_dir / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 35\n"


def test_producers_before_the_range_are_known(tmp_path: Path, log_dir: Path) -> None:
    open_there = log_of(0, 1, producer_id=7, base_sequence=0, transactional=True)
    abort = end_txn_marker(10, T + 10, producer_id=7, commit=False)
    directory = write_logs(
        tmp_path / "archive" / "orders-0", {0: open_there, 10: abort + batch(11)}
    )
    restored(tmp_path / "archive", log_dir, from_ms=time_of(12))
    files = files_of(log_dir / "orders-0")
    assert f"{0:020d}.log" not in files
    aborts = TransactionIndex.from_bytes(files[f"{10:020d}.txnindex"], base_offset=10)
    assert [(one.producer_id, one.first_offset, one.last_offset) for one in aborts] == [(7, 0, 10)]
    assert directory.exists()


def test_a_transaction_that_stays_open_is_noted(tmp_path: Path, log_dir: Path) -> None:
    log = log_of(0, 1, producer_id=7, base_sequence=0, transactional=True)
    write_logs(tmp_path / "archive" / "orders-0", {0: log})
    [row] = restored(tmp_path / "archive", log_dir)["partitions"]
    assert "1 transaction open at the end, the first from offset 0 on" in row["notes"][0]


def test_later_leader_epochs_become_the_asked_one(source: Path, log_dir: Path) -> None:
    new_topic(log_dir, "orders-0")
    plain = restored(source, log_dir.with_name("other"))
    assert plain["partitions"][0]["largest_leader_epoch"] == 2
    summary = restored(source, log_dir, leader_epoch=0, is_linked=True)
    assert summary["partitions"][0]["problem"] is None
    files = files_of(log_dir / "orders-0")
    assert files["leader-epoch-checkpoint"] == b"0\n1\n0 0\n"
    for base in (0, 30, 60):
        assert files[f"{base:020d}.log"] == log_of(base, leader_epoch=0)
    assert (source / "orders-0" / f"{30:020d}.log").read_bytes() == log_of(30, leader_epoch=1)


def test_a_new_cluster_gets_no_producers_but_those_with_an_open_transaction(
    tmp_path: Path,
) -> None:
    """It gives their ids again: a new producer's first batch would be taken for a repeat."""
    ended = batch(0, producer_id=0, producer_epoch=0, base_sequence=0)
    is_open = batch(10, producer_id=7, producer_epoch=3, base_sequence=0, transactional=True)
    marker = end_txn_marker(30, T + 30, producer_id=7, producer_epoch=3)
    both = batch(20, producer_id=8, producer_epoch=0, base_sequence=0, transactional=True)
    write_logs(tmp_path / "archive" / "orders-0", {0: ended + is_open, 20: both, 30: marker})
    kept: dict[int | None, dict[int, dict[int, tuple[int, int]]]] = {}
    notes = {}
    for leader_epoch in (None, 0):
        log_dir = tmp_path / f"logs {leader_epoch}"
        summary = restored(tmp_path / "archive", log_dir, leader_epoch=leader_epoch)
        notes[leader_epoch] = [note for note in summary["notes"] if ".snapshot" in note]
        kept[leader_epoch] = {
            offset: {
                one.producer_id: (one.last_sequence, one.first_offset)
                for one in ProducerSnapshot.from_bytes(
                    (log_dir / "orders-0" / f"{offset:020d}.snapshot").read_bytes()
                ).producers
            }
            for offset in (20, 30, 31)
        }
    assert kept[None] == {
        20: {0: (9, -1), 7: (9, 10)},
        30: {0: (9, -1), 7: (9, 10), 8: (9, 20)},
        31: {0: (9, -1), 7: (9, -1), 8: (9, 20)},
    }
    assert kept[0] == {20: {7: (-1, 10)}, 30: {7: (-1, 10), 8: (-1, 20)}, 31: {8: (-1, 20)}}
    assert notes[None] == []
    assert "2 producers left out" in notes[0][0]


def test_a_new_cluster_needs_leader_epoch_0(source: Path, log_dir: Path) -> None:
    new_topic(log_dir, "orders-0")
    [note] = restored(source, log_dir)["notes"]
    assert "replicas do not join: restore with --leader-epoch 0" in note


def test_the_topic_of_metadata_is_left_out(source: Path, log_dir: Path) -> None:
    write_logs(source / "__cluster_metadata-0", {0: log_of(0)})
    summary = restored(source, log_dir)
    assert not (log_dir / "__cluster_metadata-0").exists()
    assert any("__cluster_metadata is left out" in note for note in summary["notes"])
    orders = plan_restore(asked(source, log_dir, topics=("orders",)))
    assert not orders.notes


def test_given_topic_ids(source: Path, log_dir: Path, tmp_path: Path) -> None:
    described = tmp_path / "topics.txt"
    described.write_text(f"Topic: orders\tTopicId: {TOPIC_ID}\tPartitionCount: 2\n")
    ids = load_topic_ids(str(described))
    restored(source, log_dir, topic_ids=ids)
    metadata = (log_dir / "orders-0" / "partition.metadata").read_bytes()
    assert metadata == PartitionMetadata(TOPIC_ID).to_bytes()
    other = log_dir.with_name("other")
    other.mkdir()
    new_topic(other, "orders-0", "AnotherIdAnotherIdAnoA")
    assert "use the id of the cluster" in problem_of(restored(source, other, topic_ids=ids))


WRONG_IDS = [
    ("", "no topic ids found, expected a JSON object"),
    ("{", "expected a JSON object"),
    ('{"orders": "short"}', "expected 22 characters of base64"),
    ('{"a b": "bn9RMmT4REWVDFQzf3IUaQ"}', "expected a name that Kafka allows"),
]


@each_case(("text", "problem"), WRONG_IDS)
def test_wrong_topic_ids(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "ids").write_text(text)
    with pytest.raises(LocationError, match=problem):
        load_topic_ids(str(tmp_path / "ids"))


def test_the_bytes_are_the_same_where_the_kernel_cannot_copy(
    source: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored(source, log_dir.with_name("expected"))

    def refuse(*_: int) -> int:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    restored(source, log_dir)
    expected = log_dir.with_name("expected") / "orders-0"
    assert files_of(log_dir / "orders-0") == files_of(expected)


def test_links_are_made_of_all_logs_but_the_last(source: Path, log_dir: Path) -> None:
    summary = restored(source, log_dir, is_linked=True)
    links = {path.name: path.stat().st_nlink for path in (log_dir / "orders-0").glob("*.log")}
    assert links == {f"{base:020d}.log": count for base, count in ((0, 2), (30, 2), (60, 1))}
    assert summary["bytes_linked"] == 2 * len(log_of(0))


class ElsewhereEngine(LocalEngine):
    """Works as a machine that has another directory at the place of the log directory."""

    def __init__(self, log_dir: Path, there: bytes | None) -> None:
        super().__init__()
        self._shared, self._there = log_dir / RESTORE_STAGING / STAGED_RUN, there

    def run_on_bins(self, *arguments: Any, **how: Any) -> list[Any]:
        run = self._shared.read_bytes()
        self._shared.unlink()
        if self._there is not None:
            self._shared.write_bytes(self._there)
        try:
            return super().run_on_bins(*arguments, **how)
        finally:
            self._shared.write_bytes(run)


@each_case("there", (None, b"0123456789abcdef"))
def test_a_machine_without_this_log_directory_does_no_work(
    there: bytes | None, tmp_path: Path
) -> None:
    source, log_dir = archived(tmp_path), formatted(tmp_path)
    with pytest.raises(RestoreError, match="mounted on all machines that run tasks") as refused:
        restore(asked(source, log_dir), ElsewhereEngine(log_dir, there))
    assert STAGED_RUN in str(refused.value)
    assert not list((log_dir / RESTORE_STAGING).rglob("*.log"))
    assert restored(source, log_dir)["partitions_refused"] == 0, "the same command continues"


def test_only_some_partitions(source: Path, log_dir: Path) -> None:
    restored(source, log_dir, topics=("ord*",), partitions=frozenset([1, 7]))
    assert not (log_dir / "orders-0").exists()
    assert (log_dir / "orders-1").exists()
    with pytest.raises(RestoreError, match="no segment of such a partition"):
        restored(source, log_dir, partitions=frozenset([7]))


def test_a_broker_that_holds_the_lock_refuses_it(source: Path, log_dir: Path) -> None:
    lock = log_dir / ".lock"
    lock.touch()
    with held_by_another(lock), pytest.raises(LockedError, match="stop the broker"):
        restored(source, log_dir)
    assert sorted(path.name for path in log_dir.iterdir()) == [".lock", "meta.properties"]


def test_the_source_and_the_log_directory_are_apart(source: Path) -> None:
    with pytest.raises(LocationError, match="contain one another"):
        restored(source, source / "orders-0")


def test_a_log_directory_that_cannot_be_created(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocationError, match="file/data: the log directory cannot be created"):
        restored(source, tmp_path / "file" / "data")


class Killed(BaseException):
    """Ends a run where SIGKILL would."""


def killed(moment: str, source: Path, log_dir: Path, patch: pytest.MonkeyPatch) -> None:
    """Run a restore up to the named function of its last part."""

    def kill(*_: object) -> None:
        raise Killed

    with patch.context() as context:
        context.setattr(restore_complete, moment, kill)
        with pytest.raises(Killed):
            restored(source, log_dir)


def offsets_in(log_dir: Path) -> dict[tuple[str, int], int]:
    return parse_offset_checkpoint((log_dir / "recovery-point-offset-checkpoint").read_text())


ENDS = {("orders", 0): 90, ("orders", 1): 530}


@each_case("is_removed", (False, True))
@each_case("moment", ("_place", "_update", "remove_staging", "remove"))
def test_a_continued_restore_looks_whether_partitions_are_in_their_places(
    is_removed: bool, moment: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It said `restored`, and nothing was, after `.kip33-restore` had been removed."""
    source, log_dir = archived(tmp_path), formatted(tmp_path)
    killed(moment, source, log_dir, monkeypatch)
    if is_removed:
        shutil.rmtree(log_dir / RESTORE_STAGING, ignore_errors=True)
    summary = dry_run(source, log_dir)
    assert (summary["partitions_restored"], summary["partitions_refused"]) == (2, 0)
    is_continued = not (is_removed and moment == "_place")
    assert bool(summary["notes"] and "continues the" in summary["notes"][0]) == is_continued
    assert restored(source, log_dir)["partitions_restored"] == 2
    assert offsets_in(log_dir) == ENDS
    for base in (0, 30, 60):
        log = (log_dir / "orders-0" / f"{base:020d}.log").read_bytes()
        assert log == log_of(base, leader_epoch=base // 30)
    assert not list(log_dir.glob(".kip33*"))


def test_of_a_removed_folder_only_partitions_in_their_places_are_completed(
    source: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed("remove_staging", source, log_dir, monkeypatch)
    for name in (RESTORE_STAGING, "orders-1"):
        shutil.rmtree(log_dir / name)
    for act in (planned_or_begun, restore):
        summary = act(asked(source, log_dir), LocalEngine())
        assert (summary["partitions_restored"], summary["partitions_there"]) == (1, 1)
        assert problem_of(summary, 0) == "None"
    assert offsets_in(log_dir) == ENDS
    assert not list(log_dir.glob(".kip33*"))


def test_a_partition_that_is_lost_beside_others_ends_the_command(
    source: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed("_place", source, log_dir, monkeypatch)
    (log_dir / RESTORE_STAGING / "partitions" / "orders-1" / f"{500:020d}.log").write_bytes(b"")
    before = everything_in(log_dir)
    for act in (planned_or_begun, restore):
        with pytest.raises(RestoreError, match="orders-1: neither staged in"):
            act(asked(source, log_dir), LocalEngine())
    assert everything_in(log_dir) == before
    assert abandon(Location.of(log_dir)).partitions_removed == 2
    assert restored(source, log_dir)["partitions_restored"] == 2


def test_a_restore_is_abandoned_before_its_journal_and_after_its_end(
    source: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything_in(log_dir)
    with monkeypatch.context() as patch:
        patch.setattr(restore_apply, "begin_restore_journal", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            restored(source, log_dir)
    assert (log_dir / RESTORE_STAGING).is_dir()
    assert abandon(Location.of(log_dir)).partitions_removed == 0
    assert everything_in(log_dir) == before
    killed("remove_staging", source, log_dir, monkeypatch)
    shutil.rmtree(log_dir / RESTORE_STAGING)  # from now on a broker may start
    done = abandon(Location.of(log_dir))
    assert (done.partitions_removed, done.partitions_in_place) == (0, ("orders-0", "orders-1"))
    assert (log_dir / "orders-0").is_dir()
    assert not list(log_dir.glob(".kip33*"))


@each_case("gone", ("partitions", "facts", "replaced/orders-0", STAGED_RUN))
def test_a_restore_is_abandoned_while_its_folder_was_being_removed(
    gone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, log_dir = archived(tmp_path), formatted(tmp_path)
    new_topic(log_dir, "orders-0")
    before = everything_in(log_dir)
    killed("remove_staging", source, log_dir, monkeypatch)
    part = log_dir / RESTORE_STAGING / gone
    part.unlink() if part.is_file() else shutil.rmtree(part)
    assert abandon(Location.of(log_dir)).partitions_removed == 2
    if gone == "replaced/orders-0":  # a broker makes it again
        shutil.rmtree(new_topic(log_dir, "orders-0"))
        before = {path: data for path, data in before.items() if "orders-0" not in path}
    assert everything_in(log_dir) == before | dict.fromkeys(CHECKPOINTS, b"0\n0\n")


def test_an_abandoned_restore_leaves_no_temporary_file(
    source: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything_in(log_dir)
    killed("_place", source, log_dir, monkeypatch)
    run = (log_dir / RESTORE_STAGING / STAGED_RUN).read_text()
    with temporary_files_of(run):
        for name in (RESTORE_JOURNAL, *CHECKPOINTS):
            Path(temporary_of(Location.of(log_dir / name)).path).touch()
    abandon(Location.of(log_dir))
    assert everything_in(log_dir) == before


def _journal(**fields: Any) -> Callable[[Path], None]:
    def edit(log_dir: Path) -> None:
        place = log_dir / RESTORE_JOURNAL
        record = json.loads(place.read_text())
        record["partitions"][0].update(fields)
        place.write_text(json.dumps(with_content_id(record)))

    return edit


def _edited(log_dir: Path) -> None:
    place = log_dir / RESTORE_JOURNAL
    place.write_text(place.read_text().replace('"end_offset": 90', '"end_offset": 91'))


def _copied(log_dir: Path) -> None:
    log_dir.rename(log_dir.with_name("saved"))
    shutil.copytree(log_dir.with_name("saved"), log_dir)


def _of_another_run(log_dir: Path) -> None:
    (log_dir / RESTORE_STAGING / STAGED_RUN).write_text("0123456789abcdef")


def _empty_object(log_dir: Path) -> None:
    (log_dir / RESTORE_JOURNAL).write_text("{}")


WRONG_JOURNALS = [
    (_empty_object, "is not the journal of a restore"),
    (_edited, "the checksum is wrong"),
    (_copied, "it was written in another directory, file:"),
    (_of_another_run, "is of run '0123456789abcdef', not"),
    (_journal(name="../orders-0"), r"'\.\./orders-0' found, expected the name of a partition"),
    (_journal(name="orders-7"), "'orders-7' found, expected the name of a partition"),
    (_journal(topic="../orders"), "no partition of Kafka: topic '../orders'"),
]


@each_case(("change", "message"), WRONG_JOURNALS)
def test_a_journal_is_believed_only_where_it_was_written(
    change: Any, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source, log_dir = archived(tmp_path), formatted(tmp_path)
    killed("_place", source, log_dir, monkeypatch)
    change(log_dir)
    before = everything_in(log_dir)
    for act in (
        partial(dry_run, source, log_dir),
        partial(restored, source, log_dir),
        partial(abandon, Location.of(log_dir)),
    ):
        with pytest.raises(RestoreError, match=message):
            act()
    assert everything_in(log_dir) == before


@pytest.mark.parametrize("act", [restored, dry_run])
def test_a_damaged_checkpoint_is_found_before(source: Path, log_dir: Path, act: Any) -> None:
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\norders\n")
    with pytest.raises(RestoreError, match="expected TOPIC PARTITION OFFSET"):
        act(source, log_dir)
    (log_dir / "replication-offset-checkpoint").unlink()
    (log_dir / "replication-offset-checkpoint").symlink_to("nowhere")
    with pytest.raises(RestoreError, match="a link that leads to no file is there"):
        act(source, log_dir)
    assert sorted(path.name for path in log_dir.iterdir()) == [
        "meta.properties",
        "replication-offset-checkpoint",
    ]


def test_a_snapshot_beside_the_first_log_is_where_producers_begin(
    tmp_path: Path, log_dir: Path
) -> None:
    directory = write_logs(tmp_path / "archive" / "orders-0", {500: log_of(500)})
    state = ProducerState(7, 0, 41, 499, 0, T, -1, -1)
    (directory / f"{500:020d}.snapshot").write_bytes(ProducerSnapshot((state,)).to_bytes())
    restored(tmp_path / "archive", log_dir)
    at_end = (log_dir / "orders-0" / f"{530:020d}.snapshot").read_bytes()
    assert ProducerSnapshot.from_bytes(at_end).producers == (state,)


def test_a_snapshot_of_tiered_storage_has_the_producers_at_the_end_of_its_segment(
    tmp_path: Path, log_dir: Path
) -> None:
    """So it is not where the producers of that segment begin: a transaction may end in it."""
    topic_id, of_segment = TOPIC_ID, uuid22("segment")
    transactional = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    begun = batch(0, transactional=True, **transactional)
    aborted = end_txn_marker(10, 5, producer_id=7, commit=False)
    directory = tmp_path / "archive" / f"orders-0-{topic_id}"
    directory.mkdir(parents=True)
    for base, data in {0: begun, 10: aborted + log_of(11)}.items():
        (directory / f"{base:020d}-{of_segment}.log").write_bytes(data)
    at_end = ProducerState(7, 0, 9, 9, 0, T, -1, -1)
    snapshot = directory / f"{10:020d}-{of_segment}.snapshot"
    snapshot.write_bytes(ProducerSnapshot((at_end,)).to_bytes())

    restored(tmp_path / "archive", log_dir, layout="local-tiered", from_offsets={("orders", 0): 10})

    index = (log_dir / "orders-0" / f"{10:020d}.txnindex").read_bytes()
    [entry] = TransactionIndex.from_bytes(index, base_offset=10).entries
    assert (entry["producer_id"], entry["first_offset"]) == (7, 0)
