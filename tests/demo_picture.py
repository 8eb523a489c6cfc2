"""The picture at the top of README.md: what commands of `make demo` print, as an SVG.

    python -m tests.demo_picture

runs them on the demo archive and writes `tests/demo_picture.svg`. What differs from run to run
(paths, seconds, a snapshot's id) is masked with text of the same length, so tables keep their form.
`tests/cli/test_demo_picture.py` compares the picture's text with what the commands print today.
"""

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.text import Text

from kip33.demo import make_archive, make_sensors

PICTURE = Path(__file__).with_suffix(".svg")
COMMANDS = {  # each with how many of its lines are shown
    "verify archive": 8,
    "build archive --index-dir indexes --offset-index": 14,
    "verify archive --index-dir indexes": 7,
    "search indexes/_catalog --time 2023-11-15T12:00Z --topic 'sens*' --topic orders": 8,
}
COLUMNS = 114
PLACE = "/tmp/kip33-"  # and eight characters of tempfile
SHOWN_PLACE = "/home/me/kip33/demo"
CHARACTER_WIDTH = 12.2  # of Rich's SVG


def masked(text: str, folder: Path) -> str:
    """Return what a command printed, with the same text in each run for what differs."""
    assert len(str(folder)) == len(SHOWN_PLACE), f"{folder}: tables would have another width"
    text = text.replace(str(folder), SHOWN_PLACE)
    text = re.sub(r"([0-9]{20})-[0-9a-f]{12}", r"\1-4f0c91aa5c1e", text)
    text = re.sub(r"(?<=│ seconds       │ )[0-9.]+", lambda s: "2.5".ljust(len(s[0])), text)
    return re.sub(r"in [0-9.]+ s$", "in 0.1 s", text, flags=re.MULTILINE)


def transcript(folder: Path, run: Callable[[list[str]], str]) -> list[str]:
    """Return the commands and the beginnings of what they print; `run` gives standard output."""
    lines: list[str] = []
    for command, most in COMMANDS.items():
        printed = masked(run(shlex.split(command)), folder).splitlines()
        lines += [f"$ kip33 {command}", *(line.rstrip() for line in printed[:most])]
        lines += ["..."] if len(printed) > most else []
        lines += [""]
    return lines[:-1]


def svg_of(lines: list[str]) -> str:
    """Return the picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    for line in lines:
        console.print(Text(line, style="bold" if line.startswith("$ ") else ""), soft_wrap=True)
    svg = console.export_svg(title="kip33", unique_id="kip33")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def text_of(svg: str) -> list[str]:
    """Return the lines that a picture shows."""
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    rows = (
        (int(clip[1]), round(float(text.get("x", 0)) / CHARACTER_WIDTH), text.text or "")
        for text in texts
        if (clip := re.search(r"line-([0-9]+)", text.get("clip-path", "")))
    )
    shown: dict[int, str] = {}
    for number, parts in groupby(sorted(rows), key=lambda row: row[0]):
        line = ""
        for _, column, part in parts:
            line = line.ljust(column) + part.strip("\n")
        shown[number] = line.replace("\xa0", " ").rstrip()
    return [shown.get(number, "") for number in range(max(shown) + 1)]


def make_demo(folder: Path) -> None:
    """Write the archive of the demo below a folder."""
    make_archive(folder / "archive")
    make_sensors(folder / "archive")


def main() -> None:
    program = Path(sys.executable).with_name("kip33")
    with tempfile.TemporaryDirectory(prefix=Path(PLACE).name, dir=Path(PLACE).parent) as name:
        make_demo(Path(name))

        def run(arguments: list[str]) -> str:
            command = [program, *arguments]
            environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
            return subprocess.run(
                command, cwd=name, env=environment, check=True, stdout=subprocess.PIPE, text=True
            ).stdout

        PICTURE.write_text(svg_of(transcript(Path(name), run)), encoding="utf-8")
    print(f"wrote {PICTURE}")


if __name__ == "__main__":
    main()
