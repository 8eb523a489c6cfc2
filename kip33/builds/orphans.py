"""Orphaned index files: ours, but their logs no longer exist. Find them, and use them again.

An orphaned file was written by this catalog's builds for a log whose row was dropped, and it still
has the size and the modification time from the row. It stays orphaned until

- it is deleted, or has another size or time: then it is unknown, not ours;
- a build that writes this kind of file finds its log again: then it is ours, and is replaced.

Orphans of topics and directories that a build does not list stay on the list unchanged.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.index_listing import Statuses, index_statuses
from kip33.archive.leftover_files import INDEX_END
from kip33.archive.listing import Column
from kip33.builds.build_options import BuildSpec
from kip33.builds.carry_over import ListingScope
from kip33.builds.reuse import Mask, ReusableRows
from kip33.catalog.orphan_list import ORPHANS
from kip33.drafts.designs import DRAFT_FILES
from kip33.errors import FileReadError
from kip33.formats.index_kinds import IndexKind
from kip33.rules.publication import IndexFileState
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import FileStatus, entries_of
from kip33.stores.locations import Location

NAMED_BY_ROWS: Final = [
    *("log_uri", "index_uri", "index_file"),
    *(f"{kind}_bytes" for kind in IndexKind),
]


class OrphanPlan(NamedTuple):
    """The orphaned files of a build's snapshot, and those about which the build decided."""

    table: pa.Table  # of ORPHANS
    listed_before: pa.Table  # from the newest snapshot when the build began

    @classmethod
    def empty(cls) -> Self:
        """Return the plan for a catalog without a snapshot."""
        return cls(ORPHANS.empty_table(), ORPHANS.empty_table())


class MatchedOrphans(NamedTuple):
    """The orphaned files, and the listed segments to which they belong now."""

    of_kind: dict[IndexKind, Mask]  # which of the orphaned files are of it
    at: npt.NDArray[np.int64]  # of each: its segment's number in the listing, -1: log not listed
    files: dict[IndexKind, Mask]  # in the listing's order: the file there is orphaned


def match_orphans(orphans: pa.Table, files: pa.Table, wanted: Column) -> MatchedOrphans:
    """Return which of the listed index files are orphaned ones.

    `files` is a LISTING, `wanted` the URIs of its time indexes. A file with another size or
    time than the orphaned one is a different file.
    """
    masks = {kind: np.zeros(files.num_rows, bool) for kind in IndexKind}
    of_kind = _by_kind(orphans["index_uri"])
    stems, wanted_stems = index_stems(orphans["index_uri"]), index_stems(wanted)
    at = pc.index_in(stems, value_set=wanted_stems).fill_null(-1).to_numpy().astype(np.int64)
    for kind, mask in masks.items():
        chosen = (at >= 0) & of_kind[kind]
        there = files.take(pa.array(at[chosen]))
        expected = orphans.filter(pa.array(chosen))
        same = pc.and_(
            pc.equal(there[f"target_{kind}_bytes"], expected["size_bytes"]),
            pc.equal(there[f"target_{kind}_modified_ms"], expected["last_modified_ms"]),
        )
        mask[at[chosen][same.fill_null(False).to_numpy().astype(bool)]] = True
    return MatchedOrphans(of_kind, at, masks)


def ours_by_orphans(
    matched: MatchedOrphans,
    files: pa.Table,
    ours: Mapping[IndexKind, Mask],
    kinds: Collection[IndexKind],
) -> Mask:
    """Return the segments whose index files are all ours because orphaned ones are among them.

    `ours`: which `.timeindex` and `.index` files are already; `kinds` are those that are written.
    """
    some, all_ours = np.zeros(files.num_rows, bool), np.ones(files.num_rows, bool)
    for kind, is_ours in ours.items():
        if kind in kinds:
            is_orphan = matched.files[kind]
            some |= is_orphan
            all_ours &= is_orphan | pc.is_null(files[f"target_{kind}_bytes"]).to_numpy() | is_ours
    return some & all_ours


def still_orphaned(
    matched: MatchedOrphans, ours: Mapping[IndexKind, Mask], kinds: Collection[IndexKind]
) -> Mask:
    """Return which orphaned files belong to no segment of a build that writes these kinds."""
    taken = np.zeros(len(matched.at), bool)
    for kind in kinds:
        chosen = (matched.at >= 0) & matched.of_kind[kind]
        taken[chosen] = ours[kind][matched.at[chosen]]
    return ~taken


def find_orphans(
    build: BuildSpec,
    known: ReusableRows,
    gone: Mask,
    suspect: Mask,
    earlier: pa.Table,
    scope: ListingScope,
) -> pa.Table:
    """Return the orphaned files after a build, as a table of ORPHANS.

    `gone`: the dropped rows of the newest snapshot. `suspect`: rows whose `.timeindex` a killed
    build may have rewritten. `earlier`: orphaned files of earlier builds that belong to no segment
    of this one. The directories of the files are listed; if that fails, the files stay on the list.
    """
    rows = known.ours & gone
    dropped = _named_files(build, known, rows)
    is_looked_at = scope.at(earlier)
    candidates = pa.concat_tables([dropped, earlier.filter(pa.array(is_looked_at))])
    unseen = earlier.filter(pa.array(~is_looked_at))
    if not candidates.num_rows:
        return unseen
    rewritten_logs = known.log_uri.filter(pa.array(rows & suspect))
    rewritten = set(build.index_uris(rewritten_logs).to_pylist())
    return pa.concat_tables([unseen, _as_they_are(build, candidates, rewritten)])


