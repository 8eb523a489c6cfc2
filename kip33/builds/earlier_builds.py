"""What earlier builds left: the newest snapshot with its rows, and claims on index files.

The claims of earlier builds show which index files are ours, a build's own what it may write.
"""

from itertools import chain
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.listing import Column
from kip33.builds.build_options import BuildSpec
from kip33.builds.orphans import index_stems
from kip33.builds.reuse import Mask, Ours, ReusableRows, ours_column, read_reusable
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.draft import claimed_index_uris
from kip33.errors import CatalogError, UnreadableCatalogError
from kip33.formats.index_kinds import IndexKind

FIX_IT: Final = (
    "without it this build cannot tell which index files it owns: fix it and run the command again"
)


class EarlierBuilds(NamedTuple):
    """The newest snapshot and the index files of earlier builds."""

    newest: Snapshot | None
    known: ReusableRows | None
    warnings: tuple[str, ...]
    claimed: Column  # our index files that may be in no snapshot
    suspect: Column  # of these: perhaps rewritten since the newest snapshot


def read_earlier_builds(catalog: Catalog, build: BuildSpec) -> EarlierBuilds:
    """Return the newest snapshot and the claims as of one moment; raises as `newest_known`."""
    while True:
        committed = set(catalog.commit_names())
        newest, known, warnings = newest_known(catalog, build)
        sequence = newest.sequence if newest else 0
        name = newest.name if newest else ""
        claimed = claimed_index_uris(catalog, since=sequence, above=name)
        suspect = claimed_index_uris(catalog, since=sequence + 1, above=name)
        # A build that commits in between removes its claims; then its snapshot has the files.
        if set(catalog.commit_names()) <= committed:
            return EarlierBuilds(newest, known, warnings, claimed, suspect)


def newest_known(
    catalog: Catalog, build: BuildSpec
) -> tuple[Snapshot | None, ReusableRows | None, tuple[str, ...]]:
    """Return the newest undamaged snapshot, its reusable rows, and warnings about damaged ones.

    Raises UnreadableCatalogError for a file that cannot be read now, which does not prove damage.
    """
    warnings: list[str] = []
    for candidate in catalog.candidates():
        problem = candidate.problem
        if candidate.snapshot and not problem:
            try:
                known = read_reusable(catalog, candidate.snapshot, build)
            except UnreadableCatalogError as error:
                raise UnreadableCatalogError(f"{error}; {FIX_IT}") from error
            except CatalogError as error:
                problem = str(error)
            else:
                return candidate.snapshot, known, tuple(warnings)
        if candidate.is_unreadable:
            raise UnreadableCatalogError(f"{problem}; {FIX_IT}")
        warnings.append(f"{problem}; snapshot {candidate.name} is ignored")
    return None, None, tuple(warnings)


def is_in(uris: Column, others: Column) -> Mask:
    """Return which of the URIs are among the others."""
    mask: Mask = pc.is_in(uris, value_set=others).to_numpy().astype(bool)
    return mask


def ours_by_claims(build: BuildSpec, files: pa.Table, wanted: Column, claimed: Column) -> Ours:
    """Return the segments whose index files killed builds may have written.

    A build without `--offset-index` claims no `.index`, so its claim does not make one ours.
    """
    offset_index = is_in(build.uris_of(wanted, IndexKind.OFFSET), claimed)
    time_index = is_in(wanted, claimed)
    if IndexKind.OFFSET in build.kinds:
        time_index &= pc.is_null(files["target_offset_index_bytes"]).to_numpy()
    return {
        IndexKind.TIME: offset_index | time_index,
        IndexKind.OFFSET: offset_index | time_index,
        IndexKind.TRANSACTION: offset_index,
    }


def still_claimed(claimed: Column, wanted: Column) -> Column:
    """Return the claims on index files of segments that were not listed.

    `wanted` are the URIs of the time indexes of the listed segments.
    """
    listed, stems = map(index_stems, (wanted, claimed))
    return claimed.filter(pc.invert(pc.is_in(stems, value_set=listed)))


def claims_of(build: BuildSpec, wanted: Column, files: pa.Table) -> Column:
    """Return the URIs of the index files that a build may write.

    `files` are those of `KnownSegments.to_read`; `wanted` are the URIs of their time indexes. The
    claim of an `.index` is one of the `.txnindex`, too.
    """
    claims = wanted.filter(_may_write(build, files))
    kinds = [kind for kind in IndexKind if kind in build.kinds - {IndexKind.TRANSACTION}]
    chunks = chain.from_iterable(build.uris_of(claims, kind).chunks for kind in kinds)
    return pa.chunked_array([*chunks], pa.string())


def _may_write(build: BuildSpec, files: pa.Table) -> Column:
    """Return for each file whether its index files are claimed by us or missing."""
    may_write = pc.is_valid(files["base_offset"])
    for kind in build.kinds:  # a claim covers all index files of a segment
        is_missing = pc.is_null(files[f"target_{kind}_bytes"])
        may_write = pc.and_(may_write, pc.or_(files[ours_column(kind)], is_missing))
    return may_write
