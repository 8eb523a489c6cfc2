"""A broker's answer beside ours: retention by the index files as they lie beside the logs."""

from collections.abc import Iterable, Iterator
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sf

from kip33.spark.retention_rule import Names, Question, with_decision
from kip33.storage.broker_files import SeenByBroker, seen_by_broker

SEEN: Final = (
    "log_uri string, broker_largest_timestamp bigint, broker_largest_timestamp_source string, "
    "broker_index_fault string"
)
ADDED: Final = (*SeenByBroker._fields[1:], "broker_deletable", "broker_reason")


def with_broker_view(judged: DataFrame, question: Question) -> DataFrame:
    """Return what `evaluate_retention` returned, with a broker's answer to the same question.

    Added: `broker_largest_timestamp`, its `_source` (`rules.broker_view.SOURCES`), what is wrong
    with the index (`broker_index_fault`), `broker_deletable`, `broker_reason`. One task reads the
    end of each `.timeindex` of its partitions' directories. A broker believes what it reads: to it
    no segment is doubtful but one of which nothing can be told.
    """
    columns = ("log_dir", "topic", "partition", "log_uri", "max_timestamp")
    segments = judged.where(sf.col("base_offset").isNotNull()).select(*columns)
    grouped = segments.repartition(*columns[:3]).sortWithinPartitions(*columns[:4])
    seen = judged.sparkSession.createDataFrame(grouped.rdd.mapPartitions(_seen), SEEN)
    rows = judged.join(seen, "log_uri", "left").withColumn(
        "_broker_status",
        sf.when(sf.col("broker_largest_timestamp").isNull(), "unreadable").otherwise("ok"),
    )
    names = Names("broker_largest_timestamp", status="_broker_status", prefix="broker_")
    answered = with_decision(rows, question, names)
    return answered.select(*judged.columns, *ADDED)


def _seen(rows: Iterable[Row]) -> Iterator[SeenByBroker]:
    yield from seen_by_broker(rows)
