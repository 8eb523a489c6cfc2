"""Decide which rows of the newest snapshot can be reused for the current listing.

A row is reused if the log has the same URI, size and modification time, the build has the same
settings, and the index files that the row names have the sizes and modification times it names.

A log that was modified less than 2 s before the listing that gave the row, or before this listing,
is read again: it may have changed since then at the same size and time. `unreadable` and `archived`
rows are always tried again. `unverified` rows are reused only by another `--read tail` build, and
only while the offset of their index does not conflict with the next segment. With
`--untimestamped`, a log without timestamps is read again if its index should have another entry
now: the next segment is another one, or the log is no longer the last.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33.builds.file_time_reuse import file_time_offsets
from kip33.builds.reusable_rows import (
    AT_TARGET,
    BESIDE_LOG,
    NO_INDEX,
    NULL_NUMBER,
    Int64s,
    Mask,
    ReusableRows,
    int64s,
)
from kip33.rules.untimestamped import Untimestamped

SETTLED_MS: Final = 2_000  # coarsest resolution of file times: two changes within it look like one
SET_AHEAD_MS: Final = 86_400_000


def may_change_unseen(
    last_modified_ms: npt.NDArray[np.int64], listed_ms: int
) -> npt.NDArray[np.bool_]:
    """Return for each file whether it may change after its listing and keep its modification time.

    This is so for a file that was modified less than 2 s before the listing began, or after. A time
    more than a day in the future was set by a program, not by a clock, and does not advance.

    >>> may_change_unseen(np.array([7_000, 8_001, 12_000, 90_000_000]), 10_000).tolist()
    [False, True, True, False]
    """
    age_ms = np.int64(listed_ms) - last_modified_ms
    fresh: npt.NDArray[np.bool_] = (age_ms < SETTLED_MS) & (age_ms > -SET_AHEAD_MS)
    return fresh


class ListingMatch(NamedTuple):
    """The rows of a snapshot that match a listing, in the listing's order."""

    at: Int64s  # number of the file's row in the snapshot, -1: no row
    reusable: Mask
    ours: Mask
    transaction_index_ours: Mask  # the existing `.txnindex` is that of our row
    producer_snapshot_ours: Mask  # the existing `.snapshot`, too
    time_index_ours: Mask  # regardless of the `.index`


class _OptionalFile(NamedTuple):
    """An index file that a segment may lack: of each listed segment, in the index directory."""

    as_left: Mask  # it has the size and the time that the row names
    missing: Mask
    named: Mask  # by the row

    @classmethod
    def of(cls, known: ReusableRows, at: Int64s, files: pa.Table, kind: str) -> "_OptionalFile":
        """Return what the listing and the rows say of the files of a kind."""
        size_bytes, _ = known.index_files(kind, at)
        missing = pc.is_null(files[f"target_{kind}_bytes"]).to_numpy()
        return cls(_as_left(known, at, files, kind, "target"), missing, size_bytes != NULL_NUMBER)

    @property
    def agrees(self) -> Mask:
        """Return where the file is as the row says: unchanged, or missing and not named."""
        return self.as_left | (self.missing & ~self.named)

    def is_ours(self, is_stale: Mask) -> Mask:
        """Return where the file is not another program's, in rows whose `.timeindex` is ours.

        An existing file that the row does not name belongs to another program, unless the row
        is stale.
        """
        return self.named | self.missing | is_stale


def match_listing(
    known: ReusableRows,
    files: pa.Table,
    at: Int64s,
    *,
    listed_ms: int,
    known_listed_ms: int,
    offset_index: bool,
    producer_snapshots: bool = False,
    untimestamped: str = Untimestamped.NONE,
) -> ListingMatch:
    """Return which rows can be reused for `files`, a LISTING whose rows are numbered `at`.

    `listed_ms` is when that listing began, `known_listed_ms` when the snapshot's did;
    `offset_index`: whether the build also writes .index files, `producer_snapshots`: .snapshot
    files; `untimestamped`: its rule for logs without timestamps.
    """
    is_known = at >= 0
    if not known.rows:
        return ListingMatch(at, is_known, is_known, is_known, is_known, is_known)
    last_modified_ms = int64s(files["last_modified_ms"])
    same = (known.size_bytes[at] == int64s(files["size_bytes"])) & (
        known.last_modified_ms[at] == last_modified_ms
    )
    index_is_there = _indexes_are_there(known, at, files)
    transaction_index = _OptionalFile.of(known, at, files, "transaction_index")
    producer_snapshot = _OptionalFile.of(known, at, files, "producer_snapshot")
    elsewhere = known.place[at] != AT_TARGET
    if offset_index:
        index_is_there &= elsewhere | transaction_index.agrees
    if producer_snapshots:
        index_is_there &= elsewhere | producer_snapshot.agrees
    fresh = may_change_unseen(last_modified_ms, listed_ms) | may_change_unseen(
        last_modified_ms, known_listed_ms
    )
    holds = is_known & known.holds[at] & known.is_segment[at] & ~_refuted(known, at, files)
    ours = time_index_ours = is_known & known.ours[at]
    is_stale = known.is_stale[at]
    if offset_index:
        ours = ours & _OptionalFile.of(known, at, files, "offset_index").is_ours(is_stale)
    expected = file_time_offsets(untimestamped, files)
    has_moved = known.without_times[at] & (known.file_time_offset[at] != expected)
    transaction_index_ours = transaction_index.is_ours(is_stale)
    return ListingMatch(
        at,
        reusable=holds & same & index_is_there & ~fresh & ~has_moved,
        ours=ours,
        transaction_index_ours=ours & transaction_index_ours & known.transaction_index_built[at],
        producer_snapshot_ours=ours & producer_snapshot.is_ours(is_stale),
        time_index_ours=time_index_ours,
    )


def _indexes_are_there(known: ReusableRows, at: Int64s, files: pa.Table) -> Mask:
    """Return where the `.timeindex` and the `.index` that the row names are unchanged."""
    place = known.place[at]
    names_no_offset_index = known.offset_index_bytes[at] == NULL_NUMBER
    are_there: Mask = place == NO_INDEX
    for code, where in ((AT_TARGET, "target"), (BESIDE_LOG, "beside")):
        time_same = _as_left(known, at, files, "time_index", where)
        offset_same = _as_left(known, at, files, "offset_index", where) | names_no_offset_index
        are_there |= (place == code) & time_same & offset_same
    return are_there


def _as_left(known: ReusableRows, at: Int64s, files: pa.Table, kind: str, where: str) -> Mask:
    """Return which index files have the size and time that the row names; False without a time."""
    size_bytes, modified_ms = known.index_files(kind, at)
    same_size = int64s(files[f"{where}_{kind}_bytes"]) == size_bytes
    same_time = int64s(files[f"{where}_{kind}_modified_ms"]) == modified_ms
    same: Mask = same_size & same_time & (modified_ms != NULL_NUMBER)
    return same


def _refuted(known: ReusableRows, at: Int64s, files: pa.Table) -> Mask:
    """Return which rows trust an index whose offset seems to belong to the next segment."""
    offset, next_base_offset = known.offset_of_max_timestamp[at], int64s(files["next_base_offset"])
    below = (offset != NULL_NUMBER) & (offset <= next_base_offset)
    refuted: Mask = known.is_unverified[at] & (next_base_offset != NULL_NUMBER) & ~below
    return refuted
