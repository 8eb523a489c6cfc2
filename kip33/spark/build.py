"""The jobs that build and verify index files: plans carried out in tasks of a session."""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kip33.builds.build_options import BuildRequest, ReadName, load_topic_settings
from kip33.builds.commit import BuildSummary, execute_build
from kip33.builds.plan import plan_build
from kip33.catalog.catalog import ipc_bytes
from kip33.drafts.designs import DesignName
from kip33.formats.times import Time, milliseconds_of
from kip33.indexing.verification import SEGMENT_VERDICTS, verdict_batches
from kip33.indexing.verify_tree import execute_verify, plan_verify
from kip33.rules.index_builder import IndexSettings
from kip33.rules.index_entries import (
    DEFAULT_INDEX_INTERVAL_BYTES,
    DEFAULT_SEGMENT_INDEX_BYTES,
    DialectName,
)
from kip33.rules.untimestamped import RuleName, rule_of
from kip33.spark.spark_engine import SparkEngine
from kip33.spark.store_settings import given_places, use_session
from kip33.spark.tasks import run_in_arrow
from kip33.stores.filesystem_option import Filesystem, StorageOptions
from kip33.stores.progress import OnProgress, tell_nobody


# So many parameters: each is an option of `kip33 build`, with its name and default.
def build_index(  # parameters: a notebook user sees each option as a keyword
    spark: SparkSession,
    source: str,
    index_dir: str | None = None,
    *,
    now_ms: Time,
    in_place: bool = False,
    index_files: bool = True,
    catalog: str | None = None,
    dialect: DesignName = "recover",
    untimestamped: RuleName = "none",
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    segment_index_bytes: int = DEFAULT_SEGMENT_INDEX_BYTES,
    kafka_configs: str | None = None,
    topics: Sequence[str] = (),
    layout: str = "kafka",
    check_crc: bool = True,
    offset_index: bool = False,
    overwrite: bool = False,
    only_damaged: bool = False,
    full: bool = False,
    allow_empty: bool = False,
    read: ReadName = "log",
    fsync: bool = True,
    parallelism: int | None = None,
    on_progress: OnProgress = tell_nobody,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> BuildSummary:
    """Build the indexes of new and changed segments below `source`, commit a catalog snapshot.

    >>> summary = build_index(spark, "archive", "spark-indexes", now_ms=1_702_000_000_000)
    >>> summary.segments
    13

    - `in_place`: write index files beside the logs; `catalog`: where the catalog is

    Index files go to the same path below `index_dir`, or beside the logs with `in_place`. The
    catalog is `index_dir/_catalog` unless `catalog` names another place. Places are paths or URIs.
    With `index_files=False` every log is read, and only the catalog is written.

    - `now_ms`: when the build begins, ms since 1970 or a `datetime` with a time zone
    - `dialect`: `recover`, `live` or `kip33`; which offsets the entries have. Or a draft of KIP-33,
      with files of its own: `minute`, `minute-map`, `bucket` or `inline`
    - `untimestamped`: `none`, `next-base-offset` (or `entry`) or `first-offset`; the entry of a
      closed segment without timestamps (`kip33.rules.untimestamped`)
    - `index_interval_bytes`, `segment_index_bytes`: Kafka's settings, in bytes
    - `kafka_configs`: a file with the topics' own settings, as Kafka's tools print them
    - `topics`: globs, `!GLOB` leaves topics out; `layout`: a name or a pattern of paths
    - `check_crc`: check each batch; `offset_index`: write `.index` and `.txnindex` files too
    - `overwrite`: replace index files that kip33 did not write
    - `only_damaged`: verify first, write only what is damaged; `full`: read every segment again
    - `allow_empty`: if there is no segment any more, commit a snapshot without rows
    - `read`: `log`, or `tail` to use a trustworthy `.timeindex` instead of reading its log
    - `fsync`: flush files to disk before the snapshot is committed
    - `parallelism`: the number of tasks
    - `on_progress`: called with a `kip33.stores.progress.Progress`, perhaps from another thread
    - `storage_options`: keys and endpoint of stores (`kip33.stores.filesystem_option`); with Spark
      Connect all keys, because a session does not return them from 4.3 on
    - `filesystem`: a pyarrow or fsspec filesystem instead, sent to Spark's tasks; paths are its
      names, URIs of other schemes are places elsewhere (`kip33.stores.filesystem_option`)

    Damaged segments are rows of the catalog, not exceptions. Raises LocationError, CatalogError,
    LockedError or ValueError before anything is written, PublishError if the disk is full. If no
    log can be read, Kip33Error is raised and nothing is committed.
    """
    source, (index_dir, catalog) = given_places(
        spark, source, (index_dir, catalog), storage_options, filesystem, writes=True
    )
    use_session(spark)
    settings = IndexSettings(
        dialect, index_interval_bytes, segment_index_bytes, check_crc, rule_of(untimestamped)
    )
    request = BuildRequest(
        source=source,
        index_dir=index_dir,
        settings=settings,
        in_place=in_place,
        index_files=index_files,
        catalog=catalog,
        kafka_configs=kafka_configs,
        topics=topics,
        layout=layout,
        offset_index=offset_index,
        overwrite=overwrite,
        only_damaged=only_damaged,
        full=full,
        allow_empty=allow_empty,
        read=read,
        fsync=fsync,
    )
    plan = plan_build(request, now_ms=milliseconds_of(now_ms), on_progress=on_progress)
    return execute_build(plan, SparkEngine(lambda: spark, parallelism, on_progress))


# So many parameters: each is an option of `kip33 verify`, with its name and default.
def verify_index(  # parameters: a notebook user sees each option as a keyword
    spark: SparkSession,
    source: str,
    index_dir: str | None = None,
    *,
    dialect: DialectName = "recover",
    untimestamped: RuleName = "none",
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    segment_index_bytes: int = DEFAULT_SEGMENT_INDEX_BYTES,
    kafka_configs: str | None = None,
    topics: Sequence[str] = (),
    layout: str = "kafka",
    check_crc: bool = True,
    parallelism: int | None = None,
    on_progress: OnProgress = tell_nobody,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> DataFrame:
    """Verify every index file of a tree against its log; return a row for each segment, by path.

    >>> verify_index(spark, "archive", topics=["orders"]).where("verdict = 'missing'").count()
    4

    The index files are in `index_dir`, or beside the logs. The settings, `storage_options` and
    `filesystem` are those of `build_index`. The work is done when this returns. Columns (`verdicts`
    in `kip33/api/RESULTS.md`): `log_uri`, `index_uri`, `verdict`, `dialect`,
    `offset_index_verdict`, `transaction_index_verdict`, `log_status`, `log_error`: string;
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
    plan = plan_verify(
        source,
        index_dir,
        settings=settings,
        topics=topics,
        layout=layout,
        on_progress=on_progress,
    )
    verdicts = execute_verify(plan, SparkEngine(lambda: spark, parallelism, on_progress))
    parts = [ipc_bytes(pa.Table.from_batches([batch])) for batch in verdict_batches(verdicts)]
    return run_in_arrow(spark, parts, _rows_of, from_arrow_schema(SEGMENT_VERDICTS))


def _rows_of(part: bytes) -> list[pa.RecordBatch]:
    return pa.ipc.open_stream(pa.BufferReader(part)).read_all().to_batches()
