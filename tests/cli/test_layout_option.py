"""`--layout` of build and verify, by name, pattern and configuration; what `catalog` then shows."""

import json
from pathlib import Path

from tests.builders.layout_segments import made_segments
from tests.builders.layouts import PATTERN, own
from tests.cli.console import Command


def test_a_pattern_from_a_configuration_file(command: Command) -> None:
    own(Path("mine"), made_segments())
    Path("own.toml").write_text(f"layout = {json.dumps(PATTERN)}\n")
    given = ("--index-dir", "i", "--config", "own.toml", "--format", "json")
    assert command("build", "mine", *given).lines[0]["by_status"] == {"ok": 5}
    assert command("verify", "mine", *given).lines[0]["by_verdict"] == {"identical": 5}
