"""The input of `kafka-delete-records.sh --offset-json-file` for deletable segments."""

from collections.abc import Collection
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from kip33.formats.kafka_configs import delete_records_object
from kip33.retention.evaluated_tables import INTERNAL
from kip33.rules.retention import RetentionMode


def delete_records(
    partitions: DataFrame,
    *,
    trust_last_modified: bool = False,
    left_out: Collection[tuple[str, int]] = (),
) -> dict[str, Any]:
    """Return the file's JSON (`DeleteRecordsCommand`, version 1); runs a job.

    It has the offset of the first kept record of each partition; a broker deletes the records
    before it. With replicas in several log directories, the one that keeps most is used.

    Left out are partitions without deletable segments; partitions with an unverified deletable
    segment, or with one judged by its file's time (unless `trust_last_modified`); those in
    `left_out` (`kip33.retention.make_plan`); and compacted and internal topics, whose records
    Kafka does not delete.
    """
    first_kept = sf.coalesce("first_kept_base_offset", "log_end_offset")
    doubted = sf.col("deletable_unverified_segments")
    if not trust_last_modified:
        doubted = doubted + sf.col("deletable_last_modified_segments")
    loses = (sf.col("deletable_segments") > 0) & (doubted == 0)
    replicas = partitions.where(
        (sf.col("mode") == RetentionMode.DELETE) & ~sf.col("topic").isin(*INTERNAL)
    ).select("topic", "partition", sf.when(loses, first_kept).alias("offset"))  # null: all are kept
    rows = (
        replicas.groupBy("topic", "partition")
        .agg(sf.min("offset").alias("offset"), sf.bool_or(sf.isnull("offset")).alias("any_keeps"))
        .where("not any_keeps")
        .orderBy("topic", "partition")
        .collect()
    )
    return delete_records_object(
        (row["topic"], row["partition"], row["offset"])
        for row in rows
        if (row["topic"], row["partition"]) not in left_out
    )
