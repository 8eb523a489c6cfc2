"""Retention of a catalog as DataFrames: what is deletable, why the rest is kept, and the sums.

`retention.evaluation` judges the rows of each task, as it does for the local engine. The answer to
the question of a command is made here, too, for catalogs too large for one machine: tasks read the
rows themselves, and no row is shuffled. The driver holds the rows of the partitions, and of the
segments those of a task at a time.
"""

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Final, Unpack

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StructType

from kip33.archive.moments import moment_ms
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.partitions import partitions_of_parts
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.segment_order import KEY, PARTITION
from kip33.catalog.snapshot_parts import SnapshotPart
from kip33.errors import counted
from kip33.formats.times import Time
from kip33.options import parsed, takes
from kip33.retention.answer import MOST_DIFFERENCES, RetentionAnswer, write_sums
from kip33.retention.evaluated_tables import answer_columns, segment_rows, sum_answers
from kip33.retention.evaluation import RetentionRequest, judge_rows
from kip33.retention.question import RetentionQuestion, what_if_of
from kip33.retention.retention_options import EvaluationOptions
from kip33.retention.snapshot_sums import SUMMED, SnapshotSums, sums_of, sums_of_all
from kip33.rules.packing import even_bins
from kip33.rules.policies import Policies
from kip33.spark.catalog import written
from kip33.spark.jobs import cores, named
from kip33.spark.tasks import (
    arrow_schema,
    collect_table,
    judge_in_tasks,
    map_in_place,
    run_in_arrow,
    segments_of,
)
from kip33.stores.locations import Location

_TASKS_OF_A_CORE: Final = 3
_SUMMED: Final = StructType().add("first", LongType()).add("sums", BinaryType())

LogStartOffsets = Mapping[tuple[str, str, int], int]
"""From (log_dir, topic, partition) to the partition's log start offset."""


@takes(EvaluationOptions)
def evaluate_retention(
    catalog: DataFrame,
    policies: Policies,
    *,
    now_ms: Time,
    boundary: str = "local",
    log_start_offsets: LogStartOffsets | None = None,
    **options: Unpack[EvaluationOptions],
) -> DataFrame:
    """Return the catalog's rows with the retention decision for each segment at `now_ms`.

    >>> from kip33.spark import Policies, load_catalog
    >>> week = Policies({"defaults": {"retention.ms": "7d"}})
    >>> catalog = load_catalog(spark, "indexes/_catalog")
    >>> judged = evaluate_retention(catalog, week, now_ms=1_702_000_000_000)
    >>> judged.where("deletable").count()
    4

    - `catalog`: what `load_catalog` returned
    - `boundary`: `remote` has tiered storage's comparison before KAFKA-20091: a DataFrame does not
      say which tier it is of
    - `log_start_offsets`: by log directory, topic and partition
    - `options`: see `EvaluationOptions`

    Adds `policy` (the section that applies), `mode`, `retention_ms`, `retention_bytes`,
    `log_start_offset`, then the fields of `kip33.rules.retention_rows.Decision`: `deletable`,
    `reason`, ...; `kept_only_by_blocker` and `suspicion` (`kip33.rules.suspicious_timestamps`).
    `retention_ms` and `ignore_future` add `what_if_deletable` and `what_if_reason`.
    `show_broker_view` adds a broker's answer to the same question: `broker_largest_timestamp`, its
    `_source` (`BrokerTimestampSource`), what is wrong with the index (`broker_index_fault`),
    `broker_deletable` and `broker_reason`. For it, the tasks read the end of each `.timeindex`.

    Topics with `remote.storage.enable` are kept (`tiered`): what was uploaded is in another
    catalog, which a DataFrame does not name. `kip33 retention LOCAL REMOTE --engine spark` and
    `kip33.open_catalog(...).retention(other=...)` judge them.

    Lazy: no job runs before the result is used. All columns go through Python: for sums alone,
    select COLUMNS_FOR_SUMS first. Raises ValueError for a wrong argument.
    """
    request = RetentionRequest(
        policies,
        parsed("now_ms", moment_ms, now_ms),
        log_start_offsets or {},
        active_segment=options["active_segment"],
        boundary=boundary,
        what_if=what_if_of(options["retention_ms"], options["ignore_future"]),
        broker_view=options["show_broker_view"],
    )
    request.require_valid()
    needed = (*_NEEDED, "max_timestamp") if request.broker_view else _NEEDED
    added = _answers(request, SEGMENTS.empty_table()).schema
    return judge_in_tasks(catalog, needed, partial(_answers, request), added)


_NEEDED: Final = (
    *("base_offset", "size_bytes", "log_uri", "status", "last_modified_ms", "timestamp_types"),
    *("largest_timestamp", "largest_timestamp_source"),
)
COLUMNS_FOR_SUMS: Final = (
    *PARTITION,
    *_NEEDED,
    *("max_timestamp", "last_offset", "offset_of_max_timestamp"),
)
"""The columns of a catalog that decisions and `summarize_partitions` need."""


