"""`--summary FILE` of build, verify and retention: the results, for programs without the output."""

import json
from pathlib import Path
from typing import Any

import pytest

from kip33.rules.index_verdict import GOOD
from tests.cli.console import PROJECT, Command, file_named, result_in

JUDGED = ("--retention-ms", "8d", "--now", "2023-12-01")  # sensors-0 is blocked


def summary_in(path: Path | str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(path).read_text())
    return found


@pytest.mark.parametrize("output_format", ["table", "json"])
def test_build_writes_what_json_prints_before_it_exits_3(
    output_format: str, command: Command
) -> None:
    options = ("--fail-on", "invalid", "--format", output_format)
    given = ("build", "archive", "--index-dir", "indexes", *options)

    done = command(*given, "--summary", "out/build.json")

    assert done.exit_code == 3
    summary = summary_in("out/build.json")
    assert summary["by_status"]["invalid"] == 1
    assert summary["catalog"] == Path("indexes/_catalog").absolute().as_uri()
    if output_format != "table":
        assert done.lines == [summary]
    assert [path.name for path in Path("out").iterdir()] == ["build.json"]


@pytest.mark.parametrize("output_format", ["table", "json"])
def test_verify_counts_by_verdict(output_format: str, command: Command) -> None:
    options = ("--fail-on", "missing", "--format", output_format)

    done = command("verify", "archive", *options, "--summary", "verify.json")

    assert done.exit_code == 3
    summary = summary_in("verify.json")
    assert summary == {
        "segments": 13,
        "by_verdict": {"padded": 1, "wrong": 1, "missing": 11},
        "by_offset_index_verdict": {},
        "by_transaction_index_verdict": {},
        "largest_gap_bytes": None,
        "offset_index_largest_gap_bytes": None,
        "engine": "local",
        "workers": 1,
    }
    if output_format == "json":
        [printed] = done.lines
        assert printed.pop("verdicts")
        assert printed == summary


def test_verify_of_one_file_and_of_offset_indexes(command: Command) -> None:
    command("build", "archive", "--index-dir", "indexes", "--offset-index")
    log = "archive/broker-1/payments-0/00000000000000000000.log"
    one = ("--index-dir", "indexes/broker-1/payments-0", "--summary", "one.json")

    assert command("verify", log, *one).exit_code == 0
    assert summary_in("one.json")["by_verdict"] == {"identical": 1}

    every = ("--index-dir", "indexes", "--summary", "every.json")
    assert command("verify", "archive", *every).exit_code == 0
    summary = summary_in("every.json")
    found = summary["by_offset_index_verdict"]
    assert found.pop("missing") == 1  # a segment that a broker would not load has none
    assert found.keys() <= set(GOOD)
    assert sum(found.values()) == 12
    assert 0 < summary["offset_index_largest_gap_bytes"] < 8192


@pytest.mark.parametrize("output_format", ["table", "csv"])
def test_retention_writes_what_its_result_line_says(
    output_format: str, built: Path, command: Command
) -> None:
    options = ("--fail-on", "blocked", "--format", output_format)
    given = ("retention", built / "indexes/_catalog", *JUDGED, *options)

    done = command(*given, "--summary", "audit.json", "--output", "out", "--result-line")

    assert done.exit_code == 3
    summary = summary_in("audit.json")
    assert (summary["blocked_partitions"], summary["blocked_segments"]) == (1, 3)
    assert summary == summary_in("out/summary.json")  # that one says that its folder is whole
    assert result_in(done) == summary


def test_apply_writes_its_own(built: Path, command: Command) -> None:
    policy = ("--policy", PROJECT / "conf" / "retention.toml", "--now", "2023-12-01")
    command("retention", built / "indexes/_catalog", *policy, "--plan", "plan.jsonl")

    given = ("retention", "--apply", "plan.jsonl", "--dry-run", "--format", "json")
    done = command(*given, "--summary", "applied.json")

    assert done.exit_code == 0, done
    assert summary_in("applied.json") == done.lines[0]["summary"]
    assert summary_in("applied.json")["segments_deleted"] > 0


def test_a_summary_that_cannot_be_written_is_a_failure_that_says_so(command: Command) -> None:
    log = "archive/broker-1/payments-0/00000000000000000000.log"
    done = command("verify", log, "--summary", f"{file_named('taken', b'')}/s.json")
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {Path('taken/s.json').absolute().as_uri()}: cannot be ")
    assert "the run is complete, only its summary is missing" in done.stderr
