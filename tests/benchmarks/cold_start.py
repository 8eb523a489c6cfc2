"""Costs paid once without a shared library: numba's import, compiling, loading compiled code."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.benchmarks.kernels import PLACE
from tests.benchmarks.segments import SegmentFile

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
import numba
numba_there = time.perf_counter()
first = index()
second = min(index() for _ in range(3))
print(json.dumps({"import numba": numba_there - begin, "first index": first - second}))
"""


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


def in_fresh_process(log: Path, cache: str) -> dict[str, float]:
    """Run the script with numba's cache folder."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(log)],
        env={**os.environ, "NUMBA_CACHE_DIR": cache, PLACE: ""},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer
