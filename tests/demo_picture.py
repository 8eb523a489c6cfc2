"""The picture at the top of README.md and of the site: what `make demo` prints, as an SVG.

    python -m tests.demo_picture

runs them on the demo archive and writes `kip33/docs/pictures/demo.svg`. What differs from run to
run (paths, seconds, a snapshot's id) is masked with text of the same length, so tables keep their
form. Frames are drawn as lines, so that they have no gaps, and nothing is loaded from elsewhere.
`tests/cli/test_demo_picture.py` compares the picture with what the commands print today.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

from kip33.demo import make_archive, make_sensors

PICTURE = Path(__file__).parents[1] / "kip33/docs/pictures/demo.svg"
COMMANDS = {  # each with those of its lines that are left out
    "verify archive": r"│ missing +│ -|│ wrong +│ -|^│   (?!problems: 0)",
    "build archive --index-dir indexes --offset-index": r"│ (snapshot|reused|log bytes)",
    "verify archive --index-dir indexes": r"log|^│  |clicks-2|^[┏┡└].*[┳╇┴](.*[┳╇┴]){3}|^│   prob",
    "search indexes/_catalog --time 2023-11-15T12:00Z --topic 'sens*' --topic orders": "^$",
}
COLUMNS = 106
PLACE = "/tmp/kip33-"  # and eight characters of tempfile
SHOWN_PLACE = "/home/me/kip33/demo"
WIDTH, HEIGHT, MARGIN = 8.4, 19, 16  # of a character, of a line, around all of them
LIGHT, HEAVY = 1, 2
FRAMES = {  # to the left, to the right, up, down
    **{"━": (HEAVY, HEAVY, 0, 0), "─": (LIGHT, LIGHT, 0, 0), "┃": (0, 0, HEAVY, HEAVY)},
    **{"│": (0, 0, LIGHT, LIGHT), "┏": (0, HEAVY, 0, HEAVY), "┓": (HEAVY, 0, 0, HEAVY)},
    **{"┳": (HEAVY, HEAVY, 0, HEAVY), "┡": (0, HEAVY, HEAVY, LIGHT), "└": (0, LIGHT, LIGHT, 0)},
    **{"┩": (HEAVY, 0, HEAVY, LIGHT), "╇": (HEAVY, HEAVY, HEAVY, LIGHT)},
    **{"┘": (LIGHT, 0, LIGHT, 0), "┴": (LIGHT, LIGHT, LIGHT, 0)},
}
STYLE = re.compile(r"\x1b\[(\d+)m")
STYLES = {"0": "", "1": "bold", "31": "red", "33": "yellow"}
WORDS = re.compile(rf"(?:(?!  )[^{''.join(FRAMES)}])+")
CSS = """
rect { fill: #10151c } text { fill: #d3dae3; white-space: pre; font: 14px ui-monospace, Menlo,
Consolas, "DejaVu Sans Mono", monospace } .bold { font-weight: bold; fill: #fff }
.red { fill: #ff7b72 } .yellow { fill: #e8b64c } path { stroke: #7a8594; fill: none }
"""


def masked(text: str, folder: Path) -> str:
    """Return what a command printed, with the same text in each run for what differs."""
    assert len(str(folder)) == len(SHOWN_PLACE), f"{folder}: tables would have another width"
    text = text.replace(str(folder), SHOWN_PLACE)
    text = re.sub(r"([0-9]{20})-[0-9a-f]{12}", r"\1-4f0c91aa5c1e", text)
    text = re.sub(r"(?<=│ seconds       │ )[0-9.]+", lambda s: "0.3".ljust(len(s[0])), text)
    return re.sub(r"in [0-9.]+ s$", "in 0.1 s", text, flags=re.MULTILINE)


def transcript(folder: Path, run: Callable[[list[str]], str]) -> list[str]:
    """Return the commands and what is shown of their output; `run` gives standard output."""
    lines: list[str] = []
    for command, left_out in COMMANDS.items():
        printed = masked(run(shlex.split(command)), folder).splitlines()
        shown = [line for line in printed if not re.search(left_out, STYLE.sub("", line))]
        lines += [f"\x1b[1m$ kip33 {command}\x1b[0m", *(line.rstrip() for line in shown)]
        lines += ["...", ""] if len(shown) < len(printed) else [""]
    return lines[:-1]


def svg_of(lines: list[str]) -> str:
    """Return the picture of lines with the styles of a terminal."""
    width = COLUMNS * WIDTH + 2 * MARGIN
    height = len(lines) * HEIGHT + 2 * MARGIN
    said = escape("\n".join(STYLE.sub("", line) for line in lines))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}">',
        f"<title>kip33</title><desc>{said}</desc><style>{CSS}</style>",
        f'<rect width="{width:g}" height="{height}" rx="8"/>',
        *texts_of(lines),
        *frames_of([STYLE.sub("", line) for line in lines]),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def texts_of(lines: list[str]) -> Iterator[str]:
    """Yield the words, each run of them in its place and as wide as in a terminal."""
    for row, line in enumerate(lines):
        column, style = 0, ""
        for number, part in enumerate(STYLE.split(line)):
            if number % 2:
                style = STYLES[part]
                continue
            for found in WORDS.finditer(part):
                text = found[0].rstrip()
                blanks = len(text) - len(text.lstrip())
                if text.strip():
                    x = MARGIN + (column + found.start() + blanks) * WIDTH
                    y = MARGIN + (row + 0.75) * HEIGHT
                    length = len(text.strip()) * WIDTH
                    class_ = f' class="{style}"' if style else ""
                    yield (
                        f'<text x="{x:.1f}" y="{y:.1f}" textLength="{length:.1f}"{class_}>'
                        f"{escape(text.strip())}</text>"
                    )
            column += len(part)


def frames_of(lines: list[str]) -> Iterator[str]:
    """Yield a path of the light lines of frames, and one of the heavy ones."""
    pieces: dict[tuple[int, str, float], list[float]] = defaultdict(list)  # where each begins
    for row, line in enumerate(lines):
        for column, character in enumerate(line):
            x, y = MARGIN + column * WIDTH, MARGIN + row * HEIGHT
            left, right, up, down = FRAMES.get(character, (0, 0, 0, 0))
            for weight, start in ((left, x), (right, x + WIDTH / 2)):
                pieces[weight, "h", y + HEIGHT / 2].append(start)
            for weight, start in ((up, y), (down, y + HEIGHT / 2)):
                pieces[weight, "v", x + WIDTH / 2].append(start)
    for of_weight in (LIGHT, HEAVY):
        path = ""
        for (weight, way, place), starts in pieces.items():
            if weight == of_weight:
                half = WIDTH / 2 if way == "h" else HEIGHT / 2
                for start, end in joined(starts, half):
                    x, y = (start, place) if way == "h" else (place, start)
                    path += f"M{x:.1f} {y:.1f}{way}{end - start:.1f}"
        yield f'<path stroke-width="{of_weight}" stroke-linecap="square" d="{path}"/>'


def joined(starts: list[float], length: float) -> Iterator[tuple[float, float]]:
    """Yield the lines that pieces of a length make, which begin at these places."""
    places = sorted(starts)
    begin = places[0]
    for one, following in pairwise([*places, float("inf")]):
        if following > one + length + 0.1:
            yield begin, one + length
            begin = following


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
            environment = os.environ | {"COLUMNS": str(COLUMNS), "FORCE_COLOR": "1"}
            return subprocess.run(
                command, cwd=name, env=environment, check=True, stdout=subprocess.PIPE, text=True
            ).stdout

        PICTURE.write_text(svg_of(transcript(Path(name), run)), encoding="utf-8")
    print(f"wrote {PICTURE}")


if __name__ == "__main__":
    main()
