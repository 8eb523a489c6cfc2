"""`--summary FILE` of build, verify and retention: the results, for programs without the output."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.console import Command, file_named


def summary_in(path: Path | str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(path).read_text())
    return found


def test_verify_counts_by_verdict(command: Command, subtests: pytest.Subtests) -> None:
    for output_format in ["table", "json"]:
        with subtests.test(f"{output_format}"):
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


def test_a_summary_that_cannot_be_written_is_a_failure_that_says_so(command: Command) -> None:
    log = "archive/broker-1/payments-0/00000000000000000000.log"
    done = command("verify", log, "--summary", f"{file_named('taken', b'')}/s.json")
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {Path('taken/s.json').absolute().as_uri()}: cannot be ")
    assert "the run is complete, only its summary is missing" in done.stderr
