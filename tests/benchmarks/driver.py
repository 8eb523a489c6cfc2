"""A driver in its own process: it plans a build, or runs it in its own session.

    python -m tests.benchmarks.driver plan|build SOURCE INDEX_DIR

Prints the seconds without imports and Spark's start. It imports no more than `kip33 build`, because
its memory is measured.
"""

import sys
import time
from typing import Final

NOW_MS: Final = 1_800_000_000_000
CORES: Final = 2


def main() -> None:
    command, source, index_dir = sys.argv[1:]
    print(plan(source, index_dir) if command == "plan" else build(source, index_dir))


def plan(source: str, index_dir: str) -> float:
    """Plan a build without importing Spark."""
    from tests.builders.plans import plan_build

    begin = time.perf_counter()
    plan_build(source, index_dir, now_ms=NOW_MS)
    return time.perf_counter() - begin


def build(source: str, index_dir: str) -> float:
    """Build an archive of empty segments."""
    from kip33.spark.build import build_index
    from kip33.spark.session import create_session

    spark = create_session(master=f"local[{CORES}]")
    begin = time.perf_counter()
    summary = build_index(spark, source, index_dir, now_ms=NOW_MS)
    seconds = time.perf_counter() - begin
    spark.stop()
    if summary.by_status != {"empty": summary.segments}:
        raise ValueError(f"{source}: {summary}")
    return seconds


if __name__ == "__main__":
    main()
