"""A Spark session on two cores, and what its first job takes beyond a later one."""

import tempfile
import time
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from kip33.spark.build import build_index
from kip33.spark.session import create_session
from tests.benchmarks.segments import SegmentFile, link_copies
from tests.benchmarks.timing import clocked

CORES: Final = 2
NOW_MS: Final = 1_800_000_000_000


def start_session() -> tuple[SparkSession, float]:
    """Return a session on two cores and the seconds of its start."""
    begin = time.perf_counter()
    spark = create_session(master=f"local[{CORES}]")
    return spark, time.perf_counter() - begin


def first_job_seconds(spark: SparkSession, file: SegmentFile, folder: Path) -> float:
    """Return the seconds of a session's first build, on a single segment: it starts the workers."""
    link_copies(file, folder / "first" / "source", 1)
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=folder) as scratch:
        source = str(folder / "first" / "source")
        return clocked(lambda: build_index(spark, source, scratch, now_ms=NOW_MS))()
