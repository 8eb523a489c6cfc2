"""The build job: a plan's files, packed, scanned with `mapPartitions`, committed as a snapshot."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from kip33.builds.build_spec import BuildSpec
from kip33.builds.commit import BuildSummary, begin_build, commit_build
from kip33.builds.plan import BuildPlan, plan_build
from kip33.builds.task import TaskResult, build_bin
from kip33.spark.store_settings import use_session
from kip33.spark.tasks import Progress, run_on_bins
from kip33.stores.locations import Location


def run_build(
    spark: SparkSession,
    plan: BuildPlan,
    *,
    parallelism: int | None = None,
    on_progress: Progress | None = None,
) -> BuildSummary:
    """Carry out a plan: index files, then one catalog snapshot.

    Bad segments are rows, not exceptions. `on_progress` is called with tasks done and in all. In
    place the log directories are locked to the end, as a broker locks them; LockedError where a
    broker, or another run of kip33, holds a lock.
    """
    with plan.locks():
        begun = begin_build(plan)
        results = run_on_bins(
            spark,
            plan.files,
            partial(_build_bin, plan.build, begun.draft.staging, len(begun.taken)),
            reads_files=not plan.build.read_tail,
            parallelism=parallelism,
            on_progress=on_progress,
        )
        return commit_build(begun, results)


def build_index(
    spark: SparkSession,
    source: str,
    index_dir: str | None = None,
    *,
    now_ms: int,
    parallelism: int | None = None,
    on_progress: Progress | None = None,
    **settings: Any,
) -> BuildSummary:
    """Build the indexes of new and changed segments below `source`, commit a catalog snapshot.

    `plan_build` and `run_build` in one; `settings` are the former's: dialect, in_place, catalog,
    topics, offset_index, overwrite, full, read, ...
    """
    use_session(spark)
    plan = plan_build(source, index_dir, now_ms=now_ms, **settings)
    return run_build(spark, plan, parallelism=parallelism, on_progress=on_progress)


def _build_bin(
    build: BuildSpec, staging: Location, first_part: int, number: int, files: pa.Table
) -> Iterator[TaskResult]:
    yield build_bin(build, staging, first_part + number, files)
