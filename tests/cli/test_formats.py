"""`--format` and `--topic` mean the same in all commands; JSON has null, not -1, for "none"."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kip33.cli.main import COMMANDS, get_command
from tests.cli.console import Command

CATALOG = "made/indexes/_catalog"
NOW = "--now 2023-12-01"
LOGS = "archive/broker-1/audit.v1-0/00000000000000000000.log"
INDEXES = "made/indexes/broker-1/orders-0/00000000000000000000.timeindex"
ROWS = {  # each answer with rows, and the key of its first rows in JSON
    "verify archive": "verdicts",
    "verify quick made/archive --index-dir made/indexes": "not_identical",
    "repair archive/broker-2": "repairs",
    f"restore {CATALOG} --replica broker-2 --to logs --dry-run": "partitions",
    "truncate archive/broker-1/orders-0 --to 100": "files",
    f"dump {LOGS} {INDEXES} --records --payload": "rows",
    f"retention {CATALOG} --retention-ms 8d {NOW}": "segments",
    f"roll {CATALOG} {NOW}": "segments",
    f"roll what-if {CATALOG}": "segments",
    f"search {CATALOG} --time earliest --time latest --time 2023-11-15": "answers",
    f"search {CATALOG} --time earliest --until latest": "answers",
    "records archive --topic audit.v1": "records",
    "count archive --per 1d": "counts",
    f"timestamps archive {NOW}": "timestamps",
    f"lag {CATALOG} --offsets offsets.csv": "",
    f"failover --from {CATALOG} --to {CATALOG} --offsets offsets.csv --buffer 1m": "",
    "dialects archive --topic audit.v1": "dialects",
    f"catalog {CATALOG}": "snapshots",
    f"catalog holes {CATALOG}": "holes",
    f"catalog segments {CATALOG}": "segments",
    f"catalog orphans {CATALOG}": "leftovers",
    f"catalog diff {CATALOG} 1 1": "changes",
    f"report {CATALOG} --output report.html": "details",
    "demo new-FORMAT": "oddities",
}
OTHER_COLUMNS = ("dump", "records", "lag", "failover")  # CSV has more columns, or fewer
MAY_BE_NEGATIVE = {"waited_ms", "latency_min_ms", "latency_median_ms", "early_ms"}
WITHOUT_FORMAT = {"init", "completion"}
WITHOUT_TOPIC = {"truncate", "dump", "report", "status", "init", "demo", "completion"}


@pytest.fixture
def run(command: Command, built: Path) -> Command:
    Path("offsets.csv").write_text("topic,partition,offset\norders,0,100\naudit.v1,0,0\n")

    def run_in(line: str, output_format: str) -> str:
        words = line.replace("FORMAT", output_format).replace("made", str(built)).split()
        done = command(*words, "--format", output_format)
        assert done.exit_code in (0, 4), done
        assert "KIP33_RESULT" not in done.stderr + done.stdout
        return done.stdout

    return run_in


def values_in(found: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all values with their names, also those of inner objects."""
    if isinstance(found, dict):
        for key, value in found.items():
            yield from values_in(value, key)
    elif isinstance(found, list):
        for value in found:
            yield from values_in(value, name)
    else:
        yield name, found


def test_the_formats_have_the_same_rows_and_none_is_null(
    run: Any, subtests: pytest.Subtests
) -> None:
    for line in ROWS:
        with subtests.test(f"{line}"):
            key = ROWS[line]
            found = json.loads(run(line, "json"))
            rows = found[key] if key else found
            lines = [json.loads(text) for text in run(line, "jsonl").splitlines()]
            cells = list(csv.reader(io.StringIO(run(line, "csv"), newline="")))

            wrong = [
                (name, value)
                for name, value in values_in([found, lines])
                if value in ("-", -1, -2, -3) and name not in MAY_BE_NEGATIVE
            ]
            assert wrong == []
            assert [*map(without_kind, lines[: len(rows)])] == [*map(without_kind, rows)]
            header, *others = cells
            assert len(others) == len(rows)
            assert len(set(header)) == len(header)
            if rows and not line.startswith(OTHER_COLUMNS):
                assert set(header) == set(rows[0])


def without_kind(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "kind"}


def options_of(name: str) -> dict[str, Any]:
    return {option: param for param in get_command(name).params for option in param.opts}


def test_options_have_the_same_names_in_all_commands(subtests: pytest.Subtests) -> None:
    for name in COMMANDS:
        with subtests.test(name):
            options = options_of(name)

            assert "--topics" not in options  # the help shows one name
            assert ("--topic" in options) == (name not in WITHOUT_TOPIC)
            assert ("--format" in options, "--result-line" in options) == (
                (False, False) if name in WITHOUT_FORMAT else (True, True)
            )
            if "--topic" in options:
                assert options["--topic"].multiple
            if "--format" in options:
                assert {*options["--format"].type.choices} >= {"table", "json", "jsonl", "csv"}


def test_either_name_selects_topics(
    command: Command, built: Path, subtests: pytest.Subtests
) -> None:
    """On the command line, and in the file of --config."""
    Path("made").symlink_to(built)
    Path("offsets.csv").write_text("topic,partition,offset\norders,0,0\nmetrics,0,0\n")
    Path("topic.toml").write_text('topic = ["metrics", "pay*", "!*ments"]\n')
    Path("topics.toml").write_text('topics = ["metrics", "pay*", "!*ments"]\n')
    for number, given in enumerate(
        (
            *("verify archive", "timestamps archive", "records archive --columns topic"),
            *(f"roll {CATALOG}", f"catalog segments {CATALOG}", f"catalog {CATALOG}"),
            f"lag {CATALOG} --offsets offsets.csv",
        )
    ):
        name = ("--topic", "--topics")[number % 2]
        globs = (name, "metrics", name, "pay*", name, "!*ments")
        for options in (globs, ("--config", f"{name.removeprefix('--')}.toml")):
            with subtests.test(f"{given} {options}"):
                done = command(*given.split(), *options, "--format", "jsonl")

                assert done.exit_code == 0
                assert "metrics" in done.stdout
                assert "payments" not in done.stdout
                assert "orders" not in done.stdout


def test_a_configuration_file_may_ask_for_the_result_line(command: Command) -> None:
    Path("kip33.toml").write_text("result-line = true\n")
    done = command("count", LOGS, "--per", "1d", "--format", "csv", "--config", "kip33.toml")

    assert done.stderr.startswith('KIP33_RESULT {"records": 210, ')