def _answers(asked: RetentionRequest, rows: pa.Table) -> pa.Table:
    return pa.table(answer_columns(judge_rows(rows, asked), 0, rows.num_rows))


def summarize_partitions(judged: DataFrame, *, now_ms: Time) -> DataFrame:
    """Return one row per partition from the result of `evaluate_retention` for `now_ms`, in order.

    >>> from kip33.spark import Policies, load_catalog
    >>> week = Policies({"defaults": {"retention.ms": "7d"}})
    >>> catalog = load_catalog(spark, "indexes/_catalog")
    >>> judged = evaluate_retention(catalog, week, now_ms=1_702_000_000_000)
    >>> sums = summarize_partitions(judged, now_ms=1_702_000_000_000)
    >>> sums.where("topic = 'orders'").agg({"deletable_segments": "sum"}).first()[0]
    4

    - `judged`: what `evaluate_retention` returned

    - `segments`, `bytes`, `deletable_segments`, `deletable_bytes`; a log that is a link has its
      target's size here, and a plan leaves it out
    - `first_base_offset`, `first_kept_base_offset` (null: all are deletable), `log_end_offset`
    - `blocked_segments`, `blocked_bytes`: a check selects them, but an older segment stays;
      `kept_only_by_blocker_bytes`: only that one segment keeps them
    - `blocking_...`: that segment's base offset, reason to stay, timestamp, its offset, how far it
      is ahead of now (negative: before) and of the newest that it blocks; `block_ends_at_ms` is
      when the first blocked one becomes deletable by itself, null: never
    - `last_modified_segments`, `last_modified_base_offsets` (the first ten), `unverified_segments`,
      `doubtful_segments`: segments without a verified message timestamp; `deletable_...`: the
      number of them that are deletable; `tiered_segments`: of topics in tiered storage, which are
      not judged; `not_uploaded_...`, `upload_before_ms`: what the remote tier lacks, and the first
      time at which `retention.ms` takes some of it; `other_records_...`: of which it has other
      records; `unreferenced_...`: of the remote tier, but not of the log; `suspicions`: the number
      of segments of each kind
    - `active_expired_segments`: 1 if the last segment has expired and is kept as the active one
    - `log_start_offset`: the value that was used
    - with a what-if or a broker's view: their deletable segments and bytes; for the broker also the
      segments whose index has another timestamp, and those that it judges differently

    Raises ValueError for a `now_ms` that is not a time.
    """
    by_partition = judged.repartition(*PARTITION)
    sums = summarize_in_place(by_partition, now_ms=parsed("now_ms", moment_ms, now_ms))
    return sums.orderBy(*PARTITION)


def sums_of_snapshot(
    spark: SparkSession, catalog: Catalog, snapshot: Snapshot, asked: RetentionRequest
) -> SnapshotSums:
    """Return the sums of a snapshot; tasks read, judge and sum its rows.

    A task has the partitions that begin in some consecutive parts. No row leaves it.
    """
    folder, parts = catalog.snapshot_folder(snapshot.name), snapshot.parts
    shares = even_bins(np.array([part.rows for part in parts]), _TASKS_OF_A_CORE * cores(spark))
    run = partial(_sum_parts, folder, parts, asked)
    work = [pickle.dumps(range(int(rows[0]), int(rows[-1]) + 1)) for rows in shares if len(rows)]
    each = [sums_of(judge_rows(SEGMENTS.empty_table(), asked), asked)]
    if work:
        found = collect_table(run_in_arrow(spark, work, run, _SUMMED)).sort_by("first")
        pickles: list[Any] = found["sums"].to_pylist()
        each += map(pickle.loads, pickles)
    return sums_of_all(catalog, snapshot, asked, each)


def _sum_parts(
    folder: Location, parts: Sequence[SnapshotPart], asked: RetentionRequest, begun: bytes
) -> Iterator[pa.RecordBatch]:
    """Yield the sums of the partitions that begin in some parts."""
    some: range = pickle.loads(begun)
    tables = partitions_of_parts(folder, parts, some, SUMMED, asked.topics)
    for number, rows in enumerate(tables):
        sums = sums_of(judge_rows(rows, asked), asked)
        first, data = (some.start << 32) + number, pickle.dumps(sums)
        yield pa.RecordBatch.from_pydict({"first": [first], "sums": [data]})


def judged_rows(
    spark: SparkSession,
    catalog: Catalog,
    snapshot: Snapshot,
    asked: RetentionRequest,
    columns: Sequence[str],
) -> DataFrame:
    """Return the rows of a snapshot with decisions, as `evaluate_retention` does, in order.

    A task has the partitions that begin in one part, and reads them itself: nothing is shuffled.
    """
    folder, parts = catalog.snapshot_folder(snapshot.name), snapshot.parts
    run = partial(_judge_parts, folder, parts, asked, columns)
    work = [pickle.dumps(range(number, number + 1)) for number in range(len(parts))]
    [none] = segment_rows(judge_rows(SEGMENTS.empty_table().select([*columns]), asked))
    return run_in_arrow(spark, work, run, StructType([*from_arrow_schema(none.schema)]))


