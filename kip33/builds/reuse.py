"""Decide which rows of the newest snapshot can be reused for the current listing.

A row is reused if the log has the same URI, size and modification time, the build has the same
settings, and the index files that the row names have the sizes and modification times it names.

A log that was modified less than 2 s before the listing that gave the row, or before this listing,
is read again: it may have changed since then at the same size and time. `unreadable` and `archived`
rows are always tried again. `unverified` rows are reused only by another `--read tail` build, and
only while the offset of their index does not conflict with the next segment. With
`--untimestamped`, a log without timestamps is read again if its index should have another entry
now: another segment follows, or the log is no longer the last.

Rows of before schema 6 do not say whether leader epochs fall, so their logs are read again, once.
`--read tail` reads such a log only if the index is its own: otherwise its row would say less.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.listing import Column, uris_beside
from kip33.builds.build_options import BuildSpec
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.schema import BUILD_SETTINGS, have_note
from kip33.formats.index_kinds import IndexKind
from kip33.rules.publication import IndexFileState
from kip33.rules.segment_notes import SegmentNote
from kip33.rules.segment_summary import NOT_READ, READ_STATUSES, SegmentStatus
from kip33.rules.transaction_index import UNCHANGED
from kip33.rules.untimestamped import NO_ENTRY, Untimestamped, entry_offsets

Mask = npt.NDArray[np.bool_]
Ours: TypeAlias = dict[IndexKind, Mask]
"""Of each listed segment and kind: this catalog's builds wrote the existing file, or none exists.

TIME and OFFSET are the same: both files are ours, if the build writes both.
"""
Int64s = npt.NDArray[np.int64]
SETTLED_MS: Final = 2_000  # coarsest resolution of file times: two changes within it look like one
SET_AHEAD_MS: Final = 86_400_000
NULL_NUMBER: Final = -1  # for a null size or time: no file has it
_COLUMNS: Final = [
    "log_uri",
    "topic",
    "log_dir",
    "topic_id",
    "partition_metadata_modified_ms",
    "base_offset",
    "offset_of_max_timestamp",
    "size_bytes",
    "last_modified_ms",
    "index_uri",
    "open_transactions",
    *(f"{kind}_{what}" for kind in IndexKind for what in ("bytes", "modified_ms")),
    "time_index_entries",
    *BUILD_SETTINGS,
    "status",
    "index_file",
    "notes",
    "max_timestamp",
    "batch_count",
    "file_time_offset",
    "epochs_fall",
]


def ours_column(kind: IndexKind) -> str:
    """Return the column of the files to read that has the segment's value in `Ours`."""
    return f"ours_{kind}"


def may_change_unseen(last_modified_ms: Int64s, listed_ms: int) -> Mask:
    """Return for each file whether it may change after its listing and keep its modification time.

    This is so for a file that was modified less than 2 s before the listing began, or after. A time
    more than a day in the future was set by a program, not by a clock, and does not advance.

    >>> may_change_unseen(np.array([7_000, 8_001, 12_000, 90_000_000]), 10_000).tolist()
    [False, True, True, False]
    """
    age_ms = np.int64(listed_ms) - last_modified_ms
    fresh: Mask = (age_ms < SETTLED_MS) & (age_ms > -SET_AHEAD_MS)
    return fresh


class ListingMatch(NamedTuple):
    """The rows of a snapshot that match a listing, in the listing's order."""

    at: Int64s  # number of the file's row in the snapshot, -1: no row
    reusable: Mask
    ours: Ours
    time_index_ours: Mask  # regardless of the `.index`


