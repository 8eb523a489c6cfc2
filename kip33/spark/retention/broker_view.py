"""A broker's decisions beside ours: retention by the index files that are beside the logs."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StringType, StructField, StructType

from kip33.retention.broker_files import BrokerViewRow, SeenByBroker, seen_by_broker
from kip33.rules.retention import RuleQuestion
from kip33.spark.retention.rule import RuleColumns, with_decision
from kip33.spark.tasks import run_on_rows

SEEN: Final = StructType(
    [
        StructField("log_uri", StringType()),
        StructField("broker_largest_timestamp", LongType()),
        StructField("broker_largest_timestamp_source", StringType()),
        StructField("broker_index_fault", StringType()),
    ]
)
ADDED: Final = (*SeenByBroker._fields[1:], "broker_deletable", "broker_reason")


def with_broker_view(judged: DataFrame, question: RuleQuestion) -> DataFrame:
    """Return what `evaluate_retention` returned, with a broker's answer to the same question.

    Adds `broker_largest_timestamp`, its `_source` (`BrokerTimestampSource`), what is wrong with the
    index (`broker_index_fault`), `broker_deletable` and `broker_reason`. A task reads the end of
    each `.timeindex` in the directories of its partitions. A broker trusts what it reads. So it has
    doubts only about segments whose timestamp is unknown.
    """
    columns = ("log_dir", "topic", "partition", "log_uri", "max_timestamp")
    segments = judged.where(sf.col("base_offset").isNotNull()).select(*columns)
    grouped = segments.repartition(*columns[:3]).sortWithinPartitions(*columns[:4])
    seen = run_on_rows(grouped, _seen, SEEN)
    rows = judged.join(seen, "log_uri", "left").withColumn(
        "_broker_status",
        sf.when(sf.col("broker_largest_timestamp").isNull(), "unreadable").otherwise("ok"),
    )
    names = RuleColumns("broker_largest_timestamp", status="_broker_status", prefix="broker_")
    answered = with_decision(rows, question, names)
    return answered.select(*judged.columns, *ADDED)


def _seen(rows: Iterable[dict[str, Any]]) -> Iterator[SeenByBroker]:
    yield from seen_by_broker(BrokerViewRow(row["log_uri"], row["max_timestamp"]) for row in rows)
