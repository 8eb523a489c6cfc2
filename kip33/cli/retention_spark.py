"""`kip33 retention` on Spark: the rule in tasks, for catalogs too large for one machine.

The driver holds the rows of the partitions, and of the segments a piece at a time.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from kip33.catalog.schema import SEGMENTS
from kip33.catalog.segment_order import PARTITION
from kip33.cli.output import counted
from kip33.cli.retention_answer import RetentionAnswer, write_sums
from kip33.cli.retention_question import AskedRetention
from kip33.retention.evaluated_tables import ROWS_AT_ONCE
from kip33.rules.policies import TopicGlobs
from kip33.spark.catalog import load_catalog, written
from kip33.spark.jobs import cores, named
from kip33.spark.retention import (
    COLUMNS_FOR_SUMS,
    evaluate,
    summarize_partitions,
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
    options, request = asked.options, asked.judged_request
    place = asked.catalog, asked.snapshot
    sums = sums_of_snapshot(spark, *place, asked.without_index_files().sums_request)
    freed = sums.freed if asked.moments_ms else None
    answer = RetentionAnswer(
        *(cores(spark), sums.partitions, freed, sums.holes, (), tuple, lambda _: ())
    )
    prints_rows = options.output_format != "table" and not options.emit
    if not (prints_rows or output or options.show_broker_view):
        return answer
    rows = _rows(spark, asked)
    judged = evaluate(rows if output or prints_rows else rows.select(*COLUMNS_FOR_SUMS), request)
    if output:
        judged = written(spark, output, "segments", judged)
    elif options.show_broker_view:
        judged = judged.persist(StorageLevel.DISK_ONLY)  # index files are read once
    partitions = answer.partitions
    if options.show_broker_view:
        partitions = collect_table(summarize_partitions(judged, now_ms=request.now_ms))
    answer = replace(
        answer,
        partitions=partitions,
        columns=judged.columns,
        segments=lambda: _in_order(spark, judged, asked),
        broker_differences=lambda most: _broker_differences(spark, judged, asked, most),
    )
    if output:
        write_sums(answer, output)
    return answer


def _rows(spark: SparkSession, asked: AskedRetention) -> DataFrame:
    """Return the snapshot's rows in the topics, as the local engine reads them."""
    rows = load_catalog(spark, asked.catalog.location.uri, asked.snapshot.name)
    rows = rows.select(*SEGMENTS.names)
    globs = TopicGlobs.of(asked.options.topics)
    if globs.included_regex:
        rows = rows.where(sf.col("topic").rlike(globs.included_regex))
    if globs.excluded_regex:
        rows = rows.where(~sf.col("topic").rlike(globs.excluded_regex))
    return rows


def _broker_differences(
    spark: SparkSession, judged: DataFrame, asked: AskedRetention, most: int
) -> list[dict[str, Any]]:
    otherwise = sf.col("broker_deletable") != sf.col("deletable")
    differ = judged.where(otherwise | sf.col("broker_index_fault").isNotNull())
    order = (sf.desc(otherwise), *PARTITION, "base_offset", "log_uri")
    with _named(spark, asked):
        return [row.asDict() for row in differ.orderBy(*order).limit(most).collect()]


def _in_order(
    spark: SparkSession, judged: DataFrame, asked: AskedRetention
) -> Iterator[dict[str, Any]]:
    """Return the segments in order; the driver holds a piece at a time."""
    order = (*PARTITION, "base_offset", "log_uri")
    pieces = judged.repartitionByRange(asked.snapshot.rows // ROWS_AT_ONCE + 1, *order)
    with _named(spark, asked):  # of the jobs that the iterator starts later
        rows = pieces.sortWithinPartitions(*order).toLocalIterator()
    return (row.asDict() for row in rows)
