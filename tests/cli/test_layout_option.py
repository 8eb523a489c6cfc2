"""`--layout` of build and verify, by name, pattern and configuration; what `catalog` then shows."""

import json
from pathlib import Path

from tests.builders.layout_segments import made_segments
from tests.builders.layouts import PATTERN, aiven, own
from tests.cli.console import Command

TWICE = (*made_segments(), made_segments()[0]._replace(upload=1))
AIVEN = ("tiered", "--layout", "aiven")


def test_built_verified_searched_and_shown(command: Command) -> None:
    aiven(Path("tiered"), TWICE, compressed=True)
    built = command("build", *AIVEN, "--index-dir", "i", "--format", "json")
    assert (built.exit_code, built.lines[0]["by_status"]) == (0, {"ok": 6})
    verified = command("verify", *AIVEN, "--index-dir", "i", "--format", "json")
    assert verified.lines[0]["by_verdict"] == {"identical": 6}
    beside = command("verify", *AIVEN, "--format", "json")
    assert beside.lines[0]["segments"] == 6
    assert "missing" not in beside.lines[0]["by_verdict"]  # in .indexes they are, empty ones
    time = "--time", "2023-11-14T22:13:21Z"
    found = command("search", "i/_catalog", "--topic", "orders", *time, "--format", "jsonl")
    assert "overlaps an earlier segment" in found.lines[0]["note"]
    [shown] = command("catalog", "i/_catalog", "--format", "json").lines
    assert {one["topic"]: one["overlaps"] for one in shown["topics"]} == {
        "audit": {}, "orders": {"same base offset": 1}, "pay.ments-2": {},
    }  # fmt: skip
    table = command("catalog", "i/_catalog").stdout
    assert "overlaps" in table
    refused = command("build", "tiered", "--index-dir", "i", "--layout", "local-tiered")
    assert refused.exit_code == 2
    assert "a catalog has one layout: give another --catalog" in refused.stderr
    Path("policy.toml").write_text('[defaults]\n"cleanup.policy" = "delete"\n"retention.ms" = 1\n')
    asked = ("retention", "i/_catalog", "--policy", "policy.toml", "--format", "jsonl")
    judged = command(*asked)
    assert {line["kind"] for line in judged.lines} >= {"segment", "partition"}
    planned = command(*asked, "--plan", "plan.jsonl")
    assert planned.exit_code == 2
    assert "remote log metadata would point to missing" in planned.stderr
    assert not Path("plan.jsonl").exists()


def test_a_pattern_from_a_configuration_file(command: Command) -> None:
    own(Path("mine"), made_segments())
    Path("own.toml").write_text(f"layout = {json.dumps(PATTERN)}\n")
    given = ("--index-dir", "i", "--config", "own.toml", "--format", "json")
    assert command("build", "mine", *given).lines[0]["by_status"] == {"ok": 5}
    assert command("verify", "mine", *given).lines[0]["by_verdict"] == {"identical": 5}


def test_in_place_is_refused_in_one_line(command: Command) -> None:
    aiven(Path("tiered"), made_segments())
    done = command("build", *AIVEN, "--in-place", "--catalog", "c")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "--in-place: the layout 'aiven' has no index files beside logs" in done.stderr
