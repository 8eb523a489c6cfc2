"""What `kafka-delete-records.sh --offset-json-file` takes, for what retention calls deletable."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from kip33.rules.retention import DELETE


def delete_records(partitions: DataFrame) -> dict[str, Any]:
    """Return the file's JSON (`DeleteRecordsCommand`, version 1); runs a job.

    For each partition the offset of the first record that stays, so that a broker deletes what lies
    before it. Of replicas in several log directories the one that keeps most decides. Partitions
    that lose nothing are left out, and compacted ones, whose records Kafka refuses to delete.
    """
    first_kept = sf.coalesce("first_kept_base_offset", "log_end_offset")
    begins = sf.coalesce("first_base_offset", sf.lit(0))
    replicas = partitions.where((sf.col("mode") == DELETE) & (sf.col("segments") > 0)).select(
        "topic",
        "partition",
        sf.when(sf.col("deletable_segments") > 0, first_kept).otherwise(begins).alias("offset"),
        (sf.col("deletable_segments") > 0).alias("loses"),
    )
    rows = (
        replicas.groupBy("topic", "partition")
        .agg(sf.min("offset").alias("offset"), sf.bool_and("loses").alias("all_lose"))
        .where("all_lose")
        .orderBy("topic", "partition")
        .collect()
    )
    return {
        "partitions": [
            {"topic": row.topic, "partition": row.partition, "offset": row.offset} for row in rows
        ],
        "version": 1,
    }
