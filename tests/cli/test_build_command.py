"""`kip33 build` night after night: what it says of what it read and what it took over."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.console import Command, facts_in

FIRST = "00000000000000000000"
SEGMENTS = 13
BUILD = ("build", "nightly", "--index-dir", "indexes")


@pytest.fixture
def nightly(command: Command, archive: Path, tmp_path: Path) -> Command:
    """Return the command beside ./nightly, an archive of its own that one build has seen."""
    shutil.copytree(archive, tmp_path / "nightly")
    command(*BUILD, "--format", "json")
    return command


def test_the_table_says_how_much_was_read_and_what_became_of_the_rest(nightly: Command) -> None:
    shutil.rmtree("nightly/broker-1/audit.v1-0")
    log = Path("nightly/broker-1/payments-0") / f"{FIRST}.log"
    log.write_bytes(log.read_bytes())

    lines = facts_in(nightly(*BUILD, "--topic", "[ap]*").stdout)

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
    full = facts_in(nightly(*BUILD, "--full").stdout)
    assert full["reused"] == "0 unchanged" and not {"dropped", "carried over"} & full.keys()


def test_a_damaged_snapshot_is_a_line_on_standard_error_and_the_build_goes_on(
    nightly: Command,
) -> None:
    """Each way to damage one: tests/faults/test_damaged_catalogs.py."""
    nightly(*BUILD)
    part = max(Path("indexes/_catalog/snapshots").glob("*/part-*.parquet"))
    part.unlink()

    done = nightly(*BUILD, "--format", "json")

    assert done.exit_code == 0
    (warning,) = done.stderr.splitlines()
    assert warning.startswith("Warning: ")
    assert warning.endswith(f"snapshot {part.parent.name} is ignored")
    summary = json.loads(done.stdout)
    assert summary["reused"] == SEGMENTS, "taken over from the one before"
    assert summary["warnings"] == [warning.removeprefix("Warning: ")]
    assert nightly(*BUILD).stderr.splitlines() == [], "it is not the newest any more"
