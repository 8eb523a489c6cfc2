"""`kip33 records`: records between two times in four formats; damage, limits, new files only."""

import csv
import io
import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kip33
from kip33.demo import START_MS
from kip33.records import record_selection
from kip33.records.segment_reader import UNDECIDED_WHY
from tests.builders.segment_builder import Record, v2_batch
from tests.cli.console import Command, Finished, file_named, result_in
from tests.records.test_read_committed import Event, write

LOG = f"{0:020d}.log"
ORDERS = ["records", "archive", "--topic", "orders"]
DAMAGE = [
    "archive/broker-2/clicks-0/00000000000000000000.log: at byte 156590 of 157276: the batch's "
    "size points past the end of the file",
    "archive/broker-2/clicks-1/00000000000000000000.log: at byte 52220 of 104892: the batch's "
    "bytes do not match its CRC; left out: bytes 52220 to 52566, at most offsets 1500 to 1509",
    "archive/broker-2/clicks-2/00000000000000000000.log: at byte 79369: its last offset, 9, is "
    "not above the one before, 5999; the log may be invalid",
]


def rows_of(done: Finished) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done
    return done.lines


def warnings_of(done: Finished) -> list[str]:
    lines = [line for line in done.stderr.splitlines() if line.startswith("Warning: ")]
    return [line.removeprefix("Warning: ").partition("/archive/")[2] for line in lines]


@pytest.fixture
def payloads(command: Command) -> str:
    """Return a log with keys and values of every kind."""
    records = [
        Record(1_000, b"customer-1", "grün".encode(), (("trace", b"a"), ("raw", b"\xff"))),
        Record(1_001, b"\xff\x00", b"=1+1"),
        Record(1_002, None, None, (("none", None),)),
        Record(1_003, b"", b"two\nlines \x1b[31m"),
        Record(1_004, b"customer-10", b"-5"),
    ]
    return file_named(LOG, v2_batch(0, records))


def test_records_between_two_times(command: Command) -> None:
    done = command(
        *(*ORDERS, "--from", str(START_MS), "--until", "2023-11-14T22:13:20.233Z"),
        *("--format", "jsonl", "--columns", "partition,offset,timestamp,key", "--result-line"),
    )

    assert rows_of(done) == [
        {"partition": 0, "offset": 0, "timestamp": START_MS + 98, "key": "order-0"},
        {"partition": 0, "offset": 1, "timestamp": START_MS + 108, "key": "order-0"},
        {"partition": 0, "offset": 2, "timestamp": START_MS + 232, "key": "order-0"},
    ]
    result = result_in(done)
    assert result.pop("seconds") >= 0
    assert result == {
        **{"output": None, "records": 3, "payload_bytes": 21, "segments": 1, "damaged": 0}
    }


def test_json_lines_tell_text_from_bytes(command: Command, payloads: str) -> None:
    rows = rows_of(command("records", payloads, "--format", "jsonl"))

    fields = [
        {name: row[name] for name in row if name.startswith(("key", "value", "headers"))}
        for row in rows
    ]
    headers = [{"key": "trace", "value": "a"}, {"key": "raw", "value_base64": "/w=="}]
    assert fields == [
        {"key": "customer-1", "value": "grün", "headers": headers},
        {"key_base64": "/wA=", "value": "=1+1", "headers": None},
        {"key": None, "value": None, "headers": [{"key": "none", "value": None}]},
        {"key": "", "value": "two\nlines \x1b[31m", "headers": None},
        {"key": "customer-10", "value": "-5", "headers": None},
    ]
    assert list(rows[0])[:7] == [
        *("log_dir", "topic", "partition", "base_offset", "offset", "timestamp", "timestampType")
    ]


def test_csv_has_texts_as_they_are_and_a_column_for_bytes(command: Command, payloads: str) -> None:
    done = command("records", payloads, "--format", "csv", "--columns", "offset,key,value,headers")

    header, *rows = csv.reader(io.StringIO(done.stdout, newline=""))
    assert header == ["offset", "key", "key_base64", "value", "value_base64", "headers"]
    assert [row[:5] for row in rows] == [
        ["0", "customer-1", "", "grün", ""],
        ["1", "", "/wA=", "=1+1", ""],
        ["2", "", "", "", ""],
        ["3", "", "", "two\nlines \x1b[31m", ""],
        ["4", "customer-10", "", "-5", ""],
    ]
    assert json.loads(rows[0][5])[1] == {"key": "raw", "value_base64": "/w=="}
    assert b64decode(rows[1][2]) == b"\xff\x00"


