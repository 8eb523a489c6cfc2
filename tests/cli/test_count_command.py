"""`kip33 count`: records per period, as a table, JSON lines and CSV."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kip33.cli import count_answer
from tests.builders.segment_builder import Record, v2_batch
from tests.cli.console import Command, Finished, file_named
from tests.demo_archive import START_MS

LOG = f"{0:020d}.log"
HOUR_MS = 3_600_000


def rows_of(done: Finished) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done
    return done.lines


def test_records_per_day_of_the_demo_archive(command: Command) -> None:
    done = command("count", "archive", "--per", "1d")

    assert done.exit_code == 0
    rows = [line.strip("│ ").split("│") for line in done.stdout.splitlines()[3:-2]]
    assert [tuple(cell.strip() for cell in row) for row in rows] == [
        ("audit.v1", "2023-11-13T00:00:00.000Z", "180"),
        ("audit.v1", "-", "30"),
        ("clicks", "2023-11-14T00:00:00.000Z", "5,490"),
        ("metrics", "-", "1"),
        ("orders", "2023-11-14T00:00:00.000Z", "4,000"),
        ("orders", "2023-11-15T00:00:00.000Z", "4,000"),
        ("orders", "2023-11-16T00:00:00.000Z", "500"),
        ("payments", "2023-11-14T00:00:00.000Z", "180"),
    ]
    assert done.stdout.splitlines()[-1].startswith(
        "14,381 records in 8 periods; 2 places cannot be read; read in "
    )
    assert done.stderr.count("Warning: ") == len(done.stderr.splitlines()) == 2


def test_a_count_is_that_of_the_records(command: Command) -> None:
    options = ["archive", "--topic", "orders", "--format", "jsonl"]
    window = ["--from", str(START_MS + 9_999), "--until", str(START_MS + 60_001)]

    counted = rows_of(command("count", *options, *window, "--per", "10s"))
    records = rows_of(command("records", *options, *window, "--columns", "timestamp"))

    expected = Counter(row["timestamp"] // 10_000 * 10_000 for row in records)
    assert {row["period_start"]: row["records"] for row in counted} == expected
    assert len(counted) == 5
    assert [row["period_start"] for row in counted] == sorted(expected)


def test_a_catalog_gives_the_same_counts(command: Command, built: Path) -> None:
    options = ["--per", "1h", "--format", "jsonl", "--topic", "sensors", "--partition", "1"]

    by_catalog = command("count", built / "indexes/_catalog", *options)

    assert by_catalog.stdout == command("count", built / "archive", *options).stdout
    assert sum(row["records"] for row in rows_of(by_catalog)) == 1_200


def test_rows_for_programs(command: Command) -> None:
    times = [0, 59_999, 60_000, -1, 7_199_999]
    log = file_named(LOG, v2_batch(0, [Record(time, b"k", b"v") for time in times]))

    done = command("count", log, "--per", "1m", "--format", "jsonl")
    table = command("count", log, "--per", "1m", "--format", "csv")

    def row(start: int | None, time: str | None, records: int) -> dict[str, Any]:
        return {"topic": None, "period_start": start, "time": time, "records": records}

    assert rows_of(done) == [
        row(0, "1970-01-01T00:00:00.000Z", 2),
        row(60_000, "1970-01-01T00:01:00.000Z", 1),
        row(7_140_000, "1970-01-01T01:59:00.000Z", 1),
        row(None, None, 1),
    ]
    summary = json.loads(done.stderr.removeprefix("KIP33_RESULT "))
    assert summary.pop("seconds") >= 0
    assert summary == {"records": 5, "periods": 4, "damaged": 0}
    assert table.stdout.splitlines() == [
        "topic,period_start,time,records",
        ",0,1970-01-01T00:00:00.000Z,2",
        ",60000,1970-01-01T00:01:00.000Z,1",
        ",7140000,1970-01-01T01:59:00.000Z,1",
        ",,,1",
    ]


def test_damage_is_an_error_if_it_should_be(command: Command) -> None:
    done = command("count", "archive", "--topic", "clicks", "--per", "1h", "--on-error", "fail")

    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "clicks-0" in done.stderr


def test_too_many_periods_end_in_one_line(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(count_answer, "MOST_PERIODS", 3)

    done = command("count", "archive", "--topic", "orders", "--per", "1s")

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "Error: more than 3 periods found; give a longer --per, or --from and --until\n"
    )


WRONG = {
    "no period": ([], "Missing option '--per'"),
    "a period of nothing": (["--per", "0"], "'0' found, expected more than 0; for example 1h"),
    "a word": (["--per", "hour"], "'hour' found, expected 7d, 36h, 15m, 30s, 500ms"),
    "no such topic": (["--per", "1h", "--topic", "nothing"], "no segments of topics nothing found"),
    "no time between": (["--per", "1h", "--from", "1", "--until", "1"], "later than --from"),
}


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_option_is_one_line(command: Command, options: list[str], message: str) -> None:
    done = command("count", "archive", *options)

    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr
