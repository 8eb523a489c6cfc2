"""Restores into a log directory against `cp -r` of the same logs.

A restore also checks every CRC, builds the indexes and replays the producers. Complete commands,
the start of Python included, until all is on the disk. The two take turns in beginning a pair; the
disk is flushed before each clock starts.
"""

import itertools
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.benchmarks.archives import BROKER, Shape, link_archive
from tests.benchmarks.page import Section, tell
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.segments import MIB
from tests.benchmarks.timing import clocked
from tests.cli.console import KIP33

PAIRS: Final = 5
QUICK_PAIRS: Final = 2
AT_LEAST_PERCENT: Final = 80.0  # of the speed of cp
SHAPES: Final = (
    Shape("16 segments of 256 MiB", "batches-16k", 256 * MIB, 4, 4),
    Shape("4,000 segments of 256 KiB", "batches-16k", MIB // 4, 40, 100),
)
QUICK_SHAPES: Final = (Shape("8 segments of 128 MiB", "batches-16k", 128 * MIB, 4, 2),)


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure the archives and return their part of the page."""
    shapes, pairs = (QUICK_SHAPES, QUICK_PAIRS) if quick else (SHAPES, PAIRS)
    rows = [
        "| archive | restore, MB/s | `cp -r`, MB/s | % of the speed, each pair |",
        "|---|---:|---:|---:|",
    ]
    ratios = []
    for shape in shapes:
        restored, copied = race(shape, data, pairs=pairs)
        percents = [100 * copy / own for own, copy in zip(restored, copied, strict=True)]
        size = shape.segments * shape.segment_bytes / 1e6
        cells = (
            shape.title,
            *(f"{size / statistics.median(seconds):.0f}" for seconds in (restored, copied)),
            ", ".join(f"{percent:.0f}" for percent in sorted(percents)),
        )
        rows.append(f"| {' | '.join(cells)} |")
        median = statistics.median(percents)
        ratios.append(
            Ratio(f"restore of {shape.title}", "`cp -r`", median, "%", at_least=AT_LEAST_PERCENT)
        )
    notes = [
        "- Complete commands, until all is on the disk (`sync -f` after `cp -r`), in turns,",
        "  from a warm page cache.",
    ]
    return [Section("Restores", [*rows, "", *notes], ratios)]


def race(shape: Shape, data: Path, *, pairs: int) -> tuple[list[float], list[float]]:
    """Return the seconds of restores and of copies, after a first pair that is not counted."""
    tell(f"{shape.title}: restored and copied")
    archive = link_archive(shape, data / f"restores-{shape.segments}-{shape.segment_bytes}")
    restored, copied = [], []
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=data) as scratch:
        places = itertools.count()

        def seconds(*, copies: bool) -> float:
            target = Path(scratch) / str(next(places))
            subprocess.run(["sync", "-f", scratch], check=True)
            command = _copy(archive, target) if copies else _restore(archive, target)
            took = clocked(lambda: subprocess.run(command, check=True, capture_output=True))()
            shutil.rmtree(target)
            return took

        for number in range(pairs + 1):
            order = (True, False) if number % 2 else (False, True)
            took = {copies: seconds(copies=copies) for copies in order}
            if number:
                restored.append(took[False])
                copied.append(took[True])
                tell(f"  {took[False]:.2f} s restored, {took[True]:.2f} s copied")
    return restored, copied


def _copy(archive: Path, target: Path) -> list[str]:
    return ["sh", "-c", f"cp -r '{archive / BROKER}' '{target}' && sync -f '{target}'"]


def _restore(archive: Path, target: Path) -> list[str]:
    return [KIP33, "restore", str(archive / BROKER), "--to", str(target), "--engine", "local"]
