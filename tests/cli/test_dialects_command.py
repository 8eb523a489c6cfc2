"""`kip33 dialects`: index designs compared, as a table, JSON, JSON lines and CSV."""

import csv
from pathlib import Path

import pytest

from kip33.drafts.comparison import COMPARED, DIALECT_ROWS
from tests.builders.log_file import write_log
from tests.builders.segment_builder import Record, v2_batch
from tests.cli.console import Command, result_in

MINUTE = 60_000


def test_a_missed_record_is_shown_with_its_log_and_times(command: Command, tmp_path: Path) -> None:
    times = [0, 5, 1, 2, 6]
    batches = [
        v2_batch(n, [Record(minute * MINUTE, None, bytes(4096))]) for n, minute in enumerate(times)
    ]
    log = write_log(tmp_path / "logs" / "t-0", 0, *batches)
    size = len(batches[0])

    options = ("--dialect", "minute", "--dialect", "recover", "--index-interval-bytes", size)
    done = command("dialects", "logs", *options)

    assert done.stdout.splitlines()[-1] == (
        f"minute misses a record: {log.as_uri()}: a search for 1970-01-01T00:01:00.001Z begins at "
        f"byte {2 * size}, but the batch with offset 1 at byte {size} has 1970-01-01T00:05:00.000Z"
    )


def test_rows_as_json_lines_and_csv(command: Command) -> None:
    options = ("dialects", "archive", "--topic", "orders", "--partitions", "7", "--result-line")

    lines = command(*options, "--format", "jsonl")
    table = command(*options, "--format", "csv")

    assert [row["dialect"] for row in lines.lines] == list(COMPARED)
    assert list(lines.lines[0]) == DIALECT_ROWS.names
    cells = list(csv.DictReader(table.stdout.splitlines()))
    assert [row["bytes"] for row in cells] == [str(row["bytes"]) for row in lines.lines]
    result = result_in(lines)
    assert result | {"seconds": 0} == result_in(table) | {"seconds": 0}
    assert (result["memory_for_partitions"], result["engine"]) == (7, "local")
    first = lines.lines[0]
    assert first["memory_bytes"] == round(first["bytes"] * 7 / result["partitions"])


@pytest.mark.spark
def test_both_engines_give_the_same_figures(spark_command: Command) -> None:
    given = ("dialects", "archive", "--format", "jsonl", "--result-line")
    local = spark_command(*given, "--engine", "local")
    spark = spark_command(*given, "--engine", "spark")

    assert local.stdout == spark.stdout != ""
    assert result_in(spark)["engine"] == "spark"


def test_a_quick_verification_compares_the_files_of_a_draft(command: Command) -> None:
    command("build", "archive", "--index-dir", "i", "--dialect", "minute")
    quick = ("verify", "quick", "archive", "--index-dir", "i", "--fail-on", "changed")
    assert command(*quick).exit_code == 0
    [file, *_] = [one for one in sorted(Path("i").rglob("*.time.index")) if one.stat().st_size]
    file.write_bytes(bytes(file.stat().st_size))

    done = command(*quick)

    assert done.exit_code == 3
    assert file.name in done.stdout and ".timeindex │" not in done.stdout.split("problem")[1]


def test_what_does_not_handle_drafts_says_so_in_one_line(command: Command) -> None:
    assert command("build", "archive", "--index-dir", "i", "--dialect", "minute").exit_code == 0
    [file, *_] = sorted(Path("i").rglob("*.time.index"))
    for arguments in (
        ("build", "archive", "--in-place", "--catalog", "c", "--dialect", "minute"),
        ("build", "archive", "--index-dir", "i"),
        ("build", "archive", "--index-dir", "i", "--dialect", "minute", "--only", "damaged"),
        ("build", "archive", "--index-dir", "i", "--dialect", "minute", "--read", "tail"),
        ("verify", "archive", "--index-dir", "i", "--dialect", "minute"),
        ("dump", file),
    ):
        done = command(*arguments)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
