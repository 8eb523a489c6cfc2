"""A build that takes small logs together leaves the files and rows of one that takes each alone."""

import os
import shutil
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kip33.builds import small_logs
from kip33.builds import task as build_task
from kip33.builds.commit import begin_build, commit_build
from kip33.formats.native import is_ready
from kip33.rules.group_scan import scan_logs
from kip33.stores import files
from tests.builders.changing_archive import ChangingArchive, batches
from tests.faults.builds import build_here
from tests.faults.traces import record
from tests.indexing.test_group_scan import random_logs

pytestmark = pytest.mark.skipif(
    not is_ready(scan_logs), reason="there is no shared library for this CPU: logs are not grouped"
)
ALONE = 1 << 40  # more segments than any bin has


def write_archive(archive: ChangingArchive, seed: int) -> None:
    """Write logs of all kinds, and what else a build may find."""
    random = Random(seed)
    for number, log in enumerate(random_logs(random, 80)):
        archive.write(archive.log(f"t{number % 3}-{number}"), log)
    archive.write(archive.log("t0-0", 200), b"")
    archive.write(archive.log("t0-0", 300), bytes(100))
    archive.write(archive.log("t0-0", 400), batches(400, 5) + bytes(50))
    os.mkfifo(archive.log("t0-0", 500))
    archive.touch(archive.log("t0-0", 500))
    archive.log("t0-0", 600).symlink_to(archive.log("t1-1"))
    archive.log("t2-9", 0).parent.mkdir()


def built(
    folder: Path, seed: int, at_least: int, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Any:
    """Build a new archive as one bin; return files and rows, and the figures of the bin."""
    shutil.rmtree(folder, ignore_errors=True)
    archive = ChangingArchive(folder, in_place=options.get("in_place", False))
    write_archive(archive, seed)
    for foreign in (archive.index("t1-1"), archive.index("t2-2").with_suffix(".index")):
        foreign.parent.mkdir(parents=True, exist_ok=True)
        foreign.write_bytes(b"not of kip33")
    monkeypatch.setattr(small_logs, "LEAST_ROWS", at_least)
    plan = archive.plan(**options)
    begun = begin_build(plan)
    result = build_task.build_bin(plan.build, begun.draft.staging, 0, plan.files)
    commit_build(begun, [result])
    return archive.outcome(), result[1:3], result[4:]


@pytest.mark.parametrize(
    "options",
    [{}, {"offset_index": True}, {"in_place": True}, {"in_place": True, "offset_index": True}],
    ids=["time indexes", "both indexes", "in place", "both in place"],
)
@pytest.mark.parametrize("seed", range(2))
def test_files_and_rows_are_those_of_logs_taken_alone(
    seed: int, options: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_task, "GROUP_ROWS", 30)
    monkeypatch.setattr(small_logs, "SCAN_BYTES", 10_000)
    together = built(tmp_path / "archive", seed, 1, monkeypatch, **options)
    assert together == built(tmp_path / "archive", seed, ALONE, monkeypatch, **options)
    statuses = Counter(row["status"] for row in together[0].rows)
    assert statuses["ok"] > 30
    assert {"truncated", "unreadable"} <= statuses.keys()


def test_a_log_that_is_not_as_listed_is_left_to_the_build_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One was removed, one has grown, one cannot be read: each has the row it has alone."""
    archive = ChangingArchive(tmp_path)
    for base_offset in (0, 100, 200, 300):
        archive.write(archive.log("a-0", base_offset), batches(base_offset, 5))
    monkeypatch.setattr(small_logs, "LEAST_ROWS", 1)
    read = files._read_small

    def change_then_read(directory: int, name: str, room: memoryview) -> int:
        if name.endswith("000.log"):
            archive.log("a-0", 0).unlink()
        if name.endswith("100.log"):
            with archive.log("a-0", 100).open("ab") as log:
                log.write(batches(110, 1))
        return read(directory, name, room)

    monkeypatch.setattr(files, "_read_small", change_then_read)
    archive.build()
    statuses = {row["base_offset"]: row["status"] for row in archive.rows()}
    assert statuses == {0: "unreadable", 100: "ok", 200: "ok", 300: "ok"}
    assert not archive.index("a-0", 0).exists()


GROUPED = """
import sys
from kip33.builds import small_logs
from kip33.builds import task as build_task
from kip33.builds.commit import begin_build, commit_build
from tests.faults.builds import build_here
small_logs.LEAST_ROWS = 1
build_here(sys.argv[1], sys.argv[2], now_ms=1_800_000_000_000, fsync=True)
"""


def test_each_index_file_of_a_group_is_flushed_before_the_rows_that_name_it(tmp_path: Path) -> None:
    archive = ChangingArchive(tmp_path)
    for base_offset in (0, 100, 200):
        archive.write(archive.log("a-0", base_offset), batches(base_offset, 5))
    indexes = tmp_path / "indexes"
    events = record(GROUPED, archive.source, indexes, root=indexes)
    not_safe: set[str] = set()
    files = parts = 0
    for event in events:
        if event.what == "flush":
            not_safe.discard(event.path)
        elif event.what == "rename" and event.new.endswith(".timeindex"):
            not_safe |= {event.new, os.path.dirname(event.new)}  # noqa: PTH120
            files += 1
        elif event.what == "rename" and "/part-" in event.new:
            assert not not_safe
            parts += 1
    assert files == 3
    assert parts


def test_few_segments_are_built_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading the code for groups costs more than a few segments save."""
    archive = ChangingArchive(tmp_path)
    archive.write(archive.log("a-0"), batches(0, 5))
    monkeypatch.setattr(small_logs, "SmallLogs", None)
    build_here(archive.source, tmp_path / "indexes", now_ms=archive.now_ms)