class ReusableRows(NamedTuple):
    """The rows of a snapshot in its order, as columns; unknown sizes and times are -1."""

    log_uri: Column
    topic: Column  # dictionary encoded
    log_dir: Column
    topic_id: Column
    partition_metadata_modified_ms: Int64s
    is_segment: Mask  # not the row of a directory
    size_bytes: Int64s
    last_modified_ms: Int64s
    index_bytes: Int64s  # a column for each kind
    index_modified_ms: Int64s
    transaction_index_built: Mask  # not a foreign file with an unknown verdict
    has_transactions: Mask  # or may have some
    is_unread: Mask  # its log could not be read
    place: npt.NDArray[np.uint8]
    is_unverified: Mask
    offset_of_max_timestamp: Int64s
    is_stale: Mask  # by a build that wrote all kinds of index files
    holds: Mask  # reusable, as far as the row itself shows
    ours: Mask  # this catalog's builds wrote the index files that the row names
    without_times: Mask  # our index is of a log without timestamps, and the build has a rule for it
    file_time_offset: Int64s  # the offset of its entry

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return len(self.size_bytes)

    def index_files(self, kind: IndexKind, at: Int64s | Mask) -> tuple[Int64s, Int64s]:
        """Return the sizes and times that some rows name for their index files of a kind."""
        column = list(IndexKind).index(kind)
        return self.index_bytes[at, column], self.index_modified_ms[at, column]

    def numbers_of(self, uris: Column) -> Int64s:
        """Return the number of the row of each log, -1 without one."""
        rows = pc.index_in(uris, value_set=self.log_uri).fill_null(-1)
        numbers: Int64s = rows.to_numpy().astype(np.int64)
        return numbers


def match_listing(
    build: BuildSpec,
    known: ReusableRows,
    files: pa.Table,
    at: Int64s,
    *,
    listed_ms: Sequence[int],
) -> ListingMatch:
    """Return which rows can be reused for `files`, a LISTING whose rows are numbered `at`.

    `listed_ms` is when the listing that gave the snapshot began, and when this one did.
    """
    is_known = at >= 0
    if not known.rows:
        return ListingMatch(at, is_known, dict.fromkeys(IndexKind, is_known), is_known)
    last_modified_ms = _int64s(files["last_modified_ms"])
    same = (known.size_bytes[at] == _int64s(files["size_bytes"])) & (
        known.last_modified_ms[at] == last_modified_ms
    )
    index_is_there = _indexes_are_there(known, at, files)
    each = [may_change_unseen(last_modified_ms, began_ms) for began_ms in listed_ms]
    fresh = np.logical_or.reduce(each)
    holds = is_known & known.holds[at] & known.is_segment[at] & ~_refuted(known, at, files)
    time_index_ours = is_known & known.ours[at]
    not_other = {}  # the file is not another program's, if the `.timeindex` is ours
    for kind in build.kinds - {IndexKind.TIME}:
        is_named = known.index_files(kind, at)[0] != NULL_NUMBER
        is_missing = pc.is_null(files[f"target_{kind}_bytes"]).to_numpy()
        not_other[kind] = is_named | is_missing | known.is_stale[at]
        if kind is IndexKind.TRANSACTION:
            is_same = _as_left(known, at, files, kind, "target") | (is_missing & ~is_named)
            index_is_there &= (known.place[at] != _AT_TARGET) | is_same
    both_ours = time_index_ours & not_other.get(IndexKind.OFFSET, True)
    ours = {kind: both_ours & not_other.get(kind, True) for kind in IndexKind}
    ours[IndexKind.TRANSACTION] = ours[IndexKind.TRANSACTION] & known.transaction_index_built[at]
    expected = _file_time_offsets(build.settings.untimestamped, files)
    has_moved = known.without_times[at] & (known.file_time_offset[at] != expected)
    reusable = holds & same & index_is_there & ~fresh & ~has_moved
    return ListingMatch(at, reusable, ours, time_index_ours)


