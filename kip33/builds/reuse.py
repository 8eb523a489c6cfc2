"""Decide which rows of the newest snapshot can be reused for the current listing.

A row is reused if nothing has changed of what its columns depend on: DEPENDS_ON says what that is.

A log that was modified less than 2 s before the listing that gave the row, or before this listing,
is read again: it may have changed since then at the same size and time. `unreadable` and `archived`
rows are always tried again. `unverified` rows are reused only by another `--read tail` build.

Rows of before schema 6 do not say whether leader epochs fall, so their logs are read again, once.
`--read tail` reads such a log only if the index is its own: otherwise its row would say less.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.listing import CHECKPOINTS, Column, uris_beside
from kip33.builds.build_options import BuildSpec
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.schema import BUILD_SETTINGS, have_note
from kip33.formats.index_kinds import IndexKind
from kip33.rules.publication import IndexFileState
from kip33.rules.segment_notes import SegmentNote
from kip33.rules.segment_summary import NOT_READ, READ_STATUSES, SegmentStatus
from kip33.rules.transaction_index import UNCHANGED
from kip33.rules.untimestamped import Untimestamped

Mask = npt.NDArray[np.bool_]
Ours: TypeAlias = dict[IndexKind, Mask]
"""Of each listed segment and kind: this catalog's builds wrote the existing file, or none exists.

TIME and OFFSET are the same: both files are ours, if the build writes both.
"""
Int64s = npt.NDArray[np.int64]


class Cause(StrEnum):
    """What a column of a catalog depends on; each member is its own text."""

    PLACE = "where the log is"
    LISTING = "what is listed each night: a row that is reused takes it from the listing"
    LOG = "the log: its size and modification time"
    SETTINGS = "the settings of the build"
    INDEX_FILES = "the index files that the row names: their sizes and modification times"
    NEXT_SEGMENT = "where the next segment begins, or that the log is the last one"
    EARLIER_SEGMENTS = "transactions and timestamps of earlier segments"
    PRODUCER_SNAPSHOT = "the `.snapshot` beside the log, or beside an earlier one"
    BROKER_INDEXES = "in place: the `.index` and the `.txnindex` of a broker"


_SCANNED: Final = (Cause.LOG, Cause.SETTINGS)
_OF_FILE: Final = ("bytes", "modified_ms", "crc32c")
DEPENDS_ON: Final[dict[str, frozenset[Cause]]] = {
    name: frozenset(causes)
    for names, causes in (
        (("log_dir", "topic", "partition", "base_offset", "log_uri"), (Cause.PLACE,)),
        (("active_segment", "topic_id", "partition_metadata_modified_ms"), (Cause.LISTING,)),
        ((*CHECKPOINTS, "decided_by"), (Cause.LISTING,)),
        (("size_bytes", "last_modified_ms"), (Cause.LOG,)),
        ((*BUILD_SETTINGS, "kip33_version"), (Cause.SETTINGS,)),
        (("last_offset", "valid_bytes", "batch_count", "record_count"), _SCANNED),
        (("first_batch_timestamp", "max_timestamp", "offset_of_max_timestamp"), _SCANNED),
        (("largest_timestamp", "largest_timestamp_source", "smallest_timestamp"), _SCANNED),
        (("timestamp_types", "magics", "codecs", "out_of_order_batches"), _SCANNED),
        (("leader_epochs", "leader_epoch_offsets", "batches_crc32", "epochs_fall"), _SCANNED),
        (("status", "error"), (*_SCANNED, Cause.NEXT_SEGMENT)),
        (
            ("time_index_entries", "file_time_offset", "time_index_matches"),
            (*_SCANNED, Cause.NEXT_SEGMENT, Cause.EARLIER_SEGMENTS, Cause.INDEX_FILES),
        ),
        (
            ("index_uri", "index_file", *(f"time_index_{what}" for what in _OF_FILE)),
            (*_SCANNED, Cause.NEXT_SEGMENT, Cause.EARLIER_SEGMENTS, Cause.INDEX_FILES),
        ),
        (
            ("offset_index_matches", *(f"offset_index_{what}" for what in _OF_FILE)),
            (*_SCANNED, Cause.NEXT_SEGMENT, Cause.INDEX_FILES, Cause.BROKER_INDEXES),
        ),
        (
            ("open_transactions", *(f"transaction_index_{what}" for what in _OF_FILE)),
            (*_SCANNED, Cause.EARLIER_SEGMENTS, Cause.PRODUCER_SNAPSHOT, Cause.INDEX_FILES),
        ),
        (("notes", "index_error"), set(Cause) - {Cause.PLACE, Cause.LISTING}),
    )
    for name in names
}
"""What each column of SEGMENTS depends on. A row is read again if one of its causes has changed.

