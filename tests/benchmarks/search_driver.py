"""A driver in its own process that searches a catalog by time and prints JSON.

    python -m tests.benchmarks.search_driver CATALOG REQUESTS

It answers all requests in one job, exactly and from indexes alone, and some of them one at a time,
like `kip33 search`. Imports and Spark's start are not counted.
"""

import json
import sys
import time
from collections.abc import Sequence
from typing import Final

from kip33.catalog.catalog import Catalog
from kip33.catalog.tiers import CatalogSnapshot
from kip33.rules.search import SearchResult
from kip33.search.answers import SearchOptions
from kip33.search.catalog_search import rows_of, search_rows
from kip33.search.replica_search import TimeQuestion
from kip33.spark import load_catalog, offsets_for_times
from kip33.spark.session import create_session

CORES: Final = 2
ALONE: Final = 20  # requests that are answered one at a time


def main() -> None:
    place, requests_file = sys.argv[1:]
    spark = create_session(master=f"local[{CORES}]")
    requests = spark.read.parquet(requests_file)
    asked = [TimeQuestion(row.topic, row.partition, row.target_ms) for row in requests.collect()]
    found: dict[str, object] = {"requests": len(asked)}
    for name, index_only in (("record", False), ("index", True)):
        seconds = []
        for _ in range(3):
            begin = time.perf_counter()
            segments = load_catalog(spark, place)
            answers = offsets_for_times(segments, requests, index_only=index_only).collect()
            seconds.append(time.perf_counter() - begin)
        if len(answers) != len(asked) or any(
            answer.result != SearchResult.FOUND for answer in answers
        ):
            raise ValueError(f"{place}: {answers[0]}")
        bytes_read = sum(answer.bytes_read for answer in answers)
        found[name] = {"first": seconds[0], "again": min(seconds[1:]), "bytes_read": bytes_read}
    spark.stop()
    found["alone"] = one_at_a_time(Catalog.at(place), asked[:: len(asked) // ALONE])
    print(json.dumps(found))


def one_at_a_time(catalog: Catalog, asked: Sequence[TimeQuestion]) -> float:
    """Return the seconds for one question by itself."""
    begin = time.perf_counter()
    for question in asked:
        rows = rows_of(CatalogSnapshot(catalog, catalog.require_newest()), {question.topic})
        search_rows(rows, [question], SearchOptions())
    return (time.perf_counter() - begin) / len(asked)


if __name__ == "__main__":
    main()
