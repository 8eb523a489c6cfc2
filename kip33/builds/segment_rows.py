"""The rows of a catalog, made as columns of a group of segments: the one way for all logs.

What a listing, a scan and a publisher say of a group is already columns, or becomes columns here.
Which columns a row has depends on its status: an `invalid` log has no figures but its sizes, one
that was not read has those of the listing, and one of which only the end was read has some.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import kip33
from kip33.archive.listing import CHECKPOINTS, Column
from kip33.builds.build_options import BuildSpec
from kip33.catalog.schema import SEGMENTS
from kip33.formats.batch import CODEC_NAMES
from kip33.formats.index_kinds import IndexKind
from kip33.indexing.published_files import PublishedFile, PublishedFiles
from kip33.indexing.segment import BuiltIndexes
from kip33.rules.publication import IndexFileState
from kip33.rules.segment_summary import (
    NOT_READ,
    READ_STATUSES,
    SUMMARY_RECORD,
    TIMESTAMP_TYPES,
    SegmentStatus,
    TimestampSource,
    largest_timestamp,
    names_of,
)

_TEXT: Final = pa.string()
_TEXTS: Final = pa.list_(_TEXT)
_FILE_COLUMNS: Final = ("bytes", "modified_ms", "matches", "crc32c")  # as PublishedFile has them
_NO_FILE: Final = (None,) * len(PublishedFile._fields)
_LISTED: Final = (
    *("log_dir", "topic", "partition", "base_offset", "last_modified_ms", "active_segment"),
    *("topic_id", "partition_metadata_modified_ms", *CHECKPOINTS),
)


class BuiltRows(NamedTuple):
    """The rows of some segments, and the figures of their work."""

    rows: pa.Table  # SEGMENTS, and more columns if one waits for its `.txnindex`
    bytes_read: int  # of logs
    files_written: int


class LogFigures(NamedTuple):
    """What was read of some logs, an element for each."""

    statuses: Sequence[SegmentStatus]
    errors: Column
    size_bytes: Column
    valid_bytes: Column
    summaries: npt.NDArray[np.void]  # SUMMARY_RECORD
    magics: Column
    leader_epochs: Column
    leader_epoch_offsets: Column
    batches_crc32: Column
    is_split: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, indexes: Sequence[BuiltIndexes]) -> "LogFigures":
        """Return those of logs that were scanned one by one."""
        epochs = [[*zip(*one.leader_epochs, strict=True)] or [(), ()] for one in indexes]
        return cls(
            [one.status for one in indexes],
            pa.array([one.error for one in indexes], _TEXT),
            pa.array([one.size_bytes for one in indexes], pa.int64()),
            pa.array([one.valid_bytes for one in indexes], pa.int64()),
            np.array([one.summary for one in indexes], SUMMARY_RECORD),
            pa.array([one.magics for one in indexes], pa.list_(pa.int32())),
            pa.array([epochs for epochs, _ in epochs], pa.list_(pa.int32())),
            pa.array([offsets for _, offsets in epochs], pa.list_(pa.int64())),
            pa.array([one.batches_crc32 for one in indexes], pa.int64()),
            np.array([one.is_split for one in indexes], bool),
        )


def rows_of(
    build: BuildSpec,
    listed: pa.Table,
    figures: LogFigures,
    published: Sequence[PublishedFiles],
    **columns: Column,
) -> pa.Table:
    """Return the rows of some logs, a table of SEGMENTS.

    `listed` has their rows of a listing, `columns` all that none of the others knows: `log_uri`,
    `time_index_entries`, and as `index_uri` the places of the time indexes, there or not.
    """
    count = listed.num_rows
    found: dict[str, Any] = {name: listed[name] for name in _LISTED}
    found |= build.settings_of_topics(listed["topic"])
    found["kip33_version"] = pa.repeat(kip33.__version__, count)
    found |= _of_logs(listed, figures)
    found |= columns | file_columns(published)
    has_index = np.asarray(pc.is_valid(found["index_file"]))
    found["index_uri"] = _where(has_index, columns["index_uri"])
    if not build.kinds:
        is_read = _have(figures.statuses, *READ_STATUSES)
        found["index_file"] = pc.if_else(
            pa.array(is_read), IndexFileState.NONE.value, found["index_file"]
        )
    arrays = (
        found[field.name].cast(field.type) if field.name in found else pa.nulls(count, field.type)
        for field in SEGMENTS
    )
    return pa.table([*arrays], schema=SEGMENTS)


def _of_logs(listed: pa.Table, figures: LogFigures) -> dict[str, Any]:
    """Return the columns that come from the bytes of logs."""
    of = {
        name: np.ascontiguousarray(figures.summaries[name]) for name in SUMMARY_RECORD.names or ()
    }
    is_read = _have(figures.statuses, *READ_STATUSES)
    is_tail = _have(figures.statuses, SegmentStatus.UNVERIFIED)  # its summary has what was read
    is_invalid = _have(figures.statuses, SegmentStatus.INVALID)
    has_times, has_batches = is_read | is_tail, of["batch_count"] > 0
    file_times = np.asarray(pc.fill_null(listed["last_modified_ms"], 0))
    largest, sources = largest_timestamp(of["max_timestamp"], file_times)
    largest = np.where(is_tail, of["max_timestamp"], largest)
    sources = np.where(is_tail, TimestampSource.TIME_INDEX, sources)
    masked = {
        "batch_count": is_read,
        "out_of_order_batches": is_read,
        "record_count": is_read & (of["wrappers"] == 0),
        "max_timestamp": has_times,
        "first_batch_timestamp": has_times & has_batches,
        "offset_of_max_timestamp": has_times & (of["offset_of_max_timestamp"] >= 0),
        "last_offset": (is_read & has_batches) | figures.is_split,
        "smallest_timestamp": is_read & has_batches & (of["unknown_smallest"] == 0),
    }
    not_read = _have(figures.statuses, *NOT_READ)
    return {
        "status": pa.array([*map(str, figures.statuses)], _TEXT),
        "error": figures.errors,
        "size_bytes": pc.if_else(pa.array(not_read), listed["size_bytes"], figures.size_bytes),
        "valid_bytes": _where(is_read | is_invalid, figures.valid_bytes),
        **{name: pa.array(of[name], mask=~mask) for name, mask in masked.items()},
        "largest_timestamp": pa.array(largest, mask=~has_times),
        "largest_timestamp_source": pa.array(sources, _TEXT, mask=~has_times),
        "timestamp_types": _where(is_read, lists_of(of["timestamp_types"], TIMESTAMP_TYPES, _TEXT)),
        "codecs": _where(is_read, lists_of(of["codecs"], CODEC_NAMES, _TEXT)),
        "magics": _where(is_read, figures.magics),
        "leader_epochs": _where(is_read, figures.leader_epochs),
        "leader_epoch_offsets": _where(is_read, figures.leader_epoch_offsets),
        "batches_crc32": _where(is_read, figures.batches_crc32),
        "epochs_fall": pa.array(of["epoch_falls"] > 0, mask=~is_read),
    }


def file_columns(published: Sequence[PublishedFiles]) -> dict[str, Any]:
    """Return the columns that tell what became of index files; kinds without files have none."""
    states = [one.state for one in published]
    columns: dict[str, Any] = {
        "index_file": pa.array(states, _TEXT),
        "notes": pa.array([[*dict.fromkeys(one.notes)] or None for one in published], _TEXTS),
        "index_error": pa.array(["; ".join(one.problems) or None for one in published], _TEXT),
    }
    for kind in IndexKind:
        of_kind = [
            one.files.get(kind) if state or kind is IndexKind.TRANSACTION else None
            for one, state in zip(published, states, strict=True)
        ]
        if any(of_kind):
            values = zip(*(file or _NO_FILE for file in of_kind), strict=True)
            for name, value in zip(_FILE_COLUMNS, values, strict=True):
                if (column := f"{kind}_{name}") in SEGMENTS.names:
                    columns[column] = pa.array(value, SEGMENTS.field(column).type)
    return columns


def lists_of(bits: npt.NDArray[np.int64], names: tuple[Any, ...], kind: Any) -> Any:
    """Return for each number the list of the names whose bit is set."""
    kinds, index = np.unique(bits, return_inverse=True)
    lists = [list(names_of(int(one), names)) for one in kinds]
    return pa.array(lists, pa.list_(kind)).take(pa.array(index))


def _have(statuses: Sequence[SegmentStatus], *some: SegmentStatus) -> npt.NDArray[np.bool_]:
    return np.array([status in some for status in statuses], bool)


def _where(mask: npt.NDArray[np.bool_], column: Column) -> Column:
    """Return a column that is null where the mask is not set."""
    return column if mask.all() else pc.if_else(pa.array(mask), column, None)
