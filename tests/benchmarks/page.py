"""A section of the results: what a benchmark found, as a table, as ratios and as points to draw."""

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.benchmarks.ratios import Ratio

Points = Mapping[str, Sequence[tuple[float, float]]]
"""Curves by name, each of (x, y)."""


class Curves(NamedTuple):
    """The growth of a figure: one panel of the drawing."""

    title: str
    x: str
    y: str
    points: Points


class Section(NamedTuple):
    """A heading, the Markdown below it, and its lines of the table of ratios and of the drawing."""

    title: str
    lines: Sequence[str]
    ratios: Sequence[Ratio] = ()
    curves: Sequence[Curves] = ()


def tell(what: str) -> None:
    """Print on standard error what is measured now."""
    print(what, file=sys.stderr, flush=True)
