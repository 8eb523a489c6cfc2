"""What earlier builds left: the newest snapshot with its rows, and claims on index files.

The claims of earlier builds show which index files are ours, a build's own what it may write.
"""

from itertools import chain
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.listing import Column
from kip33.builds.build_options import BuildSpec
from kip33.builds.reuse import Mask, ReusableRows, read_reusable
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.draft import claimed_index_uris
from kip33.errors import CatalogError, UnreadableCatalogError

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


def ours_by_claims(
    build: BuildSpec, files: pa.Table, wanted: Column, claimed: Column
) -> tuple[Mask, Mask]:
    """Return the segments whose index files, and whose `.txnindex`, killed builds may have written.

    A build without `--offset-index` claims no `.index`, so its claim does not make one ours.
    """
    all_kinds = is_in(_uris_of(build, wanted, "index"), claimed)
    time_index = is_in(wanted, claimed)
    if build.offset_index:
        time_index &= pc.is_null(files["target_offset_index_bytes"]).to_numpy()
    return all_kinds | time_index, all_kinds


def snapshots_by_claims(build: BuildSpec, wanted: Column, claimed: Column) -> Mask:
    """Return the segments whose `.snapshot` killed builds may have written."""
    return is_in(_uris_of(build, wanted, "snapshot"), claimed)


def _uris_of(build: BuildSpec, time_index_uris: Column, kind: str) -> Column:
    suffix = f".{build.time_index}"
    stems = pc.utf8_slice_codeunits(time_index_uris, start=0, stop=-len(suffix))
    return pc.binary_join_element_wise(stems, f".{kind}", "")


def still_claimed(claimed: Column, wanted: Column) -> Column:
    """Return the claims on index files of segments that were not listed.

    `wanted` are the URIs of the time indexes of the listed segments.
    """
    listed, stems = (
        pc.replace_substring_regex(uris, r"\.[^/]*$", "") for uris in (wanted, claimed)
    )
    return claimed.filter(pc.invert(pc.is_in(stems, value_set=listed)))


def claims_of(build: BuildSpec, wanted: Column, files: pa.Table) -> Column:
    """Return the URIs of the index files that a build may write.

    `files` are the segments to read, with `ours` and `transaction_index_ours`; `wanted` are the
    URIs of their time indexes.
    """
    claims = wanted.filter(_may_write(build, files))
    kinds = ["index"] if build.offset_index else []
    kinds += ["snapshot"] if build.producer_snapshots else []
    others = [_uris_of(build, claims, kind).chunks for kind in kinds]
    return pa.chunked_array([*claims.chunks, *chain.from_iterable(others)], pa.string())


def _may_write(build: BuildSpec, files: pa.Table) -> Column:
    """Return for each file whether its index files are claimed by us or missing."""
    nothing_there = pc.is_null(files["target_time_index_bytes"])
    if build.offset_index:
        nothing_there = pc.and_(nothing_there, pc.is_null(files["target_offset_index_bytes"]))
    no_transaction_index = pc.is_null(files["target_transaction_index_bytes"])
    transactions = pc.or_(files["transaction_index_ours"], no_transaction_index)
    may_write = pc.or_(files["ours"], nothing_there)
    if build.offset_index:  # a claim covers all index files of a segment
        may_write = pc.and_(may_write, transactions)
    if build.producer_snapshots:
        no_snapshot = pc.is_null(files["target_producer_snapshot_bytes"])
        may_write = pc.and_(may_write, pc.or_(files["producer_snapshot_ours"], no_snapshot))
    return pc.and_(pc.is_valid(files["base_offset"]), may_write)
