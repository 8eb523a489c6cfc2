"""A driver in its own process that searches a catalog by time and prints JSON.

    python -m tests.benchmarks.search_driver CATALOG REQUESTS [MORE_REQUESTS ...]

It answers all requests in one job, exactly and from indexes alone; some of them one at a time, like
`kip33 search`; scans headers for comparison; then answers the other files of requests, each in one
job. Imports and Spark's start are not counted.
"""

import json
import sys
import time
from collections.abc import Sequence
from typing import Final

from pyspark.sql import SparkSession

from kip33.catalog.catalog import Catalog
from kip33.formats.scan import BatchScan
from kip33.rules.search import SearchResult
from kip33.search.answers import SearchOptions
from kip33.search.catalog_search import rows_of, search_rows
from kip33.search.replica_search import TimeQuestion
from kip33.spark import load_catalog, offsets_for_times
from kip33.spark.session import create_session
from kip33.stores.files import opened
from kip33.stores.locations import Location

CORES: Final = 2
ALONE: Final = 20  # requests that are answered one at a time
SCANNED: Final = 2_000  # segments that are scanned


def main() -> None:
    place, requests_file, *more_files = sys.argv[1:]
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
    found["more"] = [in_one_job(spark, place, file) for file in more_files]
    spark.stop()
    found["alone"] = one_at_a_time(Catalog.at(place), asked[:: len(asked) // ALONE])
    found["scan"] = scan(Catalog.at(place))
    print(json.dumps(found))


def in_one_job(spark: SparkSession, place: str, requests_file: str) -> tuple[int, float]:
    """Return the number of requests and the seconds for all of them."""
    begin = time.perf_counter()
    requests = spark.read.parquet(requests_file)
    answers = offsets_for_times(load_catalog(spark, place), requests).collect()
    return len(answers), time.perf_counter() - begin


def one_at_a_time(catalog: Catalog, asked: Sequence[TimeQuestion]) -> float:
    """Return the seconds for one question by itself."""
    begin = time.perf_counter()
    for question in asked:
        rows = rows_of(catalog, catalog.require_newest(), {question.topic})
        search_rows(rows, [question], SearchOptions())
    return (time.perf_counter() - begin) / len(asked)


def scan(catalog: Catalog) -> float:
    """Return the estimated seconds to read the headers of all logs, measured on a part of them."""
    uris = catalog.read(catalog.require_newest(), ["log_uri"])["log_uri"].to_pylist()
    begin = time.perf_counter()
    for uri in uris[:SCANNED]:
        with opened(Location.of(uri)) as (read_into, size_bytes):
            for _ in BatchScan(read_into, size_bytes, check_crc=False, native=True):
                pass
    return (time.perf_counter() - begin) * len(uris) / min(len(uris), SCANNED)


if __name__ == "__main__":
    main()
