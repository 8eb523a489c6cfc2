"""A section of the results: what a benchmark found, as a table, as ratios and as points to draw."""

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.benchmarks.ratios import Ratio

Points = Mapping[str, Sequence[tuple[float, float]]]
"""Curves by name, each of (x, y)."""


class Curves(NamedTuple):
    """How something grows: a panel of the drawing."""

    title: str
    x: str
    y: str
    points: Points


class Section(NamedTuple):
    """A heading, the Markdown below it, and what it adds to the table of ratios and the drawing."""

    title: str
    lines: Sequence[str]
    ratios: Sequence[Ratio] = ()
    curves: Sequence[Curves] = ()


def tell(what: str) -> None:
    """Say on standard error what is measured now."""
    print(what, file=sys.stderr, flush=True)