Open transactions of segments that were deleted since stay known: they are true, and in no file.
"""
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
    "size_bytes",
    "valid_bytes",
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
    "epochs_fall",
    "decided_by",
]


_NO_FILE, _NEXT_UNKNOWN, _NOT_TOLD = -1, -2, -3  # no offset and no time is negative
_DECIDING: Final = 4


def decided_by(build: BuildSpec, files: pa.Table) -> Any:
    """What else decides the rows of a LISTING, as a list for each.

    These are the next segment's base offset, the modification time of the `.snapshot` beside the
    log and, in place, those of the `.index` and the `.txnindex`; -1: no such file or segment. -2:
    the next segment begins at the same offset.
    """
    is_last = pc.fill_null(files["active_segment"], True).to_numpy()
    following = pc.fill_null(files["next_base_offset"], _NEXT_UNKNOWN).to_numpy()
    columns = [np.where(is_last, _NO_FILE, following)]
    columns.append(_int64s(files["producer_snapshot_modified_ms"]))
    for kind in (IndexKind.OFFSET, IndexKind.TRANSACTION):
        times = _int64s(files[f"target_{kind}_modified_ms"])
        is_read_now = ours_column(kind) in files.column_names
        if is_read_now and kind in build.kinds:  # the row names our file
            times = np.where(files[ours_column(kind)].to_numpy(), _NO_FILE, times)
        columns.append(times if build.in_place else np.full(files.num_rows, _NO_FILE))
    offsets: Any = pa.array(np.arange(files.num_rows + 1, dtype=np.int32) * _DECIDING)
    return pa.ListArray.from_arrays(offsets, pa.array(np.stack(columns, axis=1).ravel()))


def _decided(table: pa.Table) -> Int64s:
    """What decided the rows of a catalog, a row for each."""
    column = table["decided_by"].combine_chunks()
    values = np.full((table.num_rows, _DECIDING), _NOT_TOLD, np.int64)
    values[column.is_valid()] = pc.list_flatten(column).to_numpy().reshape(-1, _DECIDING)
    return values


def _matters(table: pa.Table, build: BuildSpec, is_unverified: Any) -> Mask:
    """Which values of `decided_by` decide which rows: a column for each value.

    The next segment decides about bytes behind the last batch, which may be zeros, about the entry
    of a log without timestamps, and about a `.timeindex` that was trusted. A `.snapshot` decides
    about transactions. A broker's index files decide where the build does not write them.
    """
    was_read = pc.is_in(table["status"], value_set=pa.array(READ_STATUSES))
    has_tail = pc.and_(was_read, pc.less(table["valid_bytes"], table["size_bytes"]))
    matters = np.zeros((table.num_rows, _DECIDING), bool)
    matters[:, 0] = _mask(pc.or_kleene(has_tail, is_unverified).fill_null(False))
    if build.settings.untimestamped != Untimestamped.NONE:
        without_times = pc.less(table["max_timestamp"], 0).fill_null(False)
        matters[:, 0] |= _mask(without_times)
    if IndexKind.OFFSET in build.kinds:
        matters[:, 1] = _mask(was_read)
    if build.in_place:
        is_withheld = pc.is_null(table["offset_index_bytes"])
        matters[:, 2] = IndexKind.OFFSET not in build.kinds or _mask(is_withheld)
        matters[:, 3] = IndexKind.OFFSET not in build.kinds
    return matters


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
    other_snapshot: Mask  # the `.snapshot` beside the log came, went or changed
    is_spoiled: Mask  # our index files are not as a build left them, though the log is


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
    is_stale: Mask  # by a build that wrote all kinds of index files
    holds: Mask  # reusable, as far as the row itself shows
    ours: Mask  # this catalog's builds wrote the index files that the row names
    decided: Int64s  # the values of `decided_by`
    matters: Mask  # which of them decide

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
        return ListingMatch(at, is_known, dict.fromkeys(IndexKind, is_known), *[is_known] * 3)
    last_modified_ms = _int64s(files["last_modified_ms"])
    same = (known.size_bytes[at] == _int64s(files["size_bytes"])) & (
        known.last_modified_ms[at] == last_modified_ms
    )
    index_is_there = _indexes_are_there(known, at, files)
    each = [may_change_unseen(last_modified_ms, began_ms) for began_ms in listed_ms]
    fresh = np.logical_or.reduce(each)
    holds = is_known & known.holds[at] & known.is_segment[at]
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
    now = pc.list_flatten(decided_by(build, files)).to_numpy().reshape(-1, _DECIDING)
    is_other = is_known[:, np.newaxis] & known.matters[at] & (known.decided[at] != now)
    other_next, other_snapshot, *other_indexes = is_other.T
    changed = {
        Cause.LOG: ~same | fresh,
        Cause.INDEX_FILES: ~index_is_there,
        Cause.NEXT_SEGMENT: other_next,
        Cause.BROKER_INDEXES: np.logical_or.reduce(other_indexes),
    }
    reusable = holds & ~np.logical_or.reduce([*changed.values()])
    is_spoiled = holds & time_index_ours & ~changed[Cause.LOG] & ~index_is_there
    return ListingMatch(at, reusable, ours, time_index_ours, other_snapshot, is_spoiled)


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
        _mask(pc.and_(stale, wrote_all)),
        _mask(holds.fill_null(False)),
        _mask(pc.or_(written, stale)) & (place == _AT_TARGET),
        _decided(table),
        _matters(table, build, is_unverified),
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