def _indexes_are_there(known: ReusableRows, at: Int64s, files: pa.Table) -> Mask:
    """Return where the `.timeindex` and the `.index` that the row names are unchanged."""
    place = known.place[at]
    names_no_offset_index = known.index_files(IndexKind.OFFSET, at)[0] == NULL_NUMBER
    are_there: Mask = place == _NO_INDEX
    for code, where in ((_AT_TARGET, "target"), (_BESIDE_LOG, "beside")):
        time_same = _as_left(known, at, files, IndexKind.TIME, where)
        offset_same = _as_left(known, at, files, IndexKind.OFFSET, where) | names_no_offset_index
        are_there |= (place == code) & time_same & offset_same
    return are_there


def _as_left(known: ReusableRows, at: Int64s, files: pa.Table, kind: IndexKind, where: str) -> Mask:
    """Return which index files have the size and time that the row names; False without a time."""
    size_bytes, modified_ms = known.index_files(kind, at)
    same_size = _int64s(files[f"{where}_{kind}_bytes"]) == size_bytes
    same_time = _int64s(files[f"{where}_{kind}_modified_ms"]) == modified_ms
    same: Mask = same_size & same_time & (modified_ms != NULL_NUMBER)
    return same


def _refuted(known: ReusableRows, at: Int64s, files: pa.Table) -> Mask:
    """Return which rows trust an index whose offset seems to belong to the next segment."""
    offset, next_base_offset = known.offset_of_max_timestamp[at], _int64s(files["next_base_offset"])
    below = (offset != NULL_NUMBER) & (offset <= next_base_offset)
    refuted: Mask = known.is_unverified[at] & (next_base_offset != NULL_NUMBER) & ~below
    return refuted


def _file_times(table: pa.Table, build: BuildSpec) -> tuple[Mask, Int64s]:
    """Return which of our indexes may have an entry with their file's time, and its offset.

    `table` has rows of a catalog. Without a rule of the build, no row is one of them.
    """
    if build.settings.untimestamped == Untimestamped.NONE:
        return np.zeros(table.num_rows, bool), np.full(table.num_rows, NO_ENTRY, np.int64)
    written = pc.equal(table["index_file"], IndexFileState.WRITTEN)
    has_batches = pc.greater(table["batch_count"], 0)
    without_times = pc.and_(has_batches, pc.less(table["max_timestamp"], 0))
    mask: Mask = pc.and_(written, without_times).fill_null(False).to_numpy()
    return mask, _int64s(table["file_time_offset"])


def _file_time_offsets(untimestamped: str, files: pa.Table) -> Int64s:
    """Return the offset of the entry of each log of a LISTING, if it has no timestamps."""
    is_active = pc.fill_null(files["active_segment"], True).to_numpy()
    next_base_offsets = np.where(is_active, NO_ENTRY, _int64s(files["next_base_offset"]))
    base_offsets, last_modified_ms = files["base_offset"], files["last_modified_ms"]
    return entry_offsets(
        untimestamped, _int64s(base_offsets), next_base_offsets, _int64s(last_modified_ms)
    )


_NO_INDEX, _AT_TARGET, _BESIDE_LOG, _ELSEWHERE = range(4)  # the place of a row's index file


def read_reusable(catalog: Catalog, snapshot: Snapshot, build: BuildSpec) -> ReusableRows:
    """Return the columns of a snapshot that decide about reuse; CatalogError if it is damaged."""
    pieces = [_piece(table, build) for table in catalog.read_pieces(snapshot, _COLUMNS)]
    if not pieces:
        pieces = [_piece(catalog.read(snapshot, _COLUMNS), build)]
    uris, topics, log_dirs, topic_ids, *rest = zip(*pieces, strict=True)
    texts = map(_chunked, (uris, topics, log_dirs, topic_ids))
    return ReusableRows(*texts, *map(np.concatenate, rest))


def _chunked(columns: Sequence[Column]) -> Column:
    return pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())


