"""A driver in its own process that judges a synthetic catalog and prints the seconds as JSON.

    python -m tests.benchmarks.retention_driver CATALOG OUTPUT

Imports are not counted; Spark's start is a separate figure. The first judgement is cold, like that
of every night.
"""

import json
import shutil
import sys
import time
from collections.abc import Callable
from typing import Final

from kip33.catalog.catalog import Catalog
from kip33.retention.evaluated_tables import totals_of
from kip33.retention.evaluation import RetentionRequest
from kip33.rules.policies import Policies
from kip33.spark import evaluate_retention, freed_by, load_catalog
from kip33.spark.catalog import written
from kip33.spark.retention import COLUMNS_FOR_SUMS, sums_of_snapshot
from kip33.spark.session import create_session
from kip33.stores.locations import Location
from tests.benchmarks.made_catalogs import DEFAULTS, HOUR_MS, NOW_MS

CORES: Final = 2
POLICIES: Final = Policies({"defaults": DEFAULTS})


def main() -> None:
    catalog, output = sys.argv[1:]
    begin = time.perf_counter()
    spark = create_session(master=f"local[{CORES}]")
    start = time.perf_counter() - begin

    def judged(*columns: str):
        rows = load_catalog(spark, catalog).select(*(columns or ("*",)))
        return evaluate_retention(rows, POLICIES, now_ms=NOW_MS)

    def summed() -> None:
        opened = Catalog.at(catalog)
        asked = RetentionRequest(POLICIES, NOW_MS)
        sums = sums_of_snapshot(spark, opened, opened.require_newest(), asked)
        totals = totals_of(sums.partitions)
        if not totals["deletable_segments"] or not totals["blocked_segments"]:
            raise ValueError(f"{catalog}: {totals}")

    days = [NOW_MS + day * 24 * HOUR_MS for day in range(31)]
    seconds = {
        "start": start,
        "cold": timed(summed),
        "warm": min(timed(summed) for _ in range(3)),
        "forecast": timed(lambda: freed_by(judged(*COLUMNS_FOR_SUMS), days).collect()),
        "written": timed(lambda: written(spark, Location.of(output), "segments", judged())),
    }
    spark.stop()
    shutil.rmtree(output)
    print(json.dumps(seconds))


def timed(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
