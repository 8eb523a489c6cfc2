"""`kip33 repair`: it shows a plan, and --apply sets index files right."""

import os
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kip33.indexing.by_path import build_time_index
from tests.archive.test_broker_locks import held_by_another
from tests.builders.changing_archive import batches
from tests.builders.segment_builder import TRANSACTIONAL, Record, end_txn_marker, segment, v2_batch
from tests.cli.console import Command, Finished

INTERVAL = 200
ASKED = ("--index-interval-bytes", INTERVAL)
INVALID_LOG = v2_batch(5, [Record(1)])  # in a segment whose base offset is above


class LogDir(NamedTuple):
    """A stopped broker's log directory, in the command's working directory."""

    path: Path

    def log(self, name: str) -> Path:
        partition, base_offset = name.split("/")
        return self.path / partition / f"{int(base_offset):020d}.log"

    def add(self, name: str, data: bytes) -> Path:
        """Write a log and the index files that recovery leaves of it."""
        log = self.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(data)
        built = build_time_index(str(log), index_interval_bytes=INTERVAL)
        for suffix, index in (
            (".timeindex", built.time_index_data),
            (".index", built.offset_index_data),
        ):
            if index is not None:
                log.with_suffix(suffix).write_bytes(index)
        return log

    def files(self) -> dict[str, bytes]:
        return {
            str(file.relative_to(self.path)): file.read_bytes()
            for file in sorted(self.path.rglob("*"))
            if file.is_file()
        }


@pytest.fixture
def log_dir(tmp_path: Path, command: Command) -> LogDir:
    log_dir = LogDir(tmp_path / "logs")
    log_dir.add("orders-0/0", batches(0, 20))
    log_dir.add("orders-0/40", batches(40, 20))
    log_dir.add("orders-1/0", batches(0, 20))
    (log_dir.path / "meta.properties").touch()
    return log_dir


def rows_of(done: Finished) -> dict[str, dict[str, Any]]:
    assert done.exit_code == 0, done
    return {f"{row['topic']}-{row['partition']}/{row['base_offset']}": row for row in done.lines}


