"""Match the listing with the newest snapshot: reusable rows, owned index files, orphans.

**Segments whose topic was recreated.** A topic's id is read from `partition.metadata`. The row of
an unchanged segment has the id and the file's modification time, so a directory whose segments are
all known is not read again. Kafka never changes such a file; only another one can take its place.

**Rows to rebuild because an earlier segment changed.** The `.txnindex` of a segment depends on the
transactions that are open at its start. So if a build reads a segment, it also reads the later ones
again that have transactions. On most nights the segments that are read are the last ones of their
partitions, and no segment follows them.

Behind a log that could not be read the transactions are unknown. A build tries such a log each
night, but reads the segments behind it again only when the log can be opened.
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.layouts import KAFKA
from kip33.archive.listing import (
    Column,
    log_uris,
    with_checkpoints,
    with_log_dirs_by_topic_id,
    with_neighbours,
    with_topic_ids,
)
from kip33.builds.build_options import BuildSpec
from kip33.builds.carry_over import CarryOver, ListingScope, plan_carry_over
from kip33.builds.earlier_builds import EarlierBuilds, is_in, ours_by_claims
from kip33.builds.largest_before import LARGEST_BEFORE, EarlierTimestamps, earlier_timestamps
from kip33.builds.orphans import (
    OrphanPlan,
    find_orphans,
    match_orphans,
    ours_by_orphans,
    still_orphaned,
)
from kip33.builds.reuse import (
    NULL_NUMBER,
    Int64s,
    ListingMatch,
    Mask,
    Ours,
    ReusableRows,
    match_listing,
    may_change_unseen,
    ours_column,
)
from kip33.catalog.catalog import Catalog
from kip33.catalog.orphan_list import read_orphans
from kip33.catalog.segment_order import order_of, partition_begins
from kip33.drafts.designs import design_of
from kip33.formats.batch import NO_TIMESTAMP
from kip33.formats.index_kinds import IndexKind
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import opened
from kip33.stores.locations import Location

_WITH_TOPIC_ID: Final = re.compile(r"(?:.*/)?[A-Za-z0-9_-]{22}")


class ListedSegments(NamedTuple):
    """The listed segments and their places, in order (`catalog.segment_order`)."""

    files: pa.Table  # a LISTING with CHECKPOINTS
    uris: Column  # of the logs
    wanted: Column  # of their index files
    at: Int64s  # their rows in the newest snapshot, -1: without one
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, build: BuildSpec, files: pa.Table, past: EarlierBuilds) -> "ListedSegments":
        """Return the segments of a listing with their topic ids, which may be read for this."""
        uris = log_uris(build.source, files["path"], files["inside"])
        at, ids = np.full(files.num_rows, -1, np.int64), None
        if past.newest and past.known:
            at, since_ms = past.known.numbers_of(uris), past.newest.created_ms
            ids = known_topic_ids(past.known, at, files, known_listed_ms=since_ms)
        files, warnings = with_topic_ids(build.source, files, ids)
        if build.layout != KAFKA.name:  # where log_dir is a path
            files = with_neighbours(with_log_dirs_by_topic_id(files))
        order = order_of(files, uris)
        files, uris = (one.take(pa.array(order)) for one in (files, uris))
        files, unread = with_checkpoints(build.source, files, partition_begins(files))
        return cls(files, uris, build.index_uris(uris), at[order], (*warnings, *unread))


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownSegments:
    """The listing matched with the newest snapshot: masks over the listing, and rows."""

    reusable: Mask  # its row is taken over, the segment is not read
    ours: Ours  # these may be replaced
    log_is_new: Mask  # no row has its log
    is_spoiled: Mask  # its index files are not as a build left them, though its log is
    largest_before: Int64s  # of segments whose rows are reused
    carry_over: CarryOver | None
    orphans: OrphanPlan
    warnings: tuple[str, ...]

    def to_read(self, files: pa.Table) -> pa.Table:
        """Return the segments to read, with the columns that `builds.task` needs."""
        for kind in IndexKind:
            files = files.append_column(ours_column(kind), pa.array(self.ours[kind], pa.bool_()))
        files = files.append_column("log_is_new", pa.array(self.log_is_new, pa.bool_()))
        files = files.append_column(LARGEST_BEFORE, pa.array(self.largest_before))
        return files.filter(pa.array(~self.reusable))


def known_segments(
    build: BuildSpec,
    catalog: Catalog,
    listed: ListedSegments,
    past: EarlierBuilds,
    scope: ListingScope,
    *,
    reuse: bool,
) -> KnownSegments:
    """Match the listed segments with the newest snapshot; without `reuse` all are read."""
    files, no_rows = listed.files, np.zeros(listed.files.num_rows, bool)
    no_times = np.full(files.num_rows, NO_TIMESTAMP, np.int64)
    ours = ours_by_claims(build, files, listed.wanted, past.claimed)
    newest, known = past.newest, past.known
    warnings = (*past.warnings, *listed.warnings)
    if not newest or not known:
        return KnownSegments(
            reusable=no_rows,
            ours=ours,
            log_is_new=no_rows,
            is_spoiled=no_rows,
            largest_before=no_times,
            carry_over=None,
            orphans=OrphanPlan.empty(),
            warnings=warnings,
        )
    listed_ms = (newest.created_ms, scope.now_ms)
    match = match_listing(build, known, files, listed.at, listed_ms=listed_ms)
    earlier, unreadable_list = read_orphans(catalog, newest)
    matched = match_orphans(earlier, files, listed.wanted)
    ours = {kind: ours[kind] | match.ours[kind] for kind in IndexKind}
    time_index_ours = is_in(listed.wanted, past.claimed) | match.time_index_ours
    ours_of_log = {IndexKind.TIME: time_index_ours, IndexKind.OFFSET: ours[IndexKind.OFFSET]}
    by_orphans = ours_by_orphans(matched, files, ours_of_log, build.kinds)
    for kind in IndexKind:
        ours[kind] |= matched.files[kind] if kind is IndexKind.TRANSACTION else by_orphans
    reusable = _reusable(build, listed, past, known, match) & ~by_orphans if reuse else no_rows
    times = EarlierTimestamps(reusable, no_times)
    if design_of(build.settings.dialect).needs_largest_before and known.rows:
        times = earlier_timestamps(catalog, newest, files, listed.uris, reusable)
        reusable = times.reusable
    suspect = is_in(build.index_uris(known.log_uri), past.suspect)
    match = match._replace(reusable=reusable)
    carry_over = plan_carry_over(build, newest, known, match, files, scope, suspect=suspect)
    is_still_orphaned = still_orphaned(matched, ours, build.kinds)
    orphaned = find_orphans(
        build, known, carry_over.gone, suspect, earlier.filter(pa.array(is_still_orphaned)), scope
    )
    return KnownSegments(
        reusable=reusable,
        ours=ours,
        log_is_new=no_rows if build.in_place else match.at < 0,
        is_spoiled=match.is_spoiled,
        largest_before=times.largest_before,
        carry_over=carry_over,
        orphans=OrphanPlan(orphaned, earlier),
        warnings=(*warnings, unreadable_list) if unreadable_list else warnings,
    )


def _reusable(
    build: BuildSpec,
    listed: ListedSegments,
    past: EarlierBuilds,
    known: ReusableRows,
    match: ListingMatch,
) -> Mask:
    """Return which rows of the snapshot are right for their listed segments."""
    reusable: Mask = match.reusable & ~is_in(listed.wanted, past.suspect)
    reusable &= ~_has_moved(known, listed.at, listed.files)
    return reusable & ~_depend_on_changes(build, listed, known, match, reusable)


def known_topic_ids(
    known: ReusableRows, at: Int64s, files: pa.Table, *, known_listed_ms: int
) -> Column:
    """Return for each of `files` the id in its row of the snapshot, null if it may be another.

    `at` are the numbers of their rows, -1 without one. A file that changed less than 2 s before
    the listing that gave the row is read again.
    """
    if not known.rows:
        return pa.nulls(files.num_rows, pa.string())
    now_ms = pc.fill_null(files["partition_metadata_modified_ms"], NULL_NUMBER).to_numpy()
    same = (
        (at >= 0) & (now_ms != NULL_NUMBER) & (known.partition_metadata_modified_ms[at] == now_ms)
    )
    same &= ~may_change_unseen(now_ms, known_listed_ms)
    return known.topic_id.take(pa.array(at, mask=~same)).combine_chunks()


def _has_moved(known: ReusableRows, at: Int64s, files: pa.Table) -> Mask:
    """Return which of `files` have another log_dir than their rows.

    This is so after a topic was deleted and created again: its log_dir gets the topic id. Such a
    segment is read again, because other segments are before it now.
    """
    names = pc.unique(known.log_dir).to_pylist() + pc.unique(files["log_dir"]).to_pylist()
    if not known.rows or not any(name and _WITH_TOPIC_ID.fullmatch(name) for name in names):
        return np.zeros(files.num_rows, bool)
    before = known.log_dir.take(pa.array(at, mask=at < 0))
    moved: Mask = pc.not_equal(before, files["log_dir"]).fill_null(False).to_numpy()
    return moved


def _depend_on_changes(
    build: BuildSpec,
    listed: ListedSegments,
    known: ReusableRows,
    match: ListingMatch,
    reusable: Mask,
) -> Mask:
    """Return which of the `reusable` rows must be read again: an earlier segment is read.

    Or a `.snapshot` beside it, or beside an earlier one, is another.
    """
    files = listed.files
    if not known.rows or IndexKind.OFFSET not in build.kinds:
        return np.zeros(files.num_rows, bool)
    depends = reusable & known.has_transactions[match.at]
    changed = ~reusable & pc.is_valid(files["base_offset"]).to_numpy()
    numbers = np.arange(files.num_rows)
    first = np.maximum.accumulate(np.where(partition_begins(files), numbers, 0))
    was_unread = changed & (match.at >= 0) & known.is_unread[match.at]
    last_unread = np.maximum.accumulate(np.where(was_unread, numbers, -1))
    # What is behind two such logs depends on the later one.
    tried = np.unique(last_unread[depends & (last_unread >= first)])
    logs = listed.uris.take(pa.array(tried)).to_pylist()
    can_be_opened = np.fromiter(map_in_order(build.source, logs, _can_be_opened), bool)
    still_unread = tried[~can_be_opened]
    sources = np.where(changed, numbers, -1)
    sources[still_unread] = -1
    sources[match.other_snapshot] = numbers[match.other_snapshot]
    ends = np.full(files.num_rows, -1)
    ends[still_unread] = still_unread
    last_changed = np.maximum.accumulate(sources)
    return depends & (last_changed >= first) & (last_changed > np.maximum.accumulate(ends))


def _can_be_opened(log_uri: str) -> bool:
    """Return whether the first byte of a log can be read, if it has one."""
    try:
        with opened(Location.of(log_uri)) as (read_into, _):
            read_into(0, memoryview(bytearray(1)))
    except (OSError, ValueError):
        return False
    return True
