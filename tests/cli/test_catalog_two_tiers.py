"""`kip33 catalog LOCAL REMOTE`: what is in which tier, and what is wrong between the tiers."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.builders.two_tiers import (
    BOTH,
    GONE,
    NEWEST,
    OLDEST,
    OTHER_TIMES,
    PLAIN,
    built,
    stored,
)
from tests.cli.console import Command

LATER = stored("orders", 10, 900, 950)


@pytest.fixture
def healthy(tmp_path: Path) -> tuple[Path, Path]:
    return built(tmp_path, [BOTH, NEWEST, PLAIN], [OLDEST, BOTH, GONE])


def found(command: Command, *arguments: Any) -> Any:
    done = command("catalog", *arguments, "--format", "json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_healthy_pair_has_no_finding(
    command: Command, healthy: tuple[Path, Path], swapped: bool
) -> None:
    answer = found(command, *(reversed(healthy) if swapped else healthy))
    names = ("topic", "only_remote", "copies", "only_local", "remote_first_offset")
    assert [tuple(row[name] for name in names) for row in answer["partitions"]] == [
        ("gone", 1, 0, 0, 0),
        ("orders", 1, 1, 1, 0),
        ("plain", 0, 0, 1, None),
    ]
    assert answer["findings"] == []
    assert [Path(answer[tier]["catalog"]).parent.name for tier in ("local", "remote")] == [
        "local",
        "remote",
    ]


def test_what_is_wrong_is_named_with_what_to_do(command: Command, tmp_path: Path) -> None:
    places = built(tmp_path, [BOTH, LATER], [OLDEST, OTHER_TIMES])
    answer = found(command, *places, "--topic", "orders")
    rows = [(row["finding"], row["first_offset"], row["last_offset"]) for row in answer["findings"]]
    assert rows == [("hole", 6, 9), ("difference", 3, 5)]
    hole, difference = answer["findings"]
    assert Path(hole["segments"][1]).name == f"{10:020d}.log"
    local, remote = difference["segments"]
    assert "/disks/" in local and "/bucket/" in remote
    assert "kip33 dump" in difference["advice"]


def test_the_segments_of_both_tiers(command: Command, healthy: tuple[Path, Path]) -> None:
    asked = ("--segments", "--topic", "orders", "--status", "ok", "--format", "jsonl")
    rows = command("catalog", *healthy, *asked).lines
    names = ("tier", "base_offset", "is_copy", "is_different", "until_offset", "status")
    assert [tuple(row[name] for name in names) for row in rows[:-1]] == [
        ("remote", 0, False, False, None, "ok"),
        ("local", 3, False, False, None, "ok"),
        ("remote", 3, True, False, None, "ok"),
        ("local", 6, False, False, None, "ok"),
    ]
    assert rows[-1]["by_status"] == {"ok": 4}
    page = command("catalog", *healthy, "--segments").stdout
    assert "│ remote │ copy" in page
    none = command("catalog", *healthy, "--segments", "--status", "invalid", "--format", "jsonl")
    assert none.lines[0]["by_status"] == {}


def test_what_needs_one_catalog_is_refused_in_one_line(
    command: Command, healthy: tuple[Path, Path], subtests: pytest.Subtests
) -> None:
    for places, options, error in [
        ("LR", ["--snapshot", "1"], "--snapshot requires one CATALOG, two found"),
        ("LR", ["--diff", "1", "2"], "--diff requires one CATALOG, two found"),
        ("LR", ["--keep", "1"], "--keep requires one CATALOG, two found"),
        ("LR", ["--path"], "--path requires one CATALOG, two found"),
        ("LR", ["--orphans"], "--orphans requires one CATALOG, two found"),
        ("LR", ["--orphans", "--plan", "x.jsonl"], "--orphans requires one CATALOG, two found"),
        ("LR", ["--status", "ok"], "--status requires --segments"),
        ("LR", ["--policy", "x.toml"], "--policy requires --holes"),
        ("LR", ["--topic", "none"], "none"),
        ("LL", [], "two catalogs of the local tier found, expected one of log directories"),
        ("RR", [], "two catalogs of the remote tier found, expected one of log directories"),
    ]:
        with subtests.test(f"{places}"):
            by_letter = dict(zip("LR", healthy, strict=True))
            done = command("catalog", *(by_letter[letter] for letter in places), *options)
            assert done.exit_code == 2
            assert error in done.stderr.splitlines()[-1]
            assert not Path("x.jsonl").exists()


def test_the_holes_are_those_of_both_tiers(command: Command, tmp_path: Path) -> None:
    places = built(tmp_path, [BOTH, LATER], [NEWEST, OLDEST])
    holes = found(command, *places, "--holes")["holes"]
    assert [(row["first_offset"], row["last_offset"], row["hole"]) for row in holes] == [
        (8, 9, "certain")
    ]
    policy = tmp_path / "policy.toml"
    policy.write_text('[defaults]\ncleanup.policy = "compact"\n')
    holes = found(command, *places, "--holes", "--policy", policy)["holes"]
    assert [row["hole"] for row in holes] == ["possible"]


def test_a_report_has_the_findings_and_the_command_that_shows_them(
    command: Command, tmp_path: Path
) -> None:
    local, remote = built(tmp_path, [BOTH, LATER], [OLDEST, OTHER_TIMES])
    given = ("report", local, "--output", "r.html", "--format", "json")
    alone, both = (command(*given, *more).lines[0] for more in ((), ("--remote", remote)))
    added = [one for one in both["details"] if one not in alone["details"]]
    assert [(one["level"], one["text"].partition(":")[0]) for one in added] == [
        ("problem", "1 hole in the log of both tiers"),
        ("problem", "1 segment not the same in both tiers"),
    ]
    assert "orders-0: offsets 6 to 9, 0000" in added[0]["examples"][0]
    assert added[0]["text"] in " ".join(Path("r.html").read_text().split())
    words = shlex.split(added[0]["command"])
    assert "1 hole, 1 difference" in command(*words[1:]).stdout
