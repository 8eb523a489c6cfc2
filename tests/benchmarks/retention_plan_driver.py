"""Print the seconds of the decisions for a plan, without Spark, for a synthetic catalog.

python -m tests.benchmarks.retention_plan_driver CATALOG
"""

import sys
import time

from kip33.catalog.catalog import Catalog
from kip33.retention.evaluation import judged_partitions
from kip33.rules.retention_rows import Limits
from tests.benchmarks.made_catalogs import HOUR_MS, NOW_MS


def main() -> None:
    catalog = Catalog.at(sys.argv[1])
    limits = Limits(retention_ms=72 * HOUR_MS)
    begin = time.perf_counter()
    judged = judged_partitions(catalog, catalog.require_newest(), lambda *_: limits, now_ms=NOW_MS)
    deletable = sum(len(partition.deletable()) for partition in judged)
    seconds = time.perf_counter() - begin
    if not deletable:
        raise ValueError(f"{sys.argv[1]}: nothing is deletable")
    print(seconds)


if __name__ == "__main__":
    main()
