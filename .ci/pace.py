"""The pace of this machine: how long a plain loop of Python takes, and what CI may take by that.

    python .ci/pace.py                             time the loop; print what it says of the machine
    python .ci/pace.py 1.5 venv=90 tests=170       how long each part took, and what 1.5 s allows

It informs. No test fails because a machine is slow.
"""

import sys
import time
from collections.abc import Mapping

FAST_S = 1.2  # a fast machine's loop
MINUTES = {"programs": 1, "venv": 2, "tests": 3, "integration": 24}  # of a fast machine
IN_ALL = 30


def report(pace_s: float, took: Mapping[str, int]) -> str:
    """Return a line for each part and one for all: its time, and the time that a pace allows."""
    rows = [(name, took[name], MINUTES[name]) for name in took]
    rows.append(("in all", sum(took.values()), IN_ALL))
    return "\n".join(
        f"{name:<12}{clock(seconds):>7} of {clock(round(60 * minutes * pace_s / FAST_S))}"
        for name, seconds, minutes in rows
    )


def clock(seconds: int) -> str:
    """Return minutes and seconds."""
    return f"{seconds // 60}:{seconds % 60:02d}"


if __name__ == "__main__":
    if len(sys.argv) == 1:
        since, total = time.perf_counter(), 0
        for number in range(20_000_000):  # at the level of the module: a function's is faster
            total += number
        pace_s = time.perf_counter() - since
        print(f"{pace_s:.2f}")
        said = f"the pace of this machine: {pace_s:.1f} s"
        print(f"{said}; {IN_ALL} minutes are asked of one that takes {FAST_S}", file=sys.stderr)
    else:
        pace, *parts = sys.argv[1:]
        took = {name: int(seconds) for name, seconds in (part.split("=") for part in parts)}
        print(f"time that each part took, of what a pace of {float(pace):.1f} s allows:")
        print(report(float(pace), took))
