"""What records of a week cost: five minutes of it, and records per minute of a day.

A partition has a segment for each hour, with batches of 2 KiB, one a second. Bytes are those that
the system has handed to this process: its reads are counted around each question.
"""

import json
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import kip33
from tests.benchmarks.commands import KIP33
from tests.benchmarks.headers_only import bytes_read
from tests.benchmarks.page import Section, tell
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.segments import (
    START_MS,
    STEP_MS,
    V2_LAYOUT,
    Kind,
    full_batch,
    write_segment,
)
from tests.benchmarks.timing import Contestant, clocked, take_turns, times_faster
from tests.builders.segment_builder import Record, v2_batch

ROUNDS: Final = 3
HOURS: Final = 7 * 24
QUICK_HOURS: Final = 24
HOUR_MS: Final = 3_600_000
BATCHES_OF_AN_HOUR: Final = HOUR_MS // STEP_MS
BATCH_BYTES: Final = 2 << 10
MINUTES: Final = 5


def stamped_batch(chance: random.Random) -> bytes:
    """Return a batch whose broker set the timestamps: LogAppendTime."""
    values = [chance.randbytes(100) for _ in range(RECORDS)]
    records = [Record(START_MS, value=value) for value in values]
    return v2_batch(0, records, log_append_time=START_MS, crc=0)


RECORDS, created_batch = full_batch(BATCH_BYTES)
WEEK: Final = Kind("week", "CreateTime", 0, V2_LAYOUT, RECORDS, created_batch)
STAMPED: Final = Kind("stamped", "LogAppendTime", 0, V2_LAYOUT, RECORDS, stamped_batch)


class Archive(NamedTuple):
    """A partition of some hours, and its catalog."""

    kind: Kind
    hours: int
    logs: Path
    catalog: Path

    @property
    def records(self) -> int:
        return self.hours * BATCHES_OF_AN_HOUR * RECORDS


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure all questions; return this part of the page."""
    hours = QUICK_HOURS if quick else HOURS
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=data))
    try:
        week = archive_of(WEEK, hours, scratch)
        found = [
            *five_minutes(week),
            *per_minute(archive_of(STAMPED, QUICK_HOURS, scratch)),
        ]
    finally:
        shutil.rmtree(scratch)
    return [Section("Records of a week", [], found)]


def archive_of(kind: Kind, hours: int, folder: Path) -> Archive:
    """Return an archive with both indexes and a catalog."""
    tell(f"{hours} hours of {kind.title}")
    logs, indexes = folder / kind.name, folder / f"{kind.name}-indexes"
    size_bytes = BATCHES_OF_AN_HOUR * len(kind.batch(random.Random(0)))
    for number in range(hours):
        write_segment(kind, logs, size_bytes=size_bytes, number=number)
    time.sleep(2)  # a log that is younger would be read again by a later build
    subprocess.run(
        [KIP33, "build", logs, "--index-dir", indexes, "--offset-index", "--format", "json"],
        stdout=subprocess.PIPE,
        check=True,
    )
    return Archive(kind, hours, logs, indexes / "_catalog")


def five_minutes(week: Archive) -> Iterator[Ratio]:
    """Yield the share of bytes that are read for five minutes, and the time against a full scan."""
    middle = START_MS + week.hours // 2 * HOUR_MS
    times = {"start_time": middle, "end_time": middle + MINUTES * 60_000}
    columns = ["offset", "timestamp", "key", "value"]
    expected = MINUTES * 60_000 // STEP_MS * RECORDS

    def asked(**limits: int) -> int:
        return sum(
            rows.num_rows for rows in kip33.read_arrow(week.catalog, columns=columns, **limits)
        )

    question = partial(asked, disorder=STEP_MS, **times)
    full = partial(asked)
    raced = take_turns(
        {
            "question": Contestant(clocked(lambda: require(question(), expected)), 1, 1),
            "full": Contestant(clocked(lambda: require(full(), week.records)), 1, 1),
        },
        rounds=ROUNDS,
    )
    work = f"{MINUTES} minutes out of {week.hours} hours, keys and values"
    share = bytes_of(question) / bytes_of(full)
    yield Ratio(work, "bytes of a full scan", 100 * share, "% of bytes", 1.0)
    yield Ratio(work, "a full scan", times_faster(raced["question"], raced["full"]))


def per_minute(day: Archive) -> Iterator[Ratio]:
    """Yield the time of records per minute from headers, against reading every record."""
    command = [KIP33, "count", day.catalog, "--topic", day.kind.name, "--per", "1m"]

    def counted() -> None:
        done = subprocess.run([*command, "--format", "jsonl"], capture_output=True, check=True)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        require(sum(row["records"] for row in rows), day.records)
        if len(rows) - day.hours * 60 not in (0, 1):  # the day begins within a minute
            raise ValueError(f"{len(rows)} minutes found")

    def read_all() -> None:
        rows = kip33.read_arrow(day.catalog, columns=["timestamp", "value"])
        require(sum(batch.num_rows for batch in rows), day.records)

    raced = take_turns(
        {
            "count": Contestant(clocked(counted), 1, 1),
            "read": Contestant(clocked(read_all), 1, 1),
        },
        rounds=ROUNDS,
    )
    work = f"`kip33 count --per 1m` of {day.hours} hours from headers, whole command"
    yield Ratio(work, "", raced["count"].median, "s")
    yield Ratio(work, "reading all records in Python", times_faster(raced["count"], raced["read"]))


def bytes_of(question: Callable[[], object]) -> int:
    """Return how many bytes this process reads during a question."""
    before = bytes_read()
    question()
    return bytes_read() - before


def require(found: int, expected: int) -> None:
    """Raise if an answer is not complete."""
    if found != expected:
        raise ValueError(f"{found} found, {expected} expected")