def _judge_parts(
    folder: Location,
    parts: Sequence[SnapshotPart],
    asked: RetentionRequest,
    columns: Sequence[str],
    begun: bytes,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the partitions that begin in some parts, with decisions."""
    for rows in partitions_of_parts(folder, parts, pickle.loads(begun), columns, asked.topics):
        for some in segment_rows(judge_rows(rows, asked)):
            yield from some.combine_chunks().to_batches()


def summarize_in_place(judged: DataFrame, *, now_ms: int) -> DataFrame:
    """Return what `summarize_partitions` returns, of rows whose partitions each are in one task."""
    run = partial(_sums, now_ms=now_ms)
    of_none = run(arrow_schema(judged.schema).empty_table())
    return map_in_place(judged, run, StructType([*from_arrow_schema(of_none.schema)]))


def _sums(judged: pa.Table, now_ms: int) -> pa.Table:
    return sum_answers(segments_of(judged), judged, now_ms=now_ms)


def freed_by(judged: DataFrame, moments_ms: Sequence[Time]) -> DataFrame:
    """Return per topic what becomes deletable between each time and the previous one.

    >>> from kip33.spark import Policies, load_catalog
    >>> week = Policies({"defaults": {"retention.ms": "7d"}})
    >>> catalog = load_catalog(spark, "indexes/_catalog")
    >>> judged = evaluate_retention(catalog, week, now_ms=1_702_000_000_000)
    >>> freed_by(judged, [1_702_000_000_000]).select("topic", "segments").collect()
    [Row(topic='orders', segments=4)]

    - `judged`: what `evaluate_retention` returned
    - `moments_ms`: the times, rising

    Columns `at_ms`, `topic`, `segments`, `bytes`; times without a change have no row. New appends
    are ignored. The first time includes everything that was deletable before it. Raises ValueError
    for what is not a time.
    """
    bucket: Column = sf.lit(None).cast("bigint")
    for moment in sorted(set(map(moment_ms, moments_ms)), reverse=True):
        bucket = sf.when(sf.col("deletable_at_ms") <= moment, sf.lit(moment)).otherwise(bucket)
    freed = judged.withColumn("at_ms", bucket).where(sf.col("at_ms").isNotNull())
    size = sf.coalesce(sf.sum("size_bytes"), sf.lit(0))
    rows = freed.groupBy("at_ms", "topic").agg(
        sf.count(sf.lit(1)).alias("segments"), size.alias("bytes")
    )
    return rows.orderBy("at_ms", "topic")


def answer_on_spark(
    spark: SparkSession,
    question: RetentionQuestion,
    *,
    output: Location | None = None,
    has_rows: bool = False,
) -> RetentionAnswer:
    """Return Spark's answer; `has_rows`: with its segments. Its tables are written to `output`."""
    with _named(spark, question):
        request, place = question.request, (question.catalog, question.snapshot)
        sums = sums_of_snapshot(spark, *place, question.without_index_files().request)
        freed = sums.freed if request.moments_ms else None
        answer = RetentionAnswer(question, sums.partitions, freed, sums.holes, cores(spark))
        if not (has_rows or output or request.broker_view):
            return answer
        columns = SEGMENTS.names if output or has_rows else SUMMED
        judged = judged_rows(spark, *place, request, columns)
        if request.broker_view:
            judged = judged.persist(StorageLevel.DISK_ONLY)  # index files are read once
            partitions = collect_table(summarize_in_place(judged, now_ms=request.now_ms))
            answer = replace(answer, partitions=partitions)
        if output:
            written(spark, output, "segments", judged)
            write_sums(answer.partitions, freed, output)
        return replace(
            answer,
            columns=judged.columns,
            segments=lambda: _rows(spark, judged, question),
            broker_differences=lambda: _broker_differences(spark, judged, question),
        )


def _named(spark: SparkSession, question: RetentionQuestion) -> AbstractContextManager[None]:
    segments = counted(question.snapshot.rows, "segment")
    return named(spark, f"kip33 retention: {segments} of {question.snapshot.source}")


def _broker_differences(
    spark: SparkSession, judged: DataFrame, question: RetentionQuestion
) -> list[dict[str, Any]]:
    otherwise = sf.col("broker_deletable") != sf.col("deletable")
    differ = judged.where(otherwise | sf.col("broker_index_fault").isNotNull())
    order = (sf.desc(otherwise), *KEY)
    with _named(spark, question):
        return [row.asDict() for row in differ.orderBy(*order).limit(MOST_DIFFERENCES).collect()]


def _rows(
    spark: SparkSession, judged: DataFrame, question: RetentionQuestion
) -> Iterator[dict[str, Any]]:
    """Return the segments in order; the driver holds those of a task at a time."""
    with _named(spark, question):  # of the jobs that the iterator starts later
        rows = judged.toLocalIterator()
    return (row.asDict() for row in rows)
