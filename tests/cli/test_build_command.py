"""`kip33 build` night after night: what it says of what it read and what it took over."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.console import Command, Finished

FIRST = "00000000000000000000"
SEGMENTS = 13
BUILD = ("build", "nightly", "--index-dir", "indexes")


@pytest.fixture
def nightly(command: Command, archive: Path, tmp_path: Path) -> Command:
    """Return the command beside ./nightly, an archive of its own that one build has seen."""
    shutil.copytree(archive, tmp_path / "nightly")
    command(*BUILD, "--format", "json")
    return command


def summary_of(done: Finished) -> dict[str, Any]:
    assert (done.exit_code, done.stderr) == (0, "")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def counts(summary: dict[str, Any]) -> dict[str, int]:
    return {name: summary[name] for name in ("indexed", "reused", "dropped", "carried")}


def test_the_second_night_reads_nothing_and_full_reads_everything(nightly: Command) -> None:
    again = summary_of(nightly(*BUILD, "--format", "json"))
    assert counts(again) == {"indexed": 0, "reused": SEGMENTS, "dropped": 0, "carried": 0}
    assert (again["bytes_read"], again["segments"]) == (0, SEGMENTS)

    full = summary_of(nightly(*BUILD, "--full", "--format", "json"))

    assert counts(full) == {"indexed": SEGMENTS, "reused": 0, "dropped": 0, "carried": 0}
    assert full["bytes_read"] > 0.9 * full["log_bytes"]
    same = ("segments", "by_status", "entries", "log_bytes", "index_bytes", "written", "kept")
    assert [full[name] for name in same] == [again[name] for name in same]


def lines_of(done: Finished) -> dict[str, str]:
    """Return the table as printed: what each line says."""
    assert done.exit_code == 0
    cells = (line.strip("│ ").split("│", 1) for line in done.stdout.splitlines() if "│" in line)
    return {name.strip(): value.strip() for name, value in cells}


def test_the_table_says_how_much_was_read_and_what_became_of_the_rest(nightly: Command) -> None:
    shutil.rmtree("nightly/broker-1/audit.v1-0")
    log = Path("nightly/broker-1/payments-0") / f"{FIRST}.log"
    log.write_bytes(log.read_bytes())

    lines = lines_of(nightly(*BUILD, "--topic", "[ap]*"))

    assert lines["indexed"].startswith("1; ")
    assert lines["indexed"].endswith(" read from logs")
    assert lines["reused"] == "0 unchanged"
    assert lines["dropped"] == "1 segment, no longer there"
    assert lines["carried over"] == "11 segments that this build did not list"
    assert lines["orphaned"].startswith("1 index file without a log; ")
    shown = nightly("catalog", "indexes/_catalog")
    assert "orphans: 1 index file of kip33 without a log; " in shown.stdout
    newest = json.loads(nightly("catalog", "indexes/_catalog", "--format", "json").stdout)
    assert [one["orphaned"] for one in newest["snapshots"]] == [1, 0]
    assert {"dropped", "carried over"} & set(lines_of(nightly(*BUILD, "--full"))) == set()


def newest_part() -> Path:
    return max(Path("indexes/_catalog/snapshots").glob("*/part-*.parquet"))


def test_a_damaged_snapshot_is_a_line_on_standard_error_and_the_build_goes_on(
    nightly: Command, subtests: pytest.Subtests
) -> None:
    for damage in ["a part went", "one bit flipped", "the commit was cut"]:
        with subtests.test(f"{damage}"):
            nightly(*BUILD)
            part = newest_part()
            if damage == "a part went":
                part.unlink()
            elif damage == "one bit flipped":
                data = bytearray(part.read_bytes())
                data[len(data) // 2] ^= 1
                part.write_bytes(data)
            else:
                commit = max(Path("indexes/_catalog/commits").iterdir())
                commit.write_bytes(commit.read_bytes()[:-9])

            done = nightly(*BUILD, "--format", "json")

            assert done.exit_code == 0
            (warning,) = done.stderr.splitlines()
            assert warning.startswith("Warning: ")
            assert warning.endswith(f"snapshot {part.parent.name} is ignored")
            summary = json.loads(done.stdout)
            assert counts(summary)["reused"] == SEGMENTS, "taken over from the one before"
            assert summary["warnings"] == [warning.removeprefix("Warning: ")]
            assert nightly(*BUILD).stderr.splitlines() == [], "it is not the newest any more"
