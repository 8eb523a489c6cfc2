"""`kip33 retention` on Spark: the rule in tasks, for catalogs too large for one machine.

Tasks read the rows themselves, and no row is shuffled. The driver holds the rows of the partitions,
and of the segments those of a task at a time.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from kip33.catalog.schema import SEGMENTS
from kip33.catalog.segment_order import KEY
from kip33.cli.output import counted
from kip33.cli.retention_answer import MOST_DIFFERENCES, RetentionAnswer, write_sums
from kip33.cli.retention_question import AskedRetention
from kip33.retention.snapshot_sums import SUMMED
from kip33.spark.catalog import written
from kip33.spark.jobs import cores, named
from kip33.spark.retention import (
    judged_rows,
    summarize_in_place,
    sums_of_snapshot,
)
from kip33.spark.tasks import collect_table
from kip33.stores.locations import Location


def spark_answer(
    spark: SparkSession, asked: AskedRetention, output: Location | None
) -> RetentionAnswer:
    """Return Spark's answer; its tables are written to `output`."""
    with _named(spark, asked):
        return _answer(spark, asked, output)


def _named(spark: SparkSession, asked: AskedRetention) -> AbstractContextManager[None]:
    segments = counted(asked.snapshot.rows, "segment")
    return named(spark, f"kip33 retention: {segments} of {asked.snapshot.source}")


def _answer(spark: SparkSession, asked: AskedRetention, output: Location | None) -> RetentionAnswer:
    options, request = asked.options, asked.request
    place = asked.catalog, asked.snapshot
    sums = sums_of_snapshot(spark, *place, asked.without_index_files().request)
    freed = sums.freed if asked.request.moments_ms else None
    answer = RetentionAnswer(
        workers=cores(spark),
        partitions=sums.partitions,
        freed=freed,
        holes=sums.holes,
        columns=(),
        segments=tuple,
        broker_differences=tuple,
    )
    prints_rows = options.output_format != "table" and not options.emit
    if not (prints_rows or output or options.show_broker_view):
        return answer
    columns = SEGMENTS.names if output or prints_rows else SUMMED
    judged = judged_rows(spark, *place, request, columns)
    if options.show_broker_view:
        judged = judged.persist(StorageLevel.DISK_ONLY)  # index files are read once
        partitions = collect_table(summarize_in_place(judged, now_ms=request.now_ms))
        answer = replace(answer, partitions=partitions)
    if output:
        written(spark, output, "segments", judged)
        write_sums(answer.partitions, freed, output)
    return replace(
        answer,
        columns=judged.columns,
        segments=lambda: _rows(spark, judged, asked),
        broker_differences=lambda: _broker_differences(spark, judged, asked),
    )


def _broker_differences(
    spark: SparkSession, judged: DataFrame, asked: AskedRetention
) -> list[dict[str, Any]]:
    otherwise = sf.col("broker_deletable") != sf.col("deletable")
    differ = judged.where(otherwise | sf.col("broker_index_fault").isNotNull())
    order = (sf.desc(otherwise), *KEY)
    with _named(spark, asked):
        return [row.asDict() for row in differ.orderBy(*order).limit(MOST_DIFFERENCES).collect()]


def _rows(
    spark: SparkSession, judged: DataFrame, asked: AskedRetention
) -> Iterator[dict[str, Any]]:
    """Return the segments in order; the driver holds those of a task at a time."""
    with _named(spark, asked):  # of the jobs that the iterator starts later
        rows = judged.toLocalIterator()
    return (row.asDict() for row in rows)
