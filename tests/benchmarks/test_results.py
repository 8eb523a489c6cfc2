"""The results have the required and the measured ratios, and those that became worse."""

from pathlib import Path

import pytest

from tests.benchmarks.ratios import Ratio
from tests.benchmarks.results import (
    FOLDER,
    ratios_of,
    read,
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


def test_the_readme_shows_what_was_measured() -> None:
    """Its table has five lines of the committed results."""
    readme = (PROJECT / "README.md").read_text()
    shown = readme.partition("\n## How fast\n")[2].partition("\n## ")[0]
    rows = [line for line in shown.splitlines() if line.startswith("| ")]
    measured = [ratio.line() for ratio in ratios_of(read(FOLDER / "full.json"))]
    assert len(rows[1:]) == 5
    assert set(rows[1:]) <= set(measured)
