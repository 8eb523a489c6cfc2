"""`--summary FILE` of build, verify and retention: the results, for programs without the output."""

import json
from pathlib import Path

from tests.cli.console import Command, file_named


def test_verify_counts_by_verdict(command: Command) -> None:
    for output_format in ("table", "json"):
        options = ("--fail-on", "missing", "--format", output_format)

        done = command("verify", "archive", *options, "--summary", f"{output_format}.json")

        assert done.exit_code == 3
    [printed] = done.lines
    assert printed.pop("verdicts")
    assert printed["by_verdict"] == {"padded": 1, "wrong": 1, "missing": 11}
    for name in ("table.json", "json.json"):
        written = json.loads(Path(name).read_text()) | {"seconds": printed["seconds"]}
        [missing, problems] = written.pop("run")["findings"][-2:]
        assert (missing["finding"], problems["finding"]) == ("damaged", "problems")
        assert written == printed


def test_a_summary_that_cannot_be_written_is_a_failure_that_says_so(command: Command) -> None:
    log = "archive/broker-1/payments-0/00000000000000000000.log"
    done = command("verify", log, "--summary", f"{file_named('taken', b'')}/s.json")
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {Path('taken/s.json').absolute().as_uri()}: cannot be ")
    assert "the run is complete, only its summary is missing" in done.stderr
