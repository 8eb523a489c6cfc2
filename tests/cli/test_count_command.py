"""`kip33 count`: records per period, as a table, JSON lines and CSV."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kip33.demo import START_MS
from kip33.records import counting
from tests.builders.segment_builder import Record, v1_message, v2_batch, wrapper
from tests.cli.console import Command, Finished, file_named, result_in
from tests.cli.test_records_command import rows_of
from tests.long_forms import one_in, seeds

LOG = f"{0:020d}.log"
HOUR_MS = 3_600_000


def warnings_of(done: Finished) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("Warning: ")]


def test_records_per_day_of_the_demo_archive(command: Command) -> None:
    done = command("count", "archive", "--per", "1d")

    assert done.exit_code == 0
    rows = [line.strip("│ ").split("│") for line in done.stdout.splitlines()[3:-2]]
    assert [tuple(cell.strip() for cell in row) for row in rows] == [
        ("audit.v1", "2023-11-13T00:00:00.000Z", "180"),
        ("audit.v1", "-", "30"),
        ("clicks", "2023-11-14T00:00:00.000Z", "6,980"),
        ("metrics", "-", "1"),
        ("orders", "2023-11-14T00:00:00.000Z", "4,000"),
        ("orders", "2023-11-15T00:00:00.000Z", "4,000"),
        ("orders", "2023-11-16T00:00:00.000Z", "500"),
        ("payments", "2023-11-14T00:00:00.000Z", "180"),
    ]
    assert done.stdout.splitlines()[-1].startswith(
        "15,871 records in 8 periods; 3 problems in the logs; read in "
    )
    assert done.stderr.count("Warning: ") == len(done.stderr.splitlines()) == 3


def test_rows_for_programs(command: Command) -> None:
    times = [0, 59_999, 60_000, -1, 7_199_999]
    log = file_named(LOG, v2_batch(0, [Record(time, b"k", b"v") for time in times]))

    done = command("count", log, "--per", "1m", "--format", "jsonl", "--result-line")
    table = command("count", log, "--per", "1m", "--format", "csv")

    def row(start: int | None, time: str | None, records: int) -> dict[str, Any]:
        return {"topic": None, "period_start": start, "time": time, "records": records}

    assert rows_of(done) == [
        row(0, "1970-01-01T00:00:00.000Z", 2),
        row(60_000, "1970-01-01T00:01:00.000Z", 1),
        row(7_140_000, "1970-01-01T01:59:00.000Z", 1),
        row(None, None, 1),
    ]
    summary = result_in(done)
    assert summary.pop("seconds") >= 0
    assert summary == {"records": 5, "periods": 4, "damaged": 0}
    assert table.stdout.splitlines() == [
        "topic,period_start,time,records",
        ",0,1970-01-01T00:00:00.000Z,2",
        ",60000,1970-01-01T00:01:00.000Z,1",
        ",7140000,1970-01-01T01:59:00.000Z,1",
        ",,,1",
    ]


def test_a_record_before_1970_has_a_time_although_its_header_has_none(command: Command) -> None:
    log = file_named(LOG, v2_batch(0, [Record(-1)]) + v2_batch(1, [Record(-HOUR_MS)]))
    options = ["--per", "1h", "--format", "jsonl"]

    every = rows_of(command("count", log, *options))
    before = rows_of(command("count", log, "--until", "2024-01-01", *options))

    assert [(row["period_start"], row["records"]) for row in every] == [(-HOUR_MS, 1), (None, 1)]
    assert [(row["period_start"], row["records"]) for row in before] == [(-HOUR_MS, 1)]


def test_batches_with_one_time_are_counted_from_headers(command: Command) -> None:
    """Bodies that nothing could decompress show that none was looked at."""
    stamped = {"codec": "gzip", "body": bytes(40), "log_append_time": START_MS}
    batches = [
        v2_batch(0, **stamped, records_count=3, last_offset_delta=2),
        v2_batch(3, codec="gzip", body=bytes(40), records_count=1, max_timestamp=START_MS + 999),
        v2_batch(4, **stamped, records_count=0),
    ]
    log = file_named(LOG, b"".join(batches))

    done = command("count", log, "--per", "1m", "--format", "jsonl")

    assert [row["records"] for row in rows_of(done)] == [4]
    before = ["--until", str(START_MS + 1), "--per", "1m", "--format", "jsonl"]
    assert [row["records"] for row in rows_of(command("count", log, *before))] == [3]


SEGMENTS = {
    "stamped": lambda base, chance: [
        v2_batch(base, [Record(1, b"k")] * 3, log_append_time=START_MS + chance.randrange(10**7))
    ],
    "alone": lambda base, chance: [
        v2_batch(base + i, [Record(chance.choice([-1, START_MS + chance.randrange(10**7)]))])
        for i in range(3)
    ],
    "created": lambda base, chance: [
        v2_batch(base, [Record(START_MS + chance.randrange(10**7)) for _ in range(3)])
    ],
    "old": lambda base, chance: [
        v1_message(base, START_MS + chance.randrange(10**7)),
        wrapper(base + 2, [v1_message(i, START_MS - 3) for i in range(2)], codec="gzip"),
    ],
    "torn": lambda base, chance: [
        v2_batch(base, [Record(START_MS)]),
        v2_batch(base + 1, [Record(START_MS), Record(START_MS)])[:-1],
    ],
}


@pytest.mark.parametrize(
    ("seed", "step"),
    one_in(6, [pytest.param(seed, 2 + seed % 2) for seed in seeds(18)]),
)
def test_a_count_is_that_of_the_records_however_it_is_read(
    command: Command, seed: int, step: int
) -> None:
    """With a step of 2, a segment has offsets of the one before."""
    chance = random.Random(seed)
    for partition in range(3):
        folder = Path(f"mixed/topic-{partition}")
        folder.mkdir(parents=True)
        for base in range(0, 30, step):
            batches = SEGMENTS[chance.choice(list(SEGMENTS))](base, chance)
            (folder / f"{base:020d}.log").write_bytes(b"".join(batches))
    options = ["--format", "jsonl"]
    if chance.random() < 0.7:
        options += ["--from", str(START_MS + chance.randrange(10**6)), "--until"]
        options += [str(START_MS + 10**6 + chance.randrange(10**7))]

    counted = command("count", "mixed", "--per", "15m", *options)
    records = command("records", "mixed", "--columns", "timestamp", *options)

    period = 15 * 60_000
    expected = Counter(
        None if row["timestamp"] is None else row["timestamp"] // period * period
        for row in rows_of(records)
    )
    assert {row["period_start"]: row["records"] for row in rows_of(counted)} == expected
    assert warnings_of(counted) == warnings_of(records)


def test_too_many_periods_end_in_one_line(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "MOST_PERIODS", 3)

    done = command("count", "archive", "--topic", "orders", "--per", "1s")

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "Error: more than 3 periods found; give a longer --per, or --from and --until\n"
    )


def test_a_count_that_the_bytes_cannot_hold_is_not_believed(command: Command) -> None:
    sent = [Record(START_MS, None, None)] * 5
    good = v2_batch(0, sent, log_append_time=START_MS)
    claims = v2_batch(5, sent, log_append_time=START_MS, records_count=2**31 - 1)
    log = file_named(LOG, good + claims)

    done = command("count", log, "--per", "1d", "--format", "jsonl")

    assert [row["records"] for row in rows_of(done)] == [10]
    [warning] = warnings_of(done)
    assert "record 5 of 2147483647" in warning


def test_a_batch_of_a_codec_that_does_not_exist_is_not_counted(command: Command) -> None:
    good = v2_batch(0, [Record(START_MS)])
    log = file_named(LOG, good + v2_batch(1, [Record(START_MS)], attributes=5))

    done = command("count", log, "--per", "1d", "--format", "jsonl")

    assert [row["records"] for row in rows_of(done)] == [1]
    [warning] = warnings_of(done)
    assert "codec" in warning


def test_a_promise_of_order_stops_early(command: Command) -> None:
    """The last segment could not be read: nothing opens it."""
    folder = Path("ordered/topic-0")
    folder.mkdir(parents=True)
    for base in (0, 1, 2):
        data = v2_batch(base, [Record(START_MS + base * HOUR_MS)])
        (folder / f"{base:020d}.log").write_bytes(data if base < 2 else b"damage")
    options = ["ordered", "--until", str(START_MS + 1), "--per", "1h"]
    options += ["--format", "jsonl", "--result-line"]

    def damaged(*more: str) -> int:
        done = command("count", *options, *more)
        assert [row["records"] for row in rows_of(done)] == [1]
        return int(result_in(done)["damaged"])

    assert damaged() == 1
    assert damaged("--disorder", "1m") == 0