def _piece(table: pa.Table, build: BuildSpec) -> tuple[Any, ...]:
    settings = _are_as_built(table, build)
    retried = [*NOT_READ]
    if not build.read_tail:
        retried.append(SegmentStatus.UNVERIFIED)
    sound = pc.invert(pc.is_in(table["status"], value_set=pa.array(retried)))
    # A missing index that should exist could not be written: it is tried again.
    place = _index_places(table, build)
    there = pc.or_(pc.is_null(table["time_index_entries"]), pc.is_valid(table["index_file"]))
    are = {one: pc.equal(table["index_file"], one).fill_null(False) for one in IndexFileState}
    if build.kinds:  # the earlier build wrote rows only
        there = pc.and_not(there, are[IndexFileState.NONE])
    stale, written = are[IndexFileState.STALE], are[IndexFileState.WRITTEN]
    is_unverified = pc.equal(table["status"], SegmentStatus.UNVERIFIED)
    wrote_all = pc.fill_null(table["offset_index"], False)
    holds = pc.and_not(pc.and_(pc.and_(settings, sound), there), stale)
    was_read = pc.is_in(table["status"], value_set=pa.array(READ_STATUSES))
    unknown = pc.and_(was_read, pc.is_null(table["epochs_fall"]))
    if build.read_tail:
        unknown = pc.and_(unknown, written)
    holds = pc.and_not(holds, unknown)
    if build.in_place and IndexKind.OFFSET not in build.kinds:  # the `.txnindex` may have come back
        holds = pc.and_not(holds, have_note(table, SegmentNote.HIDES_ABORTS))
    if build.overwrite:  # files of other programs are replaced now
        kept = pc.and_not(are[IndexFileState.KEPT], is_unverified)
        holds = pc.and_not(holds, kept)
    return (
        table["log_uri"],
        table["topic"],
        table["log_dir"],
        table["topic_id"],
        _int64s(table["partition_metadata_modified_ms"]),
        _mask(pc.is_valid(table["base_offset"])),
        _int64s(table["size_bytes"]),
        _int64s(table["last_modified_ms"]),
        np.column_stack([_int64s(table[f"{kind}_bytes"]) for kind in IndexKind]),
        np.column_stack([_int64s(table[f"{kind}_modified_ms"]) for kind in IndexKind]),
        ~_mask(have_note(table, SegmentNote.NOT_JUDGED)),
        _mask(pc.not_equal(table["open_transactions"], UNCHANGED).fill_null(True)),
        _mask(pc.is_in(table["status"], value_set=pa.array(NOT_READ))),
        place,
        _mask(is_unverified),
        _int64s(table["offset_of_max_timestamp"]),
        _mask(pc.and_(stale, wrote_all)),
        _mask(holds.fill_null(False)),
        _mask(pc.or_(written, stale)) & (place == _AT_TARGET),
        *_file_times(table, build),
    )


def _are_as_built(table: pa.Table, build: BuildSpec) -> Any:
    """Return which rows have the settings that this build has for their topics."""
    same: Any = True
    for name, values in build.settings_of_topics(table["topic"]).items():
        same = pc.and_(same, pc.equal(table[name], values).fill_null(False))
    return same


def _index_places(table: pa.Table, build: BuildSpec) -> npt.NDArray[np.uint8]:
    """Return for each row where this build expects its index file."""
    index_uri = table["index_uri"]
    place = np.where(_mask(pc.is_null(index_uri)), _NO_INDEX, _ELSEWHERE).astype(np.uint8)
    log_uri = table["log_uri"]
    at_target = build.index_uris(log_uri)
    for code, expected in ((_BESIDE_LOG, uris_beside(log_uri)), (_AT_TARGET, at_target)):
        place[_mask(pc.equal(index_uri, expected).fill_null(False))] = code
    return place


def _mask(column: Any) -> Mask:
    mask: Mask = column.to_numpy()
    return mask


def _int64s(column: Any) -> Int64s:
    """Return a column of sizes, times or offsets; NULL_NUMBER for null, which is NO_ENTRY."""
    values: Int64s = pc.fill_null(column, NULL_NUMBER).to_numpy()
    return values