def test_a_table_is_printable_and_cuts_long_values(command: Command) -> None:
    records = [Record(0, b"a\x1b[31m", b"\xfe" + b"x" * 100), Record(-1, None, b"\t")]
    log = file_named(LOG, v2_batch(0, records))

    done = command("records", log)

    assert (done.exit_code, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    # The log is in no partition's directory, so there are no columns for topic and partition.
    first, second = (line.split("│")[1:] for line in done.stdout.splitlines()[3:5])
    assert [cell.strip() for cell in first[:-1]] == [
        *("0", "1970-01-01T00:00:00.000Z", r"a\u001b[31m", r"\xfe" + "x" * 53 + "...")
    ]
    assert [cell.strip() for cell in second[:-1]] == ["1", "-", "-", r"\t"]
    assert done.stdout.splitlines()[-1].startswith(
        "2 records of 1 segment, 108 B of keys and values; read in "
    )


def test_a_table_ends_after_a_thousand_records(command: Command) -> None:
    done = command(*ORDERS, "--columns", "offset")

    *lines, _, note, summary = done.stdout.splitlines()
    assert lines[-1].split() == ["│", "999", "│"]
    assert note == "a table ends after 1,000 records; --format jsonl has all"
    assert summary.startswith("1,000 records of 1 segment")
    assert "a table ends" not in command(*ORDERS, "--limit", "1000").stdout


def test_where_key_is_exact_and_grep_is_not(command: Command, payloads: str) -> None:
    def offsets(*options: str) -> list[int]:
        done = command("records", payloads, "--format", "jsonl", "--columns", "offset", *options)
        return [row["offset"] for row in rows_of(done)]

    assert offsets("--where-key", "customer-1") == [0]
    assert offsets("--where-key", "") == [3]
    assert offsets("--grep", "customer-1") == [0, 4]
    assert offsets("--grep", "grün") == [0]
    assert offsets("--grep", "1", "--where-key", "customer-10") == [4]
    assert offsets("--grep", "nothing") == []


def test_limit_stops_reading(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of fewer records than the first segment has: no other segment is read."""
    arguments = ["--format", "jsonl", "--columns", "offset", "--limit"]
    read = []
    selected = record_selection.Selecting.__call__
    monkeypatch.setattr(
        record_selection.Selecting,
        "__call__",
        lambda self, batch: read.append(batch.num_rows) or selected(self, batch),
    )

    rows = rows_of(command(*ORDERS, *arguments, "7"))

    assert [row["offset"] for row in rows] == list(range(7))
    assert len(read) == 1
    assert len(rows_of(command(*ORDERS, *arguments, "4001"))) == 4_001


def test_damage_is_a_warning_for_each_place(command: Command) -> None:
    done = command("records", "archive", "--topic", "clicks", "--format", "jsonl", "--result-line")

    assert len(rows_of(done)) == 6_980
    assert warnings_of(done) == [line.removeprefix("archive/") for line in DAMAGE]
    assert result_in(done)["damaged"] == 3


def test_much_damage_is_counted(command: Command) -> None:
    batches = [v2_batch(i, [Record(1)], codec="gzip", body=bytes(40)) for i in range(50)]
    log = file_named(LOG, b"".join(batches))

    done = command("records", log, "--format", "jsonl", "--result-line")

    lines = done.stderr.splitlines()
    assert (done.exit_code, done.stdout, len(lines)) == (0, "", 22)
    assert lines[-2] == "Warning: and 30 more problems in the logs"
    assert result_in(done)["damaged"] == 50


def test_parquet_has_the_bytes(command: Command, payloads: str) -> None:
    done = command("records", payloads, "--output", "out/records.parquet", "--result-line")

    assert done.exit_code == 0
    table = pq.read_table("out/records.parquet")
    assert table.equals(
        kip33.read_arrow(payloads, columns=table.schema.names, on_error="row").read_all()
    )
    assert table["key"].to_pylist() == [b"customer-1", b"\xff\x00", None, b"", b"customer-10"]
    assert done.stdout.startswith("5 records of 1 segment, ")
    assert result_in(done)["output"] == Path("out/records.parquet").absolute().as_uri()
    assert [path.name for path in Path("out").iterdir()] == ["records.parquet"]


def test_a_file_has_what_standard_output_would_have(command: Command, payloads: str) -> None:
    for ending in ("jsonl", "csv"):
        printed = command("records", payloads, "--format", ending).stdout

        assert command("records", payloads, "--output", f"out.{ending}").exit_code == 0
        assert Path(f"out.{ending}").read_bytes().decode() == printed


def test_a_file_that_is_there_is_not_replaced(command: Command, payloads: str) -> None:
    for name in ("there.parquet", "there.jsonl"):
        file_named(name, b"of another")

        done = command("records", payloads, "--output", name)

        assert (done.exit_code, done.stdout) == (2, "")
        assert "a file is there, which --output does not replace; give another" in done.stderr
        assert Path(name).read_bytes() == b"of another"


def test_records_that_may_be_of_aborted_transactions_are_counted(
    command: Command, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """The log has a gap: the marker of the first batch may be lost."""
    write(tmp_path / "gap" / "orders-0", [Event(0, 3, 7), Event(5, 1, -1), Event(6, 1, -1)], [1])
    for asked in (("records",), ("count", "--per", "1h")):
        with subtests.test(asked[0]):
            plain = (*asked, str(tmp_path / "gap"))
            committed = (*plain, "--isolation", "read_committed")

            rows = command(*committed, "--format", "jsonl", "--result-line")
            table = command(*committed)
            failed = command(*committed, "--on-error", "fail")

            assert (rows.exit_code, result_in(rows)["undecided"]) == (0, 3)
            assert "; 3 records may be of aborted transactions; read in " in table.stdout
            assert (failed.exit_code, failed.stderr.count("\n")) == (2, 1)
            assert UNDECIDED_WHY in failed.stderr
            uncommitted = command(*plain, "--format", "jsonl", "--result-line")
            assert "undecided" not in result_in(uncommitted)


def test_a_transaction_that_is_open_at_the_end_is_said_and_is_no_damage(
    command: Command, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    write(tmp_path / "open" / "orders-0", [Event(0, 3, -1), Event(3, 2, 7)], [])
    for name, asked in {"records": ("records",), "count": ("count", "--per", "1h")}.items():
        with subtests.test(name):
            committed = (*asked, str(tmp_path / "open"), "--isolation", "read_committed")
            done = command(*committed, "--format", "jsonl", "--result-line")

            result = result_in(done)
            assert (done.exit_code, result["damaged"], result["records"]) == (0, 0, 3)
            assert done.stderr.count("Warning: ") == 1
            assert "at offset 3 producer 7 begins a transaction that is still open" in done.stderr
