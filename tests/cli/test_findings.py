"""What commands say at their end: which files, what is new, and what made the exit code."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kip33 import __version__
from kip33.demo import make_archive, make_sensors
from tests.cli.console import Command

CATALOG = "indexes/_catalog"
BUILD = ("build", "mine", "--index-dir", "indexes")
SENSORS = [
    f"mine/broker-1/sensors-{n}/{base:020}.log" for n in (0, 1) for base in range(0, 1001, 200)
]
ORDERS = "mine/broker-1/orders-0/00000000000000004000.log"


@pytest.fixture
def own(command: Command) -> Command:
    """The command beside an archive that the test may damage."""
    make_archive(Path("mine"))
    make_sensors(Path("mine"))
    return command


def cut(*logs: str) -> None:
    for log in map(Path, logs):
        log.write_bytes(log.read_bytes()[:-7])


def test_a_build_names_new_damage_first_and_ten_findings_at_most(own: Command) -> None:
    cut(*SENSORS)
    before = own(*BUILD, "--fail-on", "truncated")
    assert "truncated: broker-1/sensors-0" in before.stderr
    assert "new: " not in before.stderr, "there is no snapshot before"
    cut(ORDERS)

    done = own(*BUILD, "--fail-on", "truncated, invalid", "--summary", "summary.json")

    lines = [line for line in done.stderr.splitlines() if not line.startswith("Warning: ")]
    assert lines[0].startswith(f"truncated: new: {ORDERS.removeprefix('mine/')}: at byte ")
    assert ["new: " in line for line in lines] == [True] + [False] * 12
    rows = f"all: kip33 catalog segments {Path(CATALOG).absolute()} --status"
    assert lines[10:12] == [f"{rows} truncated", f"{rows} invalid"]
    assert lines[12] == "exit 3: --fail-on truncated: 15 segments, invalid: 1 segment"
    run = json.loads(Path("summary.json").read_text())["run"]
    assert (run["kip33_version"], run["command"]) == (__version__, "kip33 build")
    assert run["started_ms"] <= run["ended_ms"]
    assert run["exit_code"] == done.exit_code == 3
    found = {one["finding"]: one for one in run["findings"]}
    assert {*found} == {"truncated", "invalid", "holes"}, "what is sound is no finding"
    assert [f"truncated: {one}" for one in found["truncated"]["examples"]][:9] == lines[:9]


def test_status_says_what_is_new_since_the_snapshot_before(own: Command) -> None:
    for _ in range(2):
        own(*BUILD)
    assert own("status", CATALOG, "--fail-on", "new").exit_code == 0
    cut(ORDERS)
    own(*BUILD)

    done = own("status", CATALOG, "--fail-on", "new", "--format", "json")

    found: dict[str, Any] = json.loads(done.stdout)
    assert found["changes"] == {"shrunk": 1, "status changed": 1}
    worst, *others = found["details"]
    assert (worst["level"], worst["count"], worst["new"]) == ("problem", 3, 1)
    assert worst["examples"][0].startswith(f"new: {ORDERS.removeprefix('mine/')}: at byte ")
    assert worst["command"] == f"kip33 dump {Path(ORDERS).absolute()}"
    assert [one["new"] for one in others if one["level"] == "problem"] == [0]
    assert (done.exit_code, f"new: {worst['text']}" in done.stderr) == (3, True)
    page = own("status", CATALOG).stdout
    assert f"problem, 1 new: {worst['text']}\n- {worst['examples'][0]}\n" in page
    report = own("report", CATALOG, "--output", "r.html", "--format", "json")
    assert json.loads(report.stdout)["details"] == found["details"]


def test_verify_shows_damaged_logs_whose_index_files_are_right(own: Command) -> None:
    own(*BUILD)
    asked = ("verify", "mine", "--index-dir", "indexes", "--topic", "clicks")

    done = own(*asked, "--fail-on", "damaged,problems", "--format", "json")

    found = json.loads(done.stdout)
    assert found["by_log_status"] == {"empty": 1, "truncated": 2, "invalid": 1}
    assert "exit 3: --fail-on damaged: 3 logs, problems: 3 segments\n" in done.stderr
    page = own(*asked).stdout
    rows = [[one.strip() for one in line.split("│")[1:-1]] for line in page.splitlines()]
    assert ["truncated", "0", "0", "0", "2"] in rows
    assert ["identical", "truncated"] in [[row[0], row[3]] for row in rows if len(row) == 6]


def test_missing_index_files_are_a_line_for_each_directory(own: Command) -> None:
    shutil.rmtree("mine/broker-2")
    done = own("verify", "mine")
    assert "no index files beside the logs; if they are elsewhere, give --index-dir" in done.stderr
    rows = [line for line in done.stdout.splitlines() if "without index files" in line]
    assert [row.split("│")[-2].split()[0] for row in rows] == ["2", "6", "6"]
    assert "broker-1/sensors-1/ " in rows[2]
    own(*BUILD)
    Path("indexes/broker-1/sensors-1/00000000000000000400.timeindex").unlink()
    again = own("verify", "mine", "--index-dir", "indexes")
    assert "sensors-1/00000000000000000400.timeindex" in again.stdout
    assert "no index files beside" not in again.stderr


def test_a_hole_that_grows_is_new(own: Command) -> None:
    for lost in (SENSORS[2], SENSORS[3]):
        Path(lost).unlink()
        own(*BUILD)
        own(*BUILD, "--full")
        assert own("status", CATALOG, "--fail-on", "new").exit_code == 0
    Path(SENSORS[4]).unlink()
    done = own(*BUILD, "--fail-on", "holes")
    assert "holes: new: broker-1/sensors-0: offsets 400 to 999, 600 missing\n" in done.stderr
    assert own("status", CATALOG, "--fail-on", "new").exit_code == 3


def test_a_run_that_is_not_complete_leaves_the_metrics_of_the_last_success(own: Command) -> None:
    assert own(*BUILD, "--metrics", "b.prom").exit_code == 0
    before = Path("b.prom").read_bytes()
    shutil.rmtree("indexes/broker-1")
    Path("indexes/broker-1").touch()  # no directory can be made here
    assert own(*BUILD, "--full", "--metrics", "b.prom").exit_code == 1
    assert Path("b.prom").read_bytes() == before
