"""What earlier builds tell of the listed segments: rows to reuse, files that are ours, orphans."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.uri_columns import Column, index_uris, log_uris
from kip33.builds.build_spec import BuildSpec
from kip33.builds.carry_over import CarryOver, plan_carry_over
from kip33.builds.earlier_builds import EarlierBuilds
from kip33.builds.index_claims import is_in, ours_by_claims
from kip33.builds.orphans import (
    TRANSACTION,
    OrphanPlan,
    find_orphans,
    ours_by_orphans,
    returned_orphans,
    still_orphaned,
)
from kip33.builds.reuse import ListingMatch, Mask, ReusableRows, match_listing
from kip33.builds.snapshot_merge import Looked
from kip33.builds.transaction_reuse import transactions_may_differ
from kip33.catalog.catalog import Catalog
from kip33.catalog.orphan_list import read_orphans


class ListedSegments(NamedTuple):
    """The listed segments and their places."""

    files: pa.Table  # a LISTING
    uris: Column  # of the logs
    wanted: Column  # of their index files

    @classmethod
    def of(cls, build: BuildSpec, files: pa.Table) -> "ListedSegments":
        """Return the segments of a listing."""
        uris = log_uris(build.source, files["path"], files["inside"])
        return cls(files, uris, index_uris(uris, build.source, build.index_dir))


class KnownSegments(NamedTuple):
    """What earlier builds tell of the listed segments: masks over the listing, and rows."""

    reusable: Mask  # its row is taken over, the segment is not read
    ours: Mask  # its `.timeindex` and `.index` may be replaced
    transaction_index_ours: Mask
    log_is_new: Mask  # no row has its log
    takeover: CarryOver | None
    orphans: OrphanPlan
    warnings: tuple[str, ...]

    def to_read(self, files: pa.Table) -> pa.Table:
        """Return the segments to read, with the columns that `builds.task` needs."""
        more = {
            "ours": self.ours,
            "transaction_index_ours": self.transaction_index_ours,
            "log_is_new": self.log_is_new,
        }
        for name, mask in more.items():
            files = files.append_column(name, pa.array(mask, pa.bool_()))
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
    ours, transaction_ours = ours_by_claims(build, files, listed.wanted, past.claimed)
    newest, known = past.newest, past.known
    if not newest or not known:
        orphans = OrphanPlan.empty()
        return KnownSegments(none, ours, transaction_ours, none, None, orphans, past.warnings)
    found = match_listing(
        known,
        files,
        listed.uris,
        listed_ms=looked.now_ms,
        known_listed_ms=newest.created_ms,
        offset_index=build.offset_index,
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
    reusable = _reusable(build, listed, past, known, found) & ~by_orphans if reuse else none
    suspect = is_in(index_uris(known.log_uri, build.source, build.index_dir), past.suspect)
    takeover = plan_carry_over(
        newest,
        known,
        found._replace(reusable=reusable),
        pc.fill_null(files["active_segment"], False).to_numpy(),
        suspect=suspect,
        topics=looked.topics,
        unlistable=looked.unlistable,
    )
    stay = still_orphaned(
        returned,
        ours=ours,
        transaction_index_ours=transaction_ours,
        offset_index=build.offset_index,
    )
    orphaned = find_orphans(
        build, known, takeover.gone, suspect, earlier.filter(pa.array(stay)), looked
    )
    return KnownSegments(
        reusable,
        ours,
        transaction_ours,
        none if build.in_place else found.at < 0,
        takeover,
        OrphanPlan(orphaned, earlier),
        (*past.warnings, problem) if problem else past.warnings,
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
    if build.offset_index:
        reusable &= ~transactions_may_differ(listed.files, known, found, reusable)
    return reusable
