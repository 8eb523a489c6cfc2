"""`--layout` of build and verify, by name, pattern and configuration; what `catalog` then shows."""

import json
from pathlib import Path

from tests.builders.layout_segments import made_segments
from tests.builders.layouts import PATTERN, aiven, own
from tests.cli.console import Command

AIVEN = ("tiered", "--layout", "aiven")


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
