"""The picture at the top of README.md shows what the commands print today."""

import re
import shlex
import tempfile
from pathlib import Path

import pytest

from tests.cli.console import PROJECT, Command
from tests.demo_picture import (
    COLUMNS,
    COMMANDS,
    PICTURE,
    PLACE,
    make_demo,
    svg_of,
    transcript,
)

SVG = PICTURE.read_text(encoding="utf-8")


@pytest.mark.integration
def test_the_picture_shows_what_the_commands_print(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m tests.demo_picture` draws it again."""
    with tempfile.TemporaryDirectory(prefix=Path(PLACE).name, dir=Path(PLACE).parent) as name:
        make_demo(Path(name))
        monkeypatch.chdir(name)
        monkeypatch.setenv("COLUMNS", str(COLUMNS))
        monkeypatch.setenv("FORCE_COLOR", "1")
        printed = transcript(Path(name), lambda arguments: command(*arguments).stdout)

    assert svg_of(printed) == SVG


def test_the_picture_loads_nothing_and_shows_a_damaged_file() -> None:
    assert re.findall(r"https?://[^\"]*|url\(|@import|href", SVG) == ["http://www.w3.org/2000/svg"]
    assert "0 correct entries, then 10,485,756 zero bytes" in SVG


def test_the_commands_are_those_of_the_demo() -> None:
    demo = (PROJECT / ".ci/demo").read_text().replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in demo.splitlines() if "kip33 " in line]
    of_the_demo = [line[line.index("kip33") + 1 :] for line in lines if "kip33" in line]
    assert [command for command in COMMANDS if shlex.split(command) not in of_the_demo] == []


def test_the_picture_is_at_the_top_of_the_readme() -> None:
    top = (PROJECT / "README.md").read_text().partition("\n## ")[0]
    assert f"({PICTURE.relative_to(PROJECT)})" in top
