"""What earlier builds tell of the listed segments: rows to reuse, files that are ours, orphans."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kip33.archive.layouts import KAFKA
from kip33.archive.listing import Column, log_uris, told_apart, with_neighbours, with_topic_ids
from kip33.builds.build_spec import BuildSpec
from kip33.builds.carry_over import CarryOver, plan_carry_over
from kip33.builds.earlier_builds import EarlierBuilds
from kip33.builds.index_claims import is_in, ours_by_claims, snapshots_by_claims
from kip33.builds.known_topic_ids import has_moved, known_topic_ids
from kip33.builds.largest_before import LARGEST_BEFORE, EarlierTimestamps, earlier_timestamps
from kip33.builds.orphans import (
    PRODUCER,
    TRANSACTION,
    OrphanPlan,
    find_orphans,
    ours_by_orphans,
    returned_orphans,
    still_orphaned,
)
from kip33.builds.reusable_rows import Int64s, Mask, ReusableRows
from kip33.builds.reuse import ListingMatch, match_listing
from kip33.builds.snapshot_merge import Looked
from kip33.builds.transaction_reuse import may_differ
from kip33.catalog.catalog import Catalog
from kip33.catalog.orphan_list import read_orphans
from kip33.formats.batch import NO_TIMESTAMP
from kip33.rules.draft_entries import BUCKET


class ListedSegments(NamedTuple):
    """The listed segments and their places."""

    files: pa.Table  # a LISTING
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
            files = with_neighbours(told_apart(files))
        return cls(files, uris, build.index_uris(uris), at, warnings)


class KnownSegments(NamedTuple):
    """What earlier builds tell of the listed segments: masks over the listing, and rows."""

    reusable: Mask  # its row is taken over, the segment is not read
    ours: Mask  # its `.timeindex` and `.index` may be replaced
    transaction_index_ours: Mask
    producer_snapshot_ours: Mask
    log_is_new: Mask  # no row has its log
    largest_before: Int64s  # of segments whose rows are reused; only for the dialect `bucket`
    takeover: CarryOver | None
    orphans: OrphanPlan
    warnings: tuple[str, ...]

    def to_read(self, files: pa.Table) -> pa.Table:
        """Return the segments to read, with the columns that `builds.task` needs."""
        more = {
            "ours": self.ours,
            "transaction_index_ours": self.transaction_index_ours,
            "producer_snapshot_ours": self.producer_snapshot_ours,
            "log_is_new": self.log_is_new,
        }
        for name, mask in more.items():
            files = files.append_column(name, pa.array(mask, pa.bool_()))
        files = files.append_column(LARGEST_BEFORE, pa.array(self.largest_before))
        return files.filter(pa.array(~self.reusable))


def known_segments(
    build: BuildSpec,
    catalog: Catalog,
    listed: ListedSegments,
    past: EarlierBuilds,
    looked: Looked,
    *,
    reuse: bool,
) -> KnownSegments:
    """Return what earlier builds tell of the listed segments; without `reuse` all are read."""
    files, none = listed.files, np.zeros(listed.files.num_rows, bool)
    no_times = np.full(files.num_rows, NO_TIMESTAMP, np.int64)
    ours, transaction_ours = ours_by_claims(build, files, listed.wanted, past.claimed)
    snapshot_ours = snapshots_by_claims(build, listed.wanted, past.claimed)
    newest, known = past.newest, past.known
    warnings = (*past.warnings, *listed.warnings)
    if not newest or not known:
        orphans = OrphanPlan.empty()
        return KnownSegments(
            none,
            ours,
            transaction_ours,
            snapshot_ours,
            none,
            no_times,
            None,
            orphans,
            warnings,
        )
    found = match_listing(
        known,
        files,
        listed.at,
        listed_ms=looked.now_ms,
        known_listed_ms=newest.created_ms,
        offset_index=build.offset_index,
        producer_snapshots=build.producer_snapshots,
        untimestamped=build.settings.untimestamped,
    )
    earlier, problem = read_orphans(catalog, newest)
    returned = returned_orphans(earlier, files, listed.wanted)
    by_orphans = ours_by_orphans(
        returned,
        files,
        time_index_ours=is_in(listed.wanted, past.claimed) | found.time_index_ours,
        ours=ours | found.ours,
        offset_index=build.offset_index,
    )
    ours = ours | found.ours | by_orphans
    transaction_ours = transaction_ours | found.transaction_index_ours | returned.files[TRANSACTION]
    snapshot_ours = snapshot_ours | found.producer_snapshot_ours | returned.files[PRODUCER]
    reusable = _reusable(build, listed, past, known, found) & ~by_orphans if reuse else none
    times = EarlierTimestamps(reusable, no_times)
    if build.settings.dialect == BUCKET.name and known.rows:
        times = earlier_timestamps(catalog, newest, files, listed.uris, reusable)
        reusable = times.reusable
    suspect = is_in(build.index_uris(known.log_uri), past.suspect)
    takeover = plan_carry_over(
        newest,
        known,
        found._replace(reusable=reusable),
        files,
        suspect=suspect,
        topics=looked.topics,
        unlistable=looked.unlistable,
    )
    stay = still_orphaned(
        returned,
        ours=ours,
        transaction_index_ours=transaction_ours,
        producer_snapshot_ours=snapshot_ours,
        offset_index=build.offset_index,
        producer_snapshots=build.producer_snapshots,
    )
    orphaned = find_orphans(
        build, known, takeover.gone, suspect, earlier.filter(pa.array(stay)), looked
    )
    return KnownSegments(
        reusable,
        ours,
        transaction_ours,
        snapshot_ours,
        none if build.in_place else found.at < 0,
        times.largest_before,
        takeover,
        OrphanPlan(orphaned, earlier),
        (*warnings, problem) if problem else warnings,
    )


def _reusable(
    build: BuildSpec,
    listed: ListedSegments,
    past: EarlierBuilds,
    known: ReusableRows,
    found: ListingMatch,
) -> Mask:
    """Return which rows of the snapshot are right for their listed segments."""
    reusable: Mask = found.reusable & ~is_in(listed.wanted, past.suspect)
    reusable &= ~has_moved(known, listed.at, listed.files)
    return reusable & ~may_differ(build, listed.files, listed.uris, known, found, reusable)
