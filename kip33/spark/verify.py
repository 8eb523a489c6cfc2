"""The verify job: every index file of a tree held against its log."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from kip33.archive.directory import Segment
from kip33.archive.layouts import layout_of
from kip33.archive.listing import Listed, segments_of
from kip33.archive.segment_paths import beside, index_path
from kip33.archive.sources import require_segments
from kip33.indexing.transaction_verification import (
    VerifiedSegment,
    seen_transactions,
    with_transaction_verdicts,
)
from kip33.indexing.verification import (
    SegmentVerdict,
    offset_index_of,
    verify_file,
    with_missing_offset_indexes,
)
from kip33.rules.index_builder import IndexSettings, TopicSettings
from kip33.rules.index_verdict import UNREADABLE
from kip33.spark.store_settings import use_session
from kip33.spark.tasks import Progress, run_on_bins
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import require_directory
from kip33.stores.locations import Location


class Verify(NamedTuple):
    """What one verification does; travels to every task."""

    source: Location
    index_dir: Location
    settings: TopicSettings


class VerifyPlan(NamedTuple):
    """What a verification will do: the listing is done, no file is opened yet."""

    verify: Verify
    files: pa.Table


def plan_verify(
    source: str,
    index_dir: str | None = None,
    *,
    settings: IndexSettings | TopicSettings | None = None,
    topics: Sequence[str] = (),
    layout: str = "kafka",
    on_listed: Listed | None = None,
) -> VerifyPlan:
    """Return the plan to hold every `.timeindex` of `source` against its log.

    The `.timeindex` is looked for in `index_dir`, or beside the log; the `.index` there, else
    beside the log. `settings` hold for all topics, or for each its own. Raises LocationError for a
    missing directory or one without segments.
    """
    if not isinstance(settings, TopicSettings):
        settings = TopicSettings(settings or IndexSettings())
    settings.default.require_valid()
    source_location = Location.of(source)
    index_location = Location.of(index_dir) if index_dir else source_location
    listing = require_segments(
        source_location, topics, layout=layout_of(layout), on_listed=on_listed
    )
    require_directory(index_location, "the index directory")
    return VerifyPlan(Verify(source_location, index_location, settings), listing.table)


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


def verify_bin(verify: Verify, number: int, files: pa.Table) -> Iterator[VerifiedSegment]:
    """Yield the verdict of every segment of one bin: a task's whole work."""
    yield from map_in_order(verify.source, segments_of(files), partial(_verify_one, verify))


def _verify_one(verify: Verify, segment: Segment) -> VerifiedSegment:
    log = segment.log(verify.source)
    time_index = beside(log, "timeindex")
    if verify.index_dir != verify.source:
        time_index = verify.index_dir.child(index_path(segment.path, "timeindex"))
    if segment.error or segment.base_offset is None or segment.topic is None:
        what = "directory cannot be listed" if segment.is_directory else "log cannot be read"
        problem = (f"the {what}: {segment.error}",)
        return VerifiedSegment(
            SegmentVerdict(
                log.uri, time_index.uri, UNREADABLE, None, None, problem, None, UNREADABLE, None
            )
        )
    offset_index = offset_index_of(log, time_index)
    verdict, index = verify_file(
        log,
        time_index,
        offset_index,
        base_offset=segment.base_offset,
        topic=segment.topic,
        settings=verify.settings.of(segment.topic),
        native=True,
    )
    partition = (segment.log_dir, segment.topic, segment.partition)
    seen = seen_transactions(partition, log, offset_index, index, base_offset=segment.base_offset)
    return VerifiedSegment(verdict, seen)
