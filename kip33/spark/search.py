"""Offsets for thousands of times in one job.

A task answers up to 500 requests of a partition together, near each other in time. So a partition
that is asked for often is work for several tasks.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final, Unpack

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kip33.archive.log_start_offsets import LogStartOffsets
from kip33.catalog.topics_by_name import IS_AGE_UNSURE, IS_OLDER, OF_TOPICS, topics_by_name
from kip33.formats.batch import MAX_INT32
from kip33.formats.times import LEAST_MS
from kip33.options import takes
from kip33.search.answers import SearchOptions
from kip33.search.catalog_search import QUESTIONS_AT_ONCE
from kip33.search.replica_search import TimeQuestion, answers_of
from kip33.search.searched_segment import SEARCHED
from kip33.search.time_search import ANSWERS, OffsetsForTimesOptions, search_options
from kip33.spark.jobs import cores
from kip33.spark.tasks import arrow_schema, map_by_partition, run_on_rows

TASKS_PER_CORE: Final = 3
KEYS: Final = ("log_dir", "topic", "partition", "target_ms")
_ANSWERED: Final = [field for field in ANSWERS if field.name not in KEYS]


@takes(OffsetsForTimesOptions)
def offsets_for_times(
    catalog: DataFrame,
    requests: DataFrame,
    *,
    log_start_offsets: LogStartOffsets | None = None,
    **options: Unpack[OffsetsForTimesOptions],
) -> DataFrame:
    """Return for each request the first record at or after its time.

    >>> from kip33.spark import load_catalog
    >>> asked = [("orders", 0, 1_700_050_000_000)]
    >>> requests = spark.createDataFrame(asked, "topic string, partition int, target_ms long")
    >>> catalog = load_catalog(spark, "indexes/_catalog")
    >>> [found] = offsets_for_times(catalog, requests).collect()
    >>> found["offset"], found["result"]
    (4000, 'found')

    - `catalog`: what `load_catalog` returned
    - `requests`: a DataFrame of topics, partitions and times
    - `log_start_offsets`: by log directory, topic and partition; records below are ignored
    - `options`: see `OffsetsForTimesOptions`

    `requests` has `topic`, `partition` (null: all), `target_ms` (ms since 1970 or a timestamp, or
    -1 latest, -2 earliest, -3 the largest timestamp), and may have `log_dir` (null: the log of all
    replicas together, or each one with `all_replicas`). Its columns are kept, with null
    partitions and log directories filled in. Added: `offset` and `timestamp` of the record,
    `result` and `exactness` (`kip33.search.partition_search`), `bytes_read`, `note`, `passed_over`
    (true: unreadable records could change the answer). Raises ValueError for requests without
    these columns.
    """
    missing = [name for name in KEYS[1:] if name not in requests.columns]
    if missing:
        raise ValueError(
            f"requests: missing columns {', '.join(missing)}; found {requests.columns}"
        )
    how = search_options(options)
    keys = ("topic", "partition")
    requests = requests.withColumn("target_ms", _target_ms(requests))
    requests = requests.withColumn("partition", _partition())
    if "log_dir" not in requests.columns:
        requests = requests.withColumn("log_dir", sf.lit(None).cast("string"))
    segments = _with_older_topics(catalog.where(sf.col("base_offset").isNotNull()))
    # Of equal times all have one rank: a task that runs again makes the same shares.
    by_time = Window.partitionBy(*keys).orderBy("target_ms")
    share = sf.floor((sf.rank().over(by_time) - 1) / QUESTIONS_AT_ONCE).alias("_share")
    each = sf.struct(*requests.columns).alias("_request")
    by_request = (
        _each_partition(requests, segments)
        .select(*keys, each, share)
        .groupBy(*keys, "_share")
        .agg(sf.collect_list("_request").alias("requests"))
    )
    wanted = segments.join(by_request.select(*keys), list(keys), "left_semi")
    by_partition = wanted.groupBy(*keys).agg(
        sf.collect_list(sf.struct(*SEARCHED, IS_OLDER, IS_AGE_UNSURE)).alias("segments")
    )
    tasks = TASKS_PER_CORE * cores(catalog.sparkSession)
    work = by_request.join(by_partition, list(keys), "left").repartition(tasks)
    answered = [StructField(one.name, from_arrow_type(one.type)) for one in _ANSWERED]
    schema = StructType([*requests.schema.fields, *answered])
    run = partial(_answer_all, how, log_start_offsets or {})
    return run_on_rows(work, run, schema)


def _with_older_topics(segments: DataFrame) -> DataFrame:
    """Return the segments with IS_OLDER and IS_AGE_UNSURE, as `catalog.topics_by_name` has them."""
    if "topic_id" not in segments.columns:
        return segments.withColumns({IS_OLDER: sf.lit(False), IS_AGE_UNSURE: sf.lit(False)})
    known = segments.where(sf.col("topic_id").isNotNull())
    ids = known.groupBy("topic").agg(
        sf.min("topic_id").alias("_one"), sf.max("topic_id").alias("_other")
    )
    several = known.join(ids.where("_one < _other"), "topic", "left_semi")
    newest = map_by_partition(
        several.select("topic", *OF_TOPICS), _newest_topics, _NEWEST, ["topic"]
    )
    joined = segments.join(sf.broadcast(newest), "topic", "left")
    is_newest = sf.coalesce(sf.array_contains("newest_ids", sf.col("topic_id")), sf.lit(False))
    is_older = sf.col("newest_ids").isNotNull() & ~is_newest
    is_unsure = sf.coalesce("is_unsure", sf.lit(False))
    added = joined.withColumns({IS_OLDER: is_older, IS_AGE_UNSURE: is_unsure})
    return added.drop("newest_ids", "is_unsure")


_NEWEST: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("newest_ids", ArrayType(StringType())),
        StructField("is_unsure", BooleanType()),
    ]
)


def _newest_topics(rows: pa.Table) -> pa.Table:
    found = topics_by_name(rows)
    each = [
        {"topic": name, "newest_ids": one.newest_ids, "is_unsure": one.is_unsure}
        for name, one in found.items()
    ]
    return pa.Table.from_pylist(each, arrow_schema(_NEWEST))


def _target_ms(requests: DataFrame) -> Column:
    """Return the column of times in ms; ValueError for timestamps without a time zone.

    A number that may be seconds ends the query with both readings, as `require_milliseconds` does.
    """
    kind = requests.schema["target_ms"].dataType
    if isinstance(kind, TimestampNTZType):
        raise ValueError("target_ms has no time zone: timestamp or bigint expected")
    if isinstance(kind, TimestampType):
        return sf.unix_millis("target_ms")
    target = sf.col("target_ms").cast("long")
    message = sf.format_string(
        "target_ms %d found, expected a timestamp or milliseconds since 1973: in milliseconds it "
        "is %s, in seconds %s",
        target,
        *(read(target).cast("string") for read in (sf.timestamp_millis, sf.timestamp_seconds)),
    )
    may_be_seconds = (target > 0) & (target < LEAST_MS)
    return sf.when(may_be_seconds, sf.raise_error(message)).otherwise(target)


def _partition() -> Column:
    """The column of partitions as int; a larger number ends the query."""
    number = sf.col("partition").cast("long")
    message = sf.format_string(f"partition %d: expected 0 to {MAX_INT32}", number)
    is_wrong = (number < 0) | (number > MAX_INT32)
    return sf.when(is_wrong, sf.raise_error(message)).otherwise(number.cast("int"))


def _each_partition(requests: DataFrame, segments: DataFrame) -> DataFrame:
    """Replace each request for a topic by one request per partition."""
    of_topics = requests.where(sf.col("partition").isNull())
    there = segments.select("topic", sf.col("partition").alias("_each")).distinct()
    each = of_topics.join(there, "topic", "left").withColumn("partition", sf.col("_each"))
    return requests.where(sf.col("partition").isNotNull()).unionByName(each.drop("_each"))


def _answer_all(
    how: SearchOptions, log_start_offsets: LogStartOffsets, work: Iterable[dict[str, Any]]
) -> Iterator[tuple[Any, ...]]:
    for of_partition in work:
        partition = (of_partition["topic"], of_partition["partition"])
        starts = {
            log_dir: offset
            for (log_dir, topic, number), offset in log_start_offsets.items()
            if (topic, number) == partition
        }
        questions = [
            TimeQuestion(*partition, request["target_ms"], request["log_dir"])
            for request in of_partition["requests"]
        ]
        for located in answers_of(of_partition["segments"] or (), questions, how, starts):
            given = of_partition["requests"][located.question] | {"log_dir": located.log_dir}
            yield (*given.values(), *located.answer[1:])
