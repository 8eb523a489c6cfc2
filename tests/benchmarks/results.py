"""The files of the results: one JSON file, from which the page and the drawing are made.

    results/full.json   full.md   full.svg      `make bench`
    results/quick.json  quick.md                `make bench-quick`; not committed

Each section of the JSON has its Markdown `lines`, `ratios` and `curves`, so one group can be
measured again while the others stay.
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.machine import description
from tests.benchmarks.page import Curves, Section
from tests.benchmarks.ratios import Ratio, fallen, table

FOLDER: Final = Path(__file__).with_name("results")
PREAMBLE: Final = (
    "Written by `make bench`. Read the ratios: both sides of one were timed within seconds of each",
    "other, and medians of rounds in which all contestants take turns are shown.",
)
Results = dict[str, Any]


def merged(before: Results, sections: Sequence[Section]) -> Results:
    """Return the results, with these sections replacing those with the same titles.

    A section that was measured on another machine than the rest says so.
    """
    machine = description()
    rest = before.get("machine", machine)
    note = [] if machine[0] == rest[0] else [f"- Measured on {machine[0]}."]
    new = {
        section.title: {
            "lines": [*section.lines, *note],
            "ratios": [ratio._asdict() for ratio in section.ratios],
            "curves": [curves._asdict() for curves in section.curves],
        }
        for section in sections
    }
    return {"machine": rest, "sections": before.get("sections", {}) | new}


def read(file: Path) -> Results:
    """Return the content of a file, or no results if the file does not exist."""
    found: Results = json.loads(file.read_text()) if file.exists() else {}
    return found


def committed(file: Path) -> Results:
    """Return the content in the last commit of a file below FOLDER, or no results."""
    name = f"HEAD:./{file.parent.name}/{file.name}"
    shown = subprocess.run(
        ["git", "show", name], cwd=file.parent.parent, capture_output=True, check=False
    )
    found: Results = json.loads(shown.stdout) if shown.returncode == 0 else {}
    return found


def to_json(results: Results) -> str:
    """Return the text of a file with one line per value, so that diffs are readable."""
    return json.dumps(results, indent=1) + "\n"


def ratios_of(results: Results) -> list[Ratio]:
    """Return all ratios, section after section."""
    sections = results.get("sections", {}).values()
    return [Ratio(**ratio) for section in sections for ratio in section["ratios"]]


def curves_of(results: Results) -> list[Curves]:
    """Return all curves, section after section."""
    sections = results.get("sections", {}).values()
    return [Curves(**curves) for section in sections for curves in section["curves"]]


def worse(results: Results, before: Results) -> list[str]:
    """Return a line for each ratio that fell by more than a quarter."""
    old = {ratio.name: ratio.measured for ratio in ratios_of(before)}
    return fallen(old, ratios_of(results))


def page(results: Results, before: Results, drawing: str | None) -> str:
    """Return the Markdown page; `before` has the results in the last commit."""
    lines = ["# Measured", "", *PREAMBLE, "", *(f"- {line}" for line in results["machine"]), ""]
    lines += ["## What was to be reached", "", *table(ratios_of(results)), ""]
    if before:
        told = worse(results, before) or ["nothing"]
        lines += ["Fell by more than a quarter since the results before:", ""]
        lines += [*(f"- {line}" for line in told), ""]
    if drawing:
        lines += ["## Growth", "", f"![how cost grows]({drawing})", ""]
    for title, section in results["sections"].items():
        lines += [f"## {title}", "", *section["lines"], ""]
    return "\n".join(lines)
