"""`kip33 dialects`: index designs compared, as a table, JSON, JSON lines and CSV."""

import csv
import json
from pathlib import Path

import pytest

from kip33.drafts.comparison import COMPARED, DIALECT_COLUMNS
from kip33.drafts.designs import DRAFTS, design_of
from tests.builders.log_file import write_log
from tests.builders.segment_builder import Record, v2_batch
from tests.cli.console import Command, result_in
from tests.long_forms import one_in

MINUTE = 60_000


def test_the_demo_archive_as_a_table(command: Command) -> None:
    """Its late records are in the batches of later ones, so the drafts miss none in orders."""
    done = command("dialects", "archive")

    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert "read" in lines[0]
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines[4:11]]
    assert [row[0] for row in rows] == list(COMPARED)
    assert {row[-1] for row in rows[:3]} == {"always"}


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
    assert list(lines.lines[0]) == list(DIALECT_COLUMNS)
    cells = list(csv.DictReader(table.stdout.splitlines()))
    assert [row["bytes"] for row in cells] == [str(row["bytes"]) for row in lines.lines]
    result = result_in(lines)
    assert result == result_in(table)
    assert (result["memory_for_partitions"], result["engine"]) == (7, "local")
    first = lines.lines[0]
    assert first["memory_bytes"] == round(first["bytes"] * 7 / result["partitions"])


def test_one_json_object_is_the_summary(command: Command, tmp_path: Path) -> None:
    done = command("dialects", "archive", "--format", "json", "--summary", "summary.json")

    printed = json.loads(done.stdout)
    assert printed == json.loads((tmp_path / "summary.json").read_text())
    assert [row["dialect"] for row in printed["dialects"]] == list(COMPARED)
    assert printed["bytes_read"] <= printed["log_bytes"] + 2_000_000


def test_damaged_logs_are_named(command: Command) -> None:
    done = command("dialects", "archive", "--format", "jsonl", "--result-line")

    warnings = [line for line in done.stderr.splitlines() if line.startswith("Warning: ")]
    assert len(warnings) == result_in(done)["skipped"]
    assert all(line.endswith("; the log is not compared") for line in warnings)


@pytest.mark.spark
def test_both_engines_give_the_same_figures(spark_command: Command) -> None:
    given = ("dialects", "archive", "--format", "jsonl", "--result-line")
    local = spark_command(*given, "--engine", "local")
    spark = spark_command(*given, "--engine", "spark")

    assert local.stdout == spark.stdout != ""
    assert result_in(spark)["engine"] == "spark"


@pytest.mark.parametrize("name", one_in(4, DRAFTS))
def test_a_build_with_a_draft_is_searched_with_the_same_answers(
    command: Command, tmp_path: Path, name: str
) -> None:
    times = [
        option
        for time in ("2023-11-14T22:20Z", "2023-11-15T12:00Z", "2023-11-16T22:13:30Z", "latest")
        for option in ("--time", time)
    ]
    for dialect in ("recover", name):
        built = command("build", "archive", "--index-dir", dialect, "--dialect", dialect)
        assert built.exit_code == 0
    answers = {}
    for dialect in ("recover", name):
        found = command("search", f"{dialect}/_catalog", *times, "--format", "jsonl").lines
        answers[dialect] = [(row["offset"], row["timestamp"], row["exactness"]) for row in found]

    assert answers[name] == answers["recover"]
    assert not list((tmp_path / name).rglob("*.timeindex"))
    assert list((tmp_path / name).rglob(f"*.{design_of(name).file}"))


def test_a_quick_verification_compares_the_files_of_a_draft(command: Command) -> None:
    command("build", "archive", "--index-dir", "i", "--dialect", "minute")
    quick = ("verify", "archive", "--index-dir", "i", "--quick", "--fail-on", "changed")
    assert command(*quick).exit_code == 0
    [file, *_] = [one for one in sorted(Path("i").rglob("*.time.index")) if one.stat().st_size]
    file.write_bytes(bytes(file.stat().st_size))

    done = command(*quick)

    assert done.exit_code == 3
    assert file.name in done.stdout and ".timeindex │" not in done.stdout.split("problem")[1]


def test_the_files_of_a_draft_are_no_leftovers(command: Command) -> None:
    command("build", "archive", "--index-dir", "i", "--dialect", "minute", "--offset-index")

    done = command("catalog", "i/_catalog", "--orphans", "--format", "jsonl")

    assert done.exit_code == 0
    assert ".time.index" not in done.stdout


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


def test_a_retention_plan_has_no_files_of_drafts(command: Command, tmp_path: Path) -> None:
    """Nor the files of Kafka's names that another catalog has in the same index directory."""
    command("build", "archive", "--index-dir", "i", "--catalog", "kafka")
    command("build", "archive", "--index-dir", "i", "--catalog", "drafts", "--dialect", "minute")
    policy = '[defaults]\n"cleanup.policy" = "delete"\n"retention.ms" = "1d"\n'
    (tmp_path / "policy.toml").write_text(policy)
    plans = {}
    for catalog in ("kafka", "drafts"):
        done = command(
            *("retention", catalog, "--topic", "orders", "--policy", "policy.toml"),
            *("--plan", f"{catalog}.jsonl"),
        )
        assert done.exit_code == 0, done
        plans[catalog] = (tmp_path / f"{catalog}.jsonl").read_text()
    index_dir = f'"index_directory": "{(tmp_path / "i").as_uri()}/'
    assert index_dir in plans["kafka"] and index_dir not in plans["drafts"]
    assert ".log" in plans["drafts"] and ".time.index" not in plans["drafts"]
