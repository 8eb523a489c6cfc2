"""The rows of the newest snapshot, as columns that decide whether they can be reused."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.listing import Column, uris_beside
from kip33.builds import file_time_reuse
from kip33.builds.build_spec import BuildSpec
from kip33.builds.file_time_reuse import file_times
from kip33.builds.index_files import FOREIGN_TRANSACTION_INDEX
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.schema import IndexFileState
from kip33.rules.broker_start import HIDDEN_ABORTS
from kip33.rules.segment_summary import NOT_READ, SegmentStatus
from kip33.rules.transaction_index import UNCHANGED

Mask = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

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
    "time_index_bytes",
    "offset_index_bytes",
    "time_index_modified_ms",
    "offset_index_modified_ms",
    "transaction_index_bytes",
    "transaction_index_modified_ms",
    "open_transactions",
    "producer_snapshot_bytes",
    "producer_snapshot_modified_ms",
    "time_index_entries",
    "build_settings",
    "status",
    "index_file",
    "error",
    *file_time_reuse.COLUMNS,
]
NO_INDEX, AT_TARGET, BESIDE_LOG, ELSEWHERE = range(4)  # the place of a row's index file
NULL_NUMBER: Final = -1  # for a null size or time: no file has it


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
    time_index_bytes: Int64s
    offset_index_bytes: Int64s
    time_index_modified_ms: Int64s
    offset_index_modified_ms: Int64s
    transaction_index_bytes: Int64s
    transaction_index_modified_ms: Int64s
    transaction_index_built: Mask  # not a foreign file with an unknown verdict
    has_transactions: Mask  # or may have some
    is_unread: Mask  # its log could not be read
    producer_snapshot_bytes: Int64s
    producer_snapshot_modified_ms: Int64s
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

    def index_files(self, kind: str, at: Int64s | Mask) -> tuple[Int64s, Int64s]:
        """Return the sizes and times that some rows name for their index files of a kind."""
        return getattr(self, f"{kind}_bytes")[at], getattr(self, f"{kind}_modified_ms")[at]

    def numbers_of(self, uris: Column) -> Int64s:
        """Return the number of the row of each log, -1 without one."""
        found = pc.index_in(uris, value_set=self.log_uri).fill_null(-1)
        numbers: Int64s = found.to_numpy().astype(np.int64)
        return numbers


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
    settings = pc.equal(table["build_settings"], _expected_settings(table["topic"], build))
    retried = [*NOT_READ]
    if not build.read_tail:
        retried.append(SegmentStatus.UNVERIFIED)
    sound = pc.invert(pc.is_in(table["status"], value_set=pa.array(retried)))
    # A missing index that should exist could not be written: it is tried again.
    place = _index_places(table, build)
    there = pc.or_(pc.is_null(table["time_index_entries"]), pc.is_valid(table["index_file"]))
    stale = pc.equal(table["index_file"], IndexFileState.STALE).fill_null(False)
    wrote_all = pc.match_substring(table["build_settings"], '"offset_index": true').fill_null(False)
    holds = pc.and_not(pc.and_(pc.and_(settings, sound), there), stale)
    if build.in_place and not build.offset_index:  # the `.txnindex` may have come back
        hides = pc.match_substring(table["error"], HIDDEN_ABORTS).fill_null(False)
        holds = pc.and_not(holds, hides)
    if build.overwrite:  # files of other programs are replaced now
        kept = pc.equal(table["index_file"], IndexFileState.KEPT).fill_null(False)
        holds = pc.and_(
            holds, pc.or_(pc.invert(kept), pc.equal(table["status"], SegmentStatus.UNVERIFIED))
        )
    ours = pc.or_(pc.equal(table["index_file"], IndexFileState.WRITTEN).fill_null(False), stale)
    return (
        table["log_uri"],
        table["topic"],
        table["log_dir"],
        table["topic_id"],
        int64s(table["partition_metadata_modified_ms"]),
        _mask(pc.is_valid(table["base_offset"])),
        int64s(table["size_bytes"]),
        int64s(table["last_modified_ms"]),
        int64s(table["time_index_bytes"]),
        int64s(table["offset_index_bytes"]),
        int64s(table["time_index_modified_ms"]),
        int64s(table["offset_index_modified_ms"]),
        int64s(table["transaction_index_bytes"]),
        int64s(table["transaction_index_modified_ms"]),
        ~_mask(pc.match_substring(table["error"], FOREIGN_TRANSACTION_INDEX).fill_null(False)),
        _mask(pc.not_equal(table["open_transactions"], UNCHANGED).fill_null(True)),
        _mask(pc.is_in(table["status"], value_set=pa.array(NOT_READ))),
        int64s(table["producer_snapshot_bytes"]),
        int64s(table["producer_snapshot_modified_ms"]),
        place,
        _mask(pc.equal(table["status"], SegmentStatus.UNVERIFIED)),
        int64s(table["offset_of_max_timestamp"]),
        _mask(pc.and_(stale, wrote_all)),
        _mask(holds.fill_null(False)),
        _mask(ours) & (place == AT_TARGET),
        *file_times(table, build),
    )


def _expected_settings(topics: Column, build: BuildSpec) -> Any:
    """Return the settings that rows of these topics must have to be reused by this build."""
    if not build.by_topic:
        return build.build_settings
    names = [topic for topic, _ in build.by_topic]
    said = pa.array([build.of_topic(name).build_settings for name in names], pa.string())
    own = said.take(pc.index_in(topics, value_set=pa.array(names, pa.string())).combine_chunks())
    return pc.coalesce(own, build.build_settings)


def _index_places(table: pa.Table, build: BuildSpec) -> npt.NDArray[np.uint8]:
    """Return for each row where this build expects its index file."""
    index_uri = table["index_uri"]
    place = np.where(_mask(pc.is_null(index_uri)), NO_INDEX, ELSEWHERE).astype(np.uint8)
    log_uri = table["log_uri"]
    at_target = build.index_uris(log_uri)
    for code, expected in ((BESIDE_LOG, uris_beside(log_uri)), (AT_TARGET, at_target)):
        place[_mask(pc.equal(index_uri, expected).fill_null(False))] = code
    return place


def _mask(column: Any) -> Mask:
    mask: Mask = column.to_numpy()
    return mask


def int64s(column: Column) -> Int64s:
    """Return a column of sizes or times; NULL_NUMBER for null."""
    values: Int64s = pc.fill_null(column, NULL_NUMBER).to_numpy()
    return values
