"""The verify job: every index file of a tree against its log."""

from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from kip33.indexing.transaction_verification import (
    with_transaction_verdicts,
)
from kip33.indexing.verification import (
    SegmentVerdict,
    with_missing_offset_indexes,
)
from kip33.indexing.verify_tree import VerifyPlan, plan_verify, verify_bin
from kip33.spark.store_settings import use_session
from kip33.spark.tasks import Progress, run_on_bins


def run_verify(
    spark: SparkSession,
    plan: VerifyPlan,
    *,
    parallelism: int | None = None,
    on_progress: Progress | None = None,
) -> list[SegmentVerdict]:
    """Return one verdict a segment, in order of path.

    If one segment of the tree has a `.index`, those without one are `missing` theirs.
    """
    verdicts = run_on_bins(
        spark,
        plan.files,
        partial(verify_bin, plan.verify),
        parallelism=parallelism,
        on_progress=on_progress,
    )
    verified = with_transaction_verdicts(verdicts)
    in_order_of_path = sorted(verified, key=lambda verdict: verdict.log_uri)
    return with_missing_offset_indexes(in_order_of_path)


def verify_index(
    spark: SparkSession, source: str, index_dir: str | None = None, **settings: Any
) -> list[SegmentVerdict]:
    """Return the verdicts on a tree: `plan_verify` (whose settings these are) and `run_verify`."""
    use_session(spark)
    return run_verify(spark, plan_verify(source, index_dir, **settings))
