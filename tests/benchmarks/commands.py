"""How long small commands take, measured from the shell."""

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.benchmarks.page import Section, tell
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.segments import KINDS, write_segment

KIP33: Final = Path(sys.executable).with_name("kip33")
SMALL_BYTES: Final = 100 << 10
ROUNDS: Final = 7


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure and return this part of the page."""
    tell("small commands")
    small = write_segment(KINDS[0], data / "small", size_bytes=SMALL_BYTES).path
    wanted = {
        ("--help",): 0.3,
        ("dump", str(small)): 0.6,
        ("verify", str(small)): 0.6,
    }
    ratios, rows = [], ["| command | seconds | the first time |", "|---|---:|---:|"]
    for arguments, at_most in wanted.items():
        first, *others = (seconds(arguments) for _ in range(ROUNDS + 1))
        name = f"`kip33 {arguments[0]}`" + (" of a 100 KiB segment" if arguments[1:] else "")
        median = statistics.median(others)
        ratios.append(Ratio(name, "", median, "s", at_least=at_most))
        rows.append(f"| {name} | {median:.2f} | {first:.2f} |")
    return [Section("Small commands", [*rows, "", f"- Medians of {ROUNDS}."], ratios)]


def seconds(arguments: tuple[str, ...]) -> float:
    """Return how long the command takes."""
    begin = time.perf_counter()
    subprocess.run([KIP33, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin
