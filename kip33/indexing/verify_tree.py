"""Verify every index file of a tree against its log: the plan, and what one task does."""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.bins import Engine, Work
from kip33.archive.directory import Segment
from kip33.archive.layouts import layout_of
from kip33.archive.listing import segments_of
from kip33.archive.segment_paths import beside, index_path
from kip33.archive.sources import require_segments
from kip33.indexing.folded_verdicts import VerifiedSegment, seen_segment
from kip33.indexing.segment import FileTimeEntry, with_whole_log
from kip33.indexing.tree_verdicts import TreeVerdicts, blocks_of
from kip33.indexing.verification import (
    SegmentVerdict,
    offset_index_of,
    verify_file,
)
from kip33.rules.index_builder import IndexSettings, TopicSettings
from kip33.rules.packing import DailyShare
from kip33.stores.concurrently import map_in_order
from kip33.stores.directory_checks import require_directory
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress, Phase, tell_nobody


class Verify(NamedTuple):
    """The settings of one verification; sent to every task."""

    source: Location
    index_dir: Location
    settings: TopicSettings


class VerifyPlan(NamedTuple):
    """The plan of a verification: the listing is done, no file is opened yet."""

    verify: Verify
    files: pa.Table
    listed: int  # segments below SOURCE, also those of other days


def plan_verify(  # parameters: the options of `kip33 verify`
    source: str,
    index_dir: str | None = None,
    *,
    settings: IndexSettings | TopicSettings | None = None,
    topics: Sequence[str] = (),
    layout: str = "kafka",
    share: DailyShare | None = None,
    now_ms: int = 0,
    on_progress: OnProgress = tell_nobody,
) -> VerifyPlan:
    """Return the plan to verify every `.timeindex` of `source` against its log.

    The `.timeindex` is read from `index_dir`, or beside the log; the `.index` from there, or else
    beside the log. `settings` are those of all topics, or of each topic. With `share`, only the
    segments of its parts on the day of `now_ms` are verified, and directories that could not be
    listed. Raises LocationError for a missing directory or one without segments.
    """
    if not isinstance(settings, TopicSettings):
        settings = TopicSettings(settings or IndexSettings())
    settings.default.require_valid()
    source_location = Location.of(source)
    index_location = Location.of(index_dir) if index_dir else source_location
    listing = require_segments(
        source_location, topics, layout=layout_of(layout), on_progress=on_progress
    )
    require_directory(index_location, "the index directory")
    files = listing.table if share is None else _of_day(listing.table, share, now_ms)
    verify = Verify(source_location, index_location, settings)
    return VerifyPlan(verify, files, listing.table.num_rows)


def _of_day(files: pa.Table, share: DailyShare, now_ms: int) -> pa.Table:
    wanted = share.parts_on(now_ms)
    in_share = pa.array([share.part_of(path or "") in wanted for path in files["path"].to_pylist()])
    is_unlisted = pc.is_null(files["last_modified_ms"])
    return files.filter(pc.or_(in_share.cast(pa.bool_()), is_unlisted))


def execute_verify(plan: VerifyPlan, engine: Engine) -> TreeVerdicts:
    """Return one verdict per segment, in order of path.

    If one segment of the tree has a `.index`, segments without one have the verdict `missing`.
    """
    verify = plan.verify
    marks = _first_entry(verify.index_dir)
    work = Work(Phase.READING_LOGS, source=verify.source, marks=marks, command="verify")
    with closing(engine.stream_bins(plan.files, partial(_blocks, verify), work=work)) as blocks:
        return TreeVerdicts.of(blocks)


def _blocks(verify: Verify, number: int, files: pa.Table) -> Iterator[bytes]:
    return blocks_of(verify_bin(verify, number, files))


def _first_entry(index_dir: Location) -> tuple[Location, ...]:
    """Return an entry of a local index directory, as a mark; none of an empty one or a store."""
    if not index_dir.is_local:
        return ()
    with os.scandir(index_dir.path) as entries:
        names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
    return tuple(map(index_dir.child, names[:1]))


def verify_bin(verify: Verify, number: int, files: pa.Table) -> Iterator[VerifiedSegment]:
    """Yield the verdict on every segment of one bin, which is the work of one task."""
    segments = segments_of(files)
    run = partial(_verify_one, verify)
    yield from map_in_order(
        verify.source, segments, run, held_bytes=lambda segment: segment.size_bytes or 0
    )


def unreadable_verdict(segment: Segment, log: Location, time_index: Location) -> SegmentVerdict:
    """Return the verdict on a directory or log that could not be read while listing."""
    what = "directory cannot be listed" if segment.is_directory else "log cannot be read"
    return SegmentVerdict.unreadable(log.uri, time_index.uri, f"the {what}: {segment.error}")


def _verify_one(verify: Verify, segment: Segment) -> VerifiedSegment:
    log = segment.log(verify.source)
    time_index = beside(log, "timeindex")
    if verify.index_dir != verify.source:
        time_index = verify.index_dir.child(index_path(segment.path, "timeindex"))
    if segment.error or segment.base_offset is None or segment.topic is None:
        return VerifiedSegment(unreadable_verdict(segment, log, time_index))
    offset_index = offset_index_of(log, time_index)
    settings = verify.settings.of(segment.topic)
    verdict, index = verify_file(
        log,
        time_index,
        offset_index,
        base_offset=segment.base_offset,
        topic=segment.topic,
        settings=settings,
        native=True,
        file_time=FileTimeEntry.of(settings.untimestamped, segment),
    )
    index = with_whole_log(
        index, is_last=bool(segment.active_segment), next_base_offset=segment.next_base_offset
    )
    verdict = replace(verdict, log_status=index.status, log_error=index.error)
    return seen_segment(
        verdict,
        index,
        partition=(segment.log_dir, segment.topic, segment.partition),
        base_offset=segment.base_offset,
        log=log,
        offset_index=offset_index,
    )
