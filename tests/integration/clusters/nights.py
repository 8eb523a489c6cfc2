"""A night's work through the Python API, on a session of one kind or the other.

    python nights.py SOURCE INDEXES RESULT.json [CONNECT_URL]

Writes what was found, so that two sessions of different kinds can be held against each other.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kip33.spark import (
    Policies,
    build_index,
    evaluate_retention,
    load_catalog,
    offsets_for_times,
    register,
    tasks,
    verify_index,
)
from kip33.stores.progress import Phase, Progress

NOW_MS = 1_800_000_000_000
TARGET_MS = 1_700_000_040_000
OF_THE_RUN = ("snapshot", "catalog")


def main(source: str, indexes: str, result: str, *remote: str) -> None:
    """Build, verify, judge and search; write it all down."""
    session: Any = SparkSession.builder
    session = session.remote(remote[0]) if remote else session.master("local[2]")
    spark = session.getOrCreate()
    told: list[Progress] = []
    summary = build_index(
        spark,
        source,
        indexes,
        now_ms=NOW_MS,
        offset_index=True,
        parallelism=5,
        on_progress=told.append,
    )
    read = [one for one in told if one.phase == Phase.READING_LOGS]
    tasks.MOST_RESULT_BYTES = 1  # so that the verdicts of each bin come by themselves
    verdicts = verify_index(spark, source, indexes, parallelism=5)
    catalog = load_catalog(spark, f"{indexes}/_catalog")
    policies = Policies({"defaults": {"cleanup.policy": "delete", "retention.ms": 1}})
    judged = evaluate_retention(catalog, policies, now_ms=NOW_MS, show_broker_view=True)
    asked = catalog.where("topic is not null").select("topic", "partition").distinct()
    requests = asked.selectExpr("*", f"{TARGET_MS}L as target_ms")
    found = offsets_for_times(catalog, requests)
    register(spark)
    reader = (
        spark.read.format("kafka-segments")
        .option("on_error", "row")
        .option("columns", "topic, offset")
    )
    record = {
        "kind": type(spark).__module__,
        "summary": {key: value for key, value in vars(summary).items() if key not in OF_THE_RUN},
        "verdicts": sorted(str(one) for one in verdicts.collect()),
        "judged": sorted(
            str(row)
            for row in judged.select(
                "log_dir", "topic", "partition", "base_offset", "deletable", "broker_reason"
            ).collect()
        ),
        "records": sorted(map(str, reader.load(source).groupBy("topic").count().collect())),
        "found": sorted(str(row) for row in found.collect()),
        "progress": [[one.done, one.total] for one in (read[0], read[-1])],
    }
    Path(result).write_text(json.dumps(record, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
