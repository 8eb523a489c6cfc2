"""Costs paid once: importing numba, compiling, loading compiled code or a shared library."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.benchmarks.kernels import PLACE, make_kernels
from tests.benchmarks.page import Section, tell
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.segments import KINDS, SegmentFile, write_segment

ROUNDS: Final = 5
SEGMENT_BYTES: Final = 64 << 20
AT_MOST_SECONDS: Final = 0.5
SCRIPT: Final = """
import json, sys, time
from kip33.stores.locations import Location
from kip33.rules.index_builder import IndexSettings
from kip33.indexing.segment import index_file

log = Location.of(sys.argv[1])

def index():
    begin = time.perf_counter()
    index_file(log, base_offset=0, topic="t", settings=IndexSettings(), native=True)
    return time.perf_counter() - begin

begin = time.perf_counter()
if sys.argv[2] == "numba":
    import numba
numba_there = time.perf_counter()
first = index()
second = min(index() for _ in range(3))
print(json.dumps({"import numba": numba_there - begin, "first index": first - second}))
"""


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure and return this part of the page: the first batch, including all loading."""
    tell("cold starts")
    file = write_segment(KINDS[0], data / "cold", size_bytes=SEGMENT_BYTES)
    with tempfile.TemporaryDirectory(prefix="kip33-kernels-") as kernels:
        make_kernels(kernels)
        rounds = [_round(file.path, kernels) for _ in range(1 if quick else ROUNDS)]
    median = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    lines = [
        "| the first segment costs more than a later one | seconds |",
        "|---|---:|",
        *(f"| {name} | {seconds:.2f} |" for name, seconds in median.items()),
        "",
        f"- Fresh processes, medians of {len(rounds)}; numba's import is in all but the first.",
    ]
    work = "first batch of a process, shared library, no cache"
    measured = median["shared library, no cache"]
    return [Section("Cold starts", lines, [Ratio(work, "", measured, "s", AT_MOST_SECONDS)])]


def _round(log: Path, kernels: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="kip33-numba-") as cache:
        loaded = in_fresh_process(log, cache, kernels)
        compiled = in_fresh_process(log, cache)
        cached = in_fresh_process(log, cache)
    return {
        "shared library, no cache": loaded["first index"],
        "numba, no cache": sum(compiled.values()),
        "numba, from its cache": sum(cached.values()),
    }


def cold_seconds(file: SegmentFile) -> dict[str, float]:
    """Return the seconds of each cost, each from a new process, without the work itself."""
    with tempfile.TemporaryDirectory(prefix="kip33-numba-") as cache:
        compiling = in_fresh_process(file.path, cache)
        loading = in_fresh_process(file.path, cache)
    return {
        "import numba": loading["import numba"],
        "compile, no cache": compiling["first index"],
        "load from numba's cache": loading["first index"],
    }


def in_fresh_process(log: Path, cache: str, kernels: str = "") -> dict[str, float]:
    """Run the script with numba's cache folder, and with the library's if there is one."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(log), "" if kernels else "numba"],
        env={**os.environ, "NUMBA_CACHE_DIR": cache, PLACE: kernels},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer
