"""The curves of the results as one drawing; both axes are logarithmic."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.figure import Figure

from tests.benchmarks.page import Curves

COLUMNS: Final = 3
PANEL_INCHES: Final = (4.6, 3.4)


def draw(curves: Sequence[Curves], file: Path) -> None:
    """Draw one panel for each set of curves; the same figures give the same bytes."""
    mpl.rcParams["svg.hashsalt"] = "kip33"
    mpl.rcParams["svg.fonttype"] = "none"  # text, not the outlines of each letter
    rows = -(-len(curves) // COLUMNS)
    width, height = PANEL_INCHES
    figure = Figure(figsize=(COLUMNS * width, rows * height), layout="constrained")
    for number, panel in enumerate(curves, 1):
        axes = figure.add_subplot(rows, COLUMNS, number)
        for name, points in panel.points.items():
            axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=name)
        axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y, xscale="log", yscale="log")
        axes.grid(which="major", alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(file, format="svg", metadata={"Date": None})
