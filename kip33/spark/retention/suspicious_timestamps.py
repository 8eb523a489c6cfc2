"""Suspicious timestamps of a catalog: `kip33.rules.suspicious_timestamps` as a Spark expression."""

from pyspark.sql import Column
from pyspark.sql import functions as sf

from kip33.rules.segment_summary import TimestampSource
from kip33.rules.suspicious_timestamps import (
    DEFAULT_AFTER_MAX_MS,
    YEAR_1990_MS,
    YEAR_MS,
    Suspicion,
)


def suspicion(now_ms: int) -> Column:
    """Return what is suspicious about a row's largest timestamp, null if nothing is.

    For rows with `retention_ms` and `after_max_ms`. A file's time that stands in for a missing
    timestamp can only be in the future.
    """
    largest = sf.col("largest_timestamp")
    of_record = sf.col("largest_timestamp_source") != TimestampSource.LAST_MODIFIED
    create_time = sf.coalesce(
        sf.array_contains("timestamp_types", "CreateTime"),
        sf.lit(True),  # a tail row: not known
    )
    expired_on_arrival = (
        create_time
        & (sf.col("retention_ms") >= 0)
        & (largest < sf.greatest(sf.lit(0), "last_modified_ms") - sf.col("retention_ms"))
    )
    return (
        sf.when(of_record & _between_now_and_1990(largest, now_ms, 1_000), Suspicion.MICROSECONDS)
        .when(of_record & _between_now_and_1990(largest, now_ms, 1_000_000), Suspicion.NANOSECONDS)
        .when(
            largest - sf.lit(now_ms)
            > sf.coalesce(sf.col("after_max_ms"), sf.lit(DEFAULT_AFTER_MAX_MS)),
            Suspicion.FUTURE,
        )
        .when(
            of_record
            & (largest >= YEAR_1990_MS // 1_000)
            & (largest < (now_ms + YEAR_MS) // 1_000),
            Suspicion.SECONDS,
        )
        .when(of_record & (largest < YEAR_1990_MS), Suspicion.BEFORE_1990)
        .when(of_record & expired_on_arrival, Suspicion.BACKFILL)
    )


def _between_now_and_1990(timestamp: Column, now_ms: int, scale: int) -> Column:
    return (timestamp >= sf.lit(YEAR_1990_MS * scale)) & (
        timestamp < sf.lit(min(2**63 - 1, (now_ms + YEAR_MS) * scale))
    )
