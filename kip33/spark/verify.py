"""The verify job: every index file of a tree is compared with its log."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kip33.archive.bins import Progress
from kip33.builds.build_options import load_topic_settings
from kip33.indexing.verification import SEGMENT_VERDICTS
from kip33.indexing.verify_tree import execute_verify, plan_verify
from kip33.rules.index_builder import IndexSettings
from kip33.rules.index_entries import DEFAULT_INDEX_INTERVAL_BYTES, DEFAULT_SEGMENT_INDEX_BYTES
from kip33.rules.untimestamped import rule_of
from kip33.spark.given_places import given_places
from kip33.spark.spark_engine import SparkEngine
from kip33.spark.store_settings import use_session
from kip33.stores.filesystem_option import Filesystem, StorageOptions


# So many parameters: each is an option of `kip33 verify`, with its name and default.
def verify_index(  # parameters: a notebook user sees each option as a keyword
    spark: SparkSession,
    source: str,
    index_dir: str | None = None,
    *,
    dialect: str = "recover",
    untimestamped: str = "none",
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    segment_index_bytes: int = DEFAULT_SEGMENT_INDEX_BYTES,
    kafka_configs: str | None = None,
    topics: Sequence[str] = (),
    layout: str = "kafka",
    check_crc: bool = True,
    parallelism: int | None = None,
    on_progress: Progress | None = None,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> DataFrame:
    """Verify every index file of a tree against its log; return a row for each segment, by path.

    The index files are in `index_dir`, or beside the logs. The settings, `storage_options` and
    `filesystem` are those of `build_index`. The work is done when this returns. Columns (`verdicts`
    in `kip33/api/RESULTS.md`): `log_uri`, `index_uri`, `verdict`, `dialect`,
    `offset_index_verdict`, `transaction_index_verdict`, `producer_snapshot_verdict` (null here),
    `log_status`, `log_error`: string;
    `problems`: array of strings; `entries`: bigint, a number; `largest_gap_bytes`,
    `offset_index_largest_gap_bytes`: bigint, bytes of the log. Raises LocationError for a missing
    directory or one without segments, ValueError for a wrong argument.
    """
    source, (index_dir,) = given_places(spark, source, (index_dir,), storage_options, filesystem)
    use_session(spark)
    default = IndexSettings(
        dialect, index_interval_bytes, segment_index_bytes, check_crc, rule_of(untimestamped)
    )
    settings = load_topic_settings(default, kafka_configs)
    plan = plan_verify(source, index_dir, settings=settings, topics=topics, layout=layout)
    verdicts = execute_verify(plan, SparkEngine(lambda: spark, parallelism, on_progress))
    rows = [tuple(verdict.as_row().values()) for verdict in verdicts]
    return spark.createDataFrame(rows, from_arrow_schema(SEGMENT_VERDICTS))
