"""The results have the required and the measured ratios, and those that became worse."""

from pathlib import Path

import pytest

from tests.benchmarks.page import Curves, Section
from tests.benchmarks.ratios import Ratio, fallen
from tests.benchmarks.results import (
    FOLDER,
    curves_of,
    merged,
    page,
    ratios_of,
    read,
    to_json,
    worse,
)

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("ratio", "met"),
    [
        (Ratio("a", "b", 2.1, at_least=1.8, aim=2), "aim met"),
        (Ratio("a", "b", 1.9, at_least=1.8, aim=2), "met"),
        (Ratio("a", "b", 1.7, at_least=1.8, aim=2), "**missed**"),
        (Ratio("a", "b", 1.7), ""),
        (Ratio("a", "", 0.2, "s", at_least=0.3), "met"),
        (Ratio("a", "", 0.4, "s", at_least=0.3), "**missed**"),
        (Ratio("a", "", 5.5, "ms", at_least=6), "met"),
        (Ratio("a", "size", 2.5, "% of bytes", at_least=2), "**missed**"),
        (Ratio("a", "b", 59.0, "%", at_least=60), "**missed**"),
    ],
)
def test_what_was_asked_for_is_met_or_missed(ratio: Ratio, met: str) -> None:
    assert ratio.met == met


def test_a_line_has_what_was_asked_for_and_what_came_out() -> None:
    one = Ratio("path", "Kafka", 11.06, at_least=15, aim=20)
    assert one.line() == "| path | Kafka | 15.0 x, aim 20.0 x | 11.1 x | **missed** |"
    other = Ratio("memory", "", 230.4, "MiB", at_least=400)
    assert other.line() == "| memory |  | at most 400 MiB | 230 MiB | met |"


@pytest.mark.parametrize(
    ("before", "now", "unit", "told"),
    [
        (4.0, 3.01, "x", False),
        (4.0, 2.99, "x", True),
        (4.0, 40.0, "x", False),
        (0.20, 0.24, "s", False),
        (0.20, 0.26, "s", True),
        (0.20, 0.02, "s", False),
    ],
)
def test_what_fell_by_more_than_a_quarter_is_told(
    before: float, now: float, unit: str, told: bool
) -> None:
    lines = fallen({"a / b": before}, [Ratio("a", "b", now, unit), Ratio("new", "b", 1.0)])
    assert bool(lines) is told


def test_a_group_that_is_measured_anew_leaves_the_others() -> None:
    curves = Curves("grows", "n", "seconds", {"first": [(1, 2.0), (10, 3.0)]})
    both = [Section("A", ["a"], [Ratio("a", "k", 4.0)]), Section("B", ["b"], [], [curves])]
    before = merged({}, both)

    now = merged(before, [Section("A", ["new"], [Ratio("a", "k", 2.0)])])

    assert [ratio.measured for ratio in ratios_of(now)] == [2.0]
    assert curves_of(now)[0].title == "grows"
    assert worse(now, before) == ["a / k: 2.0 x, 4.0 x before"]
    text = page(now, before, "full.svg")
    assert "- a / k: 2.0 x, 4.0 x before" in text
    assert "\n## A\n\nnew\n" in text
    assert "\n## B\n\nb\n" in text


def test_a_file_gives_what_was_written(tmp_path: Path) -> None:
    ratio = Ratio("a", "b", 1.5, "%", 60, 80)
    found = merged({}, [Section("A", ["a"], [ratio])])
    file = tmp_path / "full.json"
    assert read(file) == {}

    file.write_text(to_json(found))

    assert ratios_of(read(file)) == [ratio]


def test_the_readme_shows_what_was_measured() -> None:
    """Its table consists of lines of the committed results."""
    readme = (PROJECT / "README.md").read_text()
    shown = readme.partition("\n## How fast\n")[2].partition("\n## ")[0]
    rows = [line for line in shown.splitlines() if line.startswith("| ")]
    measured = [ratio.line() for ratio in ratios_of(read(FOLDER / "full.json"))]
    assert len(rows) > 5
    assert set(rows[1:]) <= set(measured)