def _named_files(build: BuildSpec, known: ReusableRows, rows: Mask) -> pa.Table:
    """Return the index files that rows name, as a table of ORPHANS."""
    log_uri, topic = known.log_uri.filter(pa.array(rows)), known.topic.filter(pa.array(rows))
    time_indexes = build.index_uris(log_uri)
    tables = []
    for kind in IndexKind:
        size_bytes, modified_ms = known.index_files(kind, rows)
        is_known = (size_bytes >= 0) & (modified_ms >= 0)
        if kind is IndexKind.TRANSACTION:
            is_known &= known.transaction_index_built[rows]
        columns = [
            build.uris_of(time_indexes, kind),
            pa.array(size_bytes),
            pa.array(modified_ms),
            pc.cast(topic, pa.string()),
            log_uri,
        ]
        tables.append(pa.table(columns, schema=ORPHANS).filter(pa.array(is_known)))
    return pa.concat_tables(tables)


def _as_they_are(build: BuildSpec, candidates: pa.Table, rewritten: set[str]) -> pa.Table:
    """Return the index files that exist unchanged, each file once.

    A killed build may have changed the size and time of those in `rewritten`: they stay ours.
    """
    rows = candidates.to_pylist()
    folders = sorted({row["index_uri"].rpartition("/")[0] for row in rows})
    listed = map_in_order(build.index_dir, map(Location.of, folders), _statuses_in)
    statuses = dict(zip(folders, listed, strict=True))
    unchanged: dict[str, dict[str, Any]] = {}
    for row in rows:
        in_folder = statuses[row["index_uri"].rpartition("/")[0]]
        if in_folder is not None:
            there = in_folder.get(Location.of(row["index_uri"]).name)
            was = FileStatus(row["size_bytes"], row["last_modified_ms"])
            if there is None or (there != was and row["index_uri"] not in rewritten):
                continue
            row |= {"size_bytes": there.size_bytes, "last_modified_ms": there.modified_ms}
        if row["last_modified_ms"] is not None:
            unchanged.setdefault(row["index_uri"], row)
    return pa.Table.from_pylist(list(unchanged.values()), ORPHANS)


def _statuses_in(folder: Location) -> Statuses | None:
    """Return the index files in a folder, None if it cannot be listed."""
    try:
        return index_statuses(folder, entries_of(folder))
    except NotADirectoryError:
        return {}
    except FileReadError:
        return None


def merge_orphans(
    mine: pa.Table, newer: pa.Table, *, listed_before: pa.Table, scope: ListingScope
) -> pa.Table:
    """Return the orphaned files of a build, merged with those of a newer snapshot.

    Files that this build did not check stay as in the newer snapshot. Of the others, it decided
    about those that were listed before it began; the rest are new, and stay.
    """
    decided = pc.is_in(newer["index_uri"], value_set=listed_before["index_uri"])
    decided = pc.or_(decided, pc.is_in(newer["index_uri"], value_set=mine["index_uri"]))
    take = ~scope.at(newer) | ~decided.to_numpy().astype(bool)
    return pa.concat_tables([mine.filter(pa.array(scope.at(mine))), newer.filter(pa.array(take))])


def without_named(orphans: pa.Table, rows: Iterable[pa.Table]) -> pa.Table:
    """Return the orphaned files that none of our rows names; `rows` have NAMED_BY_ROWS."""
    named: list[Any] = []
    ours = pa.array([IndexFileState.WRITTEN, IndexFileState.STALE])
    for piece in rows:
        is_ours = pc.is_in(piece["index_file"], value_set=ours)
        has_orphans = pc.is_in(piece["log_uri"], value_set=orphans["log_uri"])
        found = piece.filter(pc.and_(is_ours, has_orphans))
        stems = index_stems(found["index_uri"])
        for kind in IndexKind:
            beside = pc.binary_join_element_wise(stems, kind.suffix, "")
            uris = found["index_uri"] if kind is IndexKind.TIME else beside
            named += uris.filter(pc.is_valid(found[f"{kind}_bytes"])).chunks
    is_named = pc.is_in(orphans["index_uri"], pa.chunked_array(named, pa.string()))
    return orphans.filter(pc.invert(is_named))


def _by_kind(uris: Column) -> dict[IndexKind, Mask]:
    """Return which of the URIs name a file of each kind."""
    of_kind: dict[IndexKind, Mask] = {
        kind: pc.ends_with(uris, kind.suffix).to_numpy().astype(bool) for kind in IndexKind
    }
    for file in DRAFT_FILES:  # some end in `.index`, too
        of_kind[IndexKind.TIME] |= pc.ends_with(uris, f".{file}").to_numpy().astype(bool)
    of_kind[IndexKind.OFFSET] &= ~of_kind[IndexKind.TIME]
    return of_kind


def index_stems(uris: Column) -> Column:
    """Return the URIs of index files without what shows their kinds."""
    return pc.replace_substring_regex(uris, INDEX_END, "", max_replacements=1)
