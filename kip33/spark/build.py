"""The jobs that build and verify index files: plans carried out in tasks of a session."""

from typing import Unpack

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kip33.archive.common_options import SparkRun
from kip33.archive.moments import moment_ms
from kip33.builds.build_options import BuildOptions, BuildRequest
from kip33.builds.commit import BuildSummary, execute_build
from kip33.builds.plan import plan_build
from kip33.builds.verify_options import VerifyOptions, VerifyRequest, plan_request
from kip33.catalog.catalog import ipc_bytes, warn_caller
from kip33.formats.times import Time
from kip33.indexing import quick_verification
from kip33.indexing.quick_verification import CHECKED_FILES, QuickOptions, QuickRequest
from kip33.indexing.verification import SEGMENT_VERDICTS, verdict_batches
from kip33.indexing.verify_tree import execute_verify
from kip33.options import parsed, picked, takes
from kip33.spark.spark_engine import SparkEngine
from kip33.spark.store_settings import given_places
from kip33.spark.tasks import run_in_arrow


class SparkBuildOptions(BuildOptions, SparkRun, total=False):
    """The options of `build_index`."""


class SparkVerifyOptions(VerifyOptions, SparkRun, total=False):
    """The options of `verify_index`."""


class SparkQuickOptions(QuickOptions, SparkRun, total=False):
    """The options of `verify_quick`."""


@takes(SparkBuildOptions)
def build_index(
    spark: SparkSession,
    source: str,
    index_dir: str | None = None,
    *,
    now_ms: Time,
    **options: Unpack[SparkBuildOptions],
) -> BuildSummary:
    """Build the indexes of new and changed segments below `source`, commit a catalog snapshot.

    >>> summary = build_index(spark, "archive", "spark-indexes", now_ms=1_702_000_000_000)
    >>> summary.segments
    13

    Index files go to the same path below `index_dir`, or beside the logs with `in_place`. The
    catalog is `index_dir/_catalog` unless `catalog` names another place. Places are paths or URIs.
    With `index_files=False` every log is read, and only the catalog is written.

    - `now_ms`: when the build begins, ms since 1970 or a `datetime` with a time zone
    - `options`: see `BuildOptions` and `SparkRun`

    Damaged segments are rows of the catalog, not exceptions. Raises LocationError, CatalogError,
    LockedError or ValueError before anything is written, PublishError if the disk is full. If no
    log can be read, Kip33Error is raised and nothing is committed.
    """
    named = [source, index_dir, options["catalog"]]
    source, index_dir, catalog = given_places(spark, named, options, writes=True)
    request = picked(BuildRequest, options, source=source, index_dir=index_dir, catalog=catalog)
    now, on_progress = parsed("now_ms", moment_ms, now_ms), options["on_progress"]
    plan = plan_build(request, now_ms=now, on_progress=on_progress)
    return execute_build(plan, SparkEngine.of(spark, options))


@takes(SparkVerifyOptions)
def verify_index(
    spark: SparkSession,
    source: str,
    index_dir: str | None = None,
    **options: Unpack[SparkVerifyOptions],
) -> DataFrame:
    """Verify every index file of a tree against its log; return a row for each segment, by path.

    >>> verify_index(spark, "archive", topics=["orders"]).where("verdict = 'missing'").count()
    4

    The index files are in `index_dir`, or beside the logs. The work is done when this returns.

    - `options`: see `VerifyOptions` and `SparkRun`

    A `share` requires `as_of`. Columns (`verdicts` in `kip33/api/RESULTS.md`): `log_uri`,
    `index_uri`, `verdict`, `dialect`, `offset_index_verdict`, `transaction_index_verdict`,
    `log_status`, `log_error`: string; `problems`: array of strings; `entries`: bigint, a number;
    `largest_gap_bytes`, `offset_index_largest_gap_bytes`: bigint, bytes of the log. Raises
    LocationError for a missing directory or one without segments, PolicyError for a wrong
    `kafka_configs`, ValueError for a wrong argument.
    """
    source, index_dir = given_places(spark, [source, index_dir], options)
    request = picked(VerifyRequest, options, source=source, index_dir=index_dir)
    plan = plan_request(request, on_progress=options["on_progress"])
    verdicts = execute_verify(plan, SparkEngine.of(spark, options))
    parts = [ipc_bytes(pa.Table.from_batches([batch])) for batch in verdict_batches(verdicts)]
    return run_in_arrow(spark, parts, _rows_of, from_arrow_schema(SEGMENT_VERDICTS))


@takes(SparkQuickOptions)
def verify_quick(
    spark: SparkSession,
    source: str,
    index_dir: str | None = None,
    **options: Unpack[SparkQuickOptions],
) -> DataFrame:
    """Compare the index files of a source with their sizes and CRCs in the catalog; read no log.

    Returns a row for each index file that is not as the build wrote it, by URI.

    >>> verify_quick(spark, "archive", "spark-indexes").count()
    0

    - `options`: see `QuickOptions` and `SparkRun`

    Columns (`not_identical` in `kip33/api/RESULTS.md`): `uri`, `verdict` (`changed`, `missing`,
    `unknown` or `unreadable`), `problem`: string; `expected_bytes`, `expected_crc32c`,
    `found_bytes`, `found_crc32c`: bigint. Raises ValueError without `index_dir` and `catalog`,
    CatalogError for a catalog that is missing, damaged or of another source.
    """
    named = [source, index_dir, options["catalog"]]
    source, index_dir, catalog = given_places(spark, named, options)
    request = picked(QuickRequest, options, source=source, index_dir=index_dir, catalog=catalog)
    engine = SparkEngine.of(spark, options)
    found = quick_verification.verify_quick(request, engine, warn_caller).table()
    return run_in_arrow(spark, [ipc_bytes(found)], _rows_of, from_arrow_schema(CHECKED_FILES))


def _rows_of(part: bytes) -> list[pa.RecordBatch]:
    return pa.ipc.open_stream(pa.BufferReader(part)).read_all().to_batches()