def damage_one_byte(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[len(data) // 2 - 3] ^= 1  # the middle is the border of two batches
    log.write_bytes(data)


def remove(log: Path, suffix: str) -> None:
    log.with_suffix(suffix).unlink()


def flip(log: Path, suffix: str) -> None:
    file = log.with_suffix(suffix)
    data = bytearray(file.read_bytes())
    data[3] ^= 0x40
    file.write_bytes(data)


DAMAGES: list[tuple[str, Callable[[Path], object], tuple[str, str]]] = [
    ("no .timeindex", lambda log: remove(log, ".timeindex"), ("write", "keep")),
    ("a wrong .timeindex", lambda log: flip(log, ".timeindex"), ("write", "keep")),
    ("empty", lambda log: log.with_suffix(".timeindex").write_bytes(b""), ("write", "keep")),
    ("a wrong .index", lambda log: flip(log, ".index"), ("keep", "write")),
    ("half an entry", lambda log: log.with_suffix(".index").write_bytes(b"12"), ("keep", "write")),
    ("no .index", lambda log: remove(log, ".index"), ("broker", "broker")),
    ("a damaged log", damage_one_byte, ("broker", "remove")),
]


def test_a_plan_names_each_damage_and_apply_repairs_it(log_dir: LogDir, command: Command) -> None:
    """Each damage is in a partition of its own."""
    logs = [log_dir.add(f"damaged-{n}/0", batches(0, 20)) for n in range(len(DAMAGES))]
    right = log_dir.files()
    for log, (_, damage, _) in zip(logs, DAMAGES, strict=True):
        damage(log)
    damaged = log_dir.files()

    planned = rows_of(command("repair", "logs", *ASKED, "--format", "jsonl"))
    assert {name: (row["time_index"], row["offset_index"]) for name, row in planned.items()} == {
        f"damaged-{n}/0": actions for n, (_, _, actions) in enumerate(DAMAGES)
    }
    assert all(row["why"] for row in planned.values())
    [cut] = [row for row in planned.values() if row["cut_bytes"]]
    assert f"cuts {cut['cut_bytes']} damaged bytes of the log" in cut["why"]
    assert log_dir.files() == damaged, "a plan changes nothing"

    applied = rows_of(command("repair", "logs", *ASKED, "--apply", "--format", "jsonl"))
    assert applied.keys() == planned.keys()
    expected = dict(damaged)
    for n, (_, _, actions) in enumerate(DAMAGES):
        is_changed = bool({"write", "remove"} & {*actions})
        assert applied[f"damaged-{n}/0"]["outcome"] == ("done" if is_changed else None)
        for suffix, action in zip((".timeindex", ".index"), actions, strict=True):
            name = f"damaged-{n}/{0:020d}{suffix}"
            if action == "write":
                expected[name] = right[name]
            elif action == "remove":
                del expected[name]
    assert log_dir.files() == expected

    again = command("repair", "logs", *ASKED, "--fail-on", "damaged", "--format", "json")
    assert again.exit_code == 0
    assert again.lines[0]["findings"] == []


ABORTED = segment(
    [
        v2_batch(0, [Record(1)], attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0),
        end_txn_marker(1, 2, producer_id=7, commit=False),
    ]
)
ABORT = struct.pack(">hqqqq", 0, 7, 0, 1, 2)


def test_a_segment_whose_aborts_are_not_known_is_left_to_the_broker(
    log_dir: LogDir, command: Command
) -> None:
    lost = (None, b"", bytes(34), ABORT[:-1], ABORT * 2)
    logs = [log_dir.add(f"payments-{n}/0", ABORTED) for n in range(1 + len(lost))]
    for log, data in zip(logs, (ABORT, *lost), strict=True):
        if data is not None:
            log.with_suffix(".txnindex").write_bytes(data)
    rows = rows_of(command("repair", "logs", *ASKED, "--apply", "--format", "jsonl"))
    found = {name: (row["time_index"], row["offset_index"]) for name, row in rows.items()}
    assert found == {f"payments-{n}/0": ("broker", "remove") for n in range(1, len(logs))}
    assert [log.with_suffix(".index").exists() for log in logs] == [True, *[False] * len(lost)]


def test_a_build_in_place_names_lost_aborts_until_they_are_repaired(
    log_dir: LogDir, command: Command
) -> None:
    """A broker wrote the index files; a build without --offset-index counts the lost one."""
    log = log_dir.add("payments-0/0", ABORTED)
    log.with_suffix(".txnindex").write_bytes(ABORT)
    build = ("build", "logs", "--in-place", "--catalog", "catalog", "--format", "json")
    assert command(*build).lines[0]["aborts_hidden"] == 0

    log.with_suffix(".txnindex").unlink()
    found = command(*build, "--full")
    assert found.lines[0]["aborts_hidden"] == 1
    [warning] = [line for line in found.stderr.splitlines() if "txnindex" in line]
    assert "run kip33 repair --apply for its log directory" in warning
    assert "aborts hidden" in command(*build[:-1], "table").stdout

    assert command("repair", "logs", *ASKED, "--apply").exit_code == 0
    assert not log.with_suffix(".index").exists()  # a broker that starts writes all three
    assert command(*build).lines[0]["aborts_hidden"] == 0


def test_what_keeps_a_broker_from_starting_is_named(log_dir: LogDir, command: Command) -> None:
    (log_dir.path / "lost+found").mkdir()
    (log_dir.path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 999999\n")
    finished = command("repair", log_dir.path, "--format", "json")
    assert "lost%2Bfound: this directory is no partition" in finished.stderr
    assert "before its log start offset 999999; a broker that starts deletes" in finished.stderr
    [answer] = finished.lines
    assert len(answer["on_start"]) == 2
    assert not [row for row in answer["repairs"] if "a starting broker writes" in row["why"]]


def test_a_log_that_no_broker_recovers_is_left_and_named(log_dir: LogDir, command: Command) -> None:
    log = log_dir.add("orders-1/40", INVALID_LOG)
    log.with_suffix(".index").write_bytes(b"")
    before = log_dir.files()
    done = command("repair", "logs", *ASKED, "--apply", "--fail-on", "by-hand")
    assert done.exit_code == 3
    assert log_dir.files() == before
    assert "restore the log from a replica or a backup" in done.stdout
    assert "Warning: some segments must be repaired by hand" in done.stderr


def test_equal_reasons_are_one_row_and_an_archive_has_its_own_way(
    log_dir: LogDir, command: Command
) -> None:
    """Those to repair by hand are last, and the command that the line names leaves only them."""
    invalid = log_dir.add("a-0/40", INVALID_LOG)
    for index in (*log_dir.path.rglob("*.index"), invalid.with_suffix(".timeindex")):
        index.unlink(missing_ok=True)
    assert "--in-place" not in command("repair", "logs", *ASKED).stderr, "a broker's own"
    (log_dir.path / "meta.properties").unlink()
    done = command("repair", "logs", *ASKED)
    rows = [line.split("│")[1:4] for line in done.stdout.splitlines() if ".log" in line]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["3", f"orders-0/{0:020d}.log", "ok"],
        ["1", f"a-0/{40:020d}.log", "invalid"],
    ]
    [way] = re.findall(r"no broker will open it, kip33 (build .*) CATALOG writes", done.stderr)
    assert command(*way.split(), "catalog", *ASKED).exit_code == 0
    [left] = command("repair", "logs", *ASKED, "--format", "json").lines[0]["repairs"]
    assert left["log_uri"] == invalid.as_uri()


def test_a_topics_own_settings_decide_what_is_written(log_dir: LogDir, command: Command) -> None:
    Path("topics.txt").write_text(
        "Topic: orders\tPartitionCount: 2\tReplicationFactor: 1\t"
        f"Configs: index.interval.bytes={INTERVAL}\n"
    )
    right = log_dir.files()
    remove(log_dir.log("orders-0/0"), ".timeindex")
    done = command("repair", "logs", "--kafka-configs", "topics.txt", "--apply")
    assert done.exit_code == 0
    assert log_dir.files() == right


def test_a_broker_that_runs_refuses_in_one_line(log_dir: LogDir, command: Command) -> None:
    remove(log_dir.log("orders-0/0"), ".timeindex")
    lock = log_dir.path / ".lock"
    lock.touch()
    before = log_dir.files()
    for more in ((), ("--apply",)):
        with held_by_another(lock):
            done = command("repair", "logs", *ASKED, *more)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "logs/.lock: a broker or another run of kip33 holds the lock" in done.stderr
        assert log_dir.files() == before


def test_a_file_that_cannot_be_written_is_a_row_that_says_so(
    log_dir: LogDir, command: Command
) -> None:
    log = log_dir.log("orders-0/0")
    remove(log, ".timeindex")
    log.with_suffix(".timeindex").mkdir()
    (log.with_suffix(".timeindex") / "x").touch()
    for options, exit_code in (((), 1), (("--fail-on", "failed"), 3)):
        done = command("repair", "logs", *ASKED, "--apply", *options, "--format", "jsonl")
        assert done.exit_code == exit_code
        (row,) = done.lines
        assert row["outcome"].startswith("failed: ")
        assert "Warning: some repairs failed; their rows say why" in done.stderr


def test_nothing_behind_a_link_is_repaired(
    log_dir: LogDir, command: Command, tmp_path: Path
) -> None:
    log = log_dir.log("orders-0/0")
    remove(log, ".timeindex")
    log.parent.rename(tmp_path / "outside")
    log.parent.symlink_to(tmp_path / "outside")
    before = log_dir.files()
    done = command("repair", "logs", *ASKED, "--apply", "--format", "jsonl")
    assert done.exit_code == 0
    assert log_dir.files() == before
    assert {row["time_index"] for row in done.lines} == {"by hand"}
    for row in done.lines:
        assert f"{log.parent.as_uri()} is a link: repair its target" in row["why"]


@pytest.mark.parametrize(
    ("is_brokers", "days", "goes"),
    [
        pytest.param(True, 0, True, id="no other run can be there"),
        pytest.param(False, 0, False, id="another run may be there"),
        pytest.param(False, 2, True, id="of a run that is dead"),
    ],
)
def test_temporary_files_of_a_killed_run_are_removed(
    log_dir: LogDir, command: Command, is_brokers: bool, days: int, goes: bool
) -> None:
    if not is_brokers:
        (log_dir.path / "meta.properties").unlink()
    log = log_dir.log("orders-0/0")
    ours = log.with_name(f".{0:020d}.timeindex.{'0a' * 16}.tmp")
    others = [log.with_name(name) for name in (f".{0:020d}.timeindex.0a.tmp", "a.tmp")]
    for path in (ours, *others):
        path.write_bytes(b"cut")
        modified = time.time() - days * 86_400
        os.utime(path, (modified, modified))
    assert command("repair", "logs", *ASKED).exit_code == 0
    assert ours.exists(), "only --apply changes anything"
    [row] = command("repair", "logs", *ASKED, "--apply", "--format", "json").lines
    assert (ours.exists(), row["unfinished_removed"]) == (not goes, int(goes))
    assert all(path.exists() for path in others)


def test_a_cleaned_log_without_its_time_index_is_named(log_dir: LogDir, command: Command) -> None:
    log = log_dir.log("orders-0/0")
    for suffix in (".log", ".index"):
        file = log.with_suffix(suffix)
        file.rename(file.with_name(file.name + ".swap"))
    remove(log, ".timeindex")
    done = command("repair", "logs", *ASKED, "--format", "json")
    assert done.exit_code == 0
    assert done.lines[0]["passed_over"] == {
        ".swap files": 1,
        ".log.swap files without their .timeindex.swap": 1,
    }
    assert "start the broker, stop it, and run the repair" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
def test_written_files_belong_to_the_owner_of_the_log(log_dir: LogDir, command: Command) -> None:
    log = log_dir.log("orders-0/0")
    remove(log, ".timeindex")
    os.chown(log, 4711, 4712)
    log.chmod(0o640)
    assert command("repair", "logs", *ASKED, "--apply").exit_code == 0
    status = log.with_suffix(".timeindex").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (4711, 4712, 0o640)
