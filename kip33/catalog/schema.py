"""The catalog's rows: one per segment file, or per directory that could not be listed.

The Parquet files have five columns more: each time of a log again, as a time, for the people who
read them. kip33 computes with the integers alone, which hold every timestamp that Kafka takes.
"""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from kip33.formats.times import TIME_FIELDS, time_name
from kip33.rules.segment_notes import SegmentNote

SCHEMA_VERSION: Final = 6
FIRST_IN_ORDER: Final = 6
"""Only a build reads rows of earlier versions: it commits this version. Some are in any order.

Their columns become these in `catalog.earlier_versions`. Their commit files have the snapshot's id
in their names, too.
"""

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_dir", pa.string()),  # between SOURCE and the partition's directory
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("base_offset", pa.int64()),
    pa.field("last_offset", pa.int64()),  # null without a valid batch
    pa.field("log_uri", pa.string(), nullable=False),
    pa.field("index_uri", pa.string()),  # null if no .timeindex is expected
    pa.field("size_bytes", pa.int64()),
    pa.field("valid_bytes", pa.int64()),  # complete, valid batches from the start
    pa.field("batch_count", pa.int64()),
    pa.field("record_count", pa.int64()),  # null with a v0 or v1 wrapper
    pa.field("first_batch_timestamp", pa.int64()),  # its max timestamp: segment.ms counts from it
    pa.field("max_timestamp", pa.int64()),  # -1: no batch has a timestamp
    pa.field(
        "offset_of_max_timestamp", pa.int64()
    ),  # last offset of the first such batch; in a tail row, the entry's offset
    pa.field("largest_timestamp", pa.int64()),  # the timestamp that retention uses
    pa.field("largest_timestamp_source", pa.string()),  # a TimestampSource
    pa.field("last_modified_ms", pa.int64()),
    pa.field("timestamp_types", pa.list_(pa.string())),
    pa.field("magics", pa.list_(pa.int32())),
    pa.field("codecs", pa.list_(pa.string())),
    pa.field("out_of_order_batches", pa.int64()),
    pa.field("time_index_entries", pa.int64()),  # null without an index
    pa.field("active_segment", pa.bool_()),
    # The settings of its build. `bytes_version` null: another build must read the log again.
    pa.field("dialect", pa.string()),
    pa.field("index_interval_bytes", pa.int32()),
    pa.field("segment_index_bytes", pa.int32()),
    pa.field("check_crc", pa.bool_()),
    pa.field("untimestamped", pa.string()),  # an Untimestamped
    pa.field("offset_index", pa.bool_()),  # it writes .index and .txnindex files
    pa.field("bytes_version", pa.int32()),
    pa.field("status", pa.string(), nullable=False),
    pa.field("error", pa.string()),  # why the log has this status; nothing decides by it
    pa.field("index_error", pa.string()),  # why an index file is missing or wrong; likewise
    pa.field("notes", pa.list_(pa.string())),  # each a SegmentNote; null: none
    pa.field("index_file", pa.string()),  # an IndexFileState; null: missing, or not written
    pa.field("time_index_bytes", pa.int64()),  # of the file at index_uri, as the build left it
    pa.field("offset_index_bytes", pa.int64()),  # of the .index beside it; null if not kip33's
    # Whether the file has the bytes that these settings give from this log; null: unknown.
    pa.field("time_index_matches", pa.bool_()),
    pa.field("offset_index_matches", pa.bool_()),
    pa.field("file_time_offset", pa.int64()),  # of its one entry, if that has the log file's time
    pa.field("time_index_modified_ms", pa.int64()),  # file times as the build left them
    pa.field("offset_index_modified_ms", pa.int64()),
    pa.field("transaction_index_bytes", pa.int64()),  # of the .txnindex; null without one
    pa.field("transaction_index_modified_ms", pa.int64()),
    # At the segment's end, as JSON (`rules.transaction_index`); null: unknown.
    pa.field("open_transactions", pa.string()),
    # Of its records; null: unknown. -1: a record has no timestamp.
    pa.field("smallest_timestamp", pa.int64()),
    pa.field("kip33_version", pa.string()),  # the version that wrote the row; null: before 0.2
    # CRC-32C of each index file as the build left it; null: no file, or its bytes were not read.
    pa.field("time_index_crc32c", pa.int64()),
    pa.field("offset_index_crc32c", pa.int64()),
    pa.field("transaction_index_crc32c", pa.int64()),
    # 22 characters, as Kafka prints it; null: unknown. Topics of one name may have several ids.
    pa.field("topic_id", pa.string()),
    pa.field("partition_metadata_modified_ms", pa.int64()),  # of the file that has the topic id
    # The leader epochs of its batches and where each begins here; null: unknown.
    pa.field("leader_epochs", pa.list_(pa.int32())),
    pa.field("leader_epoch_offsets", pa.list_(pa.int64())),
    pa.field("batches_crc32", pa.int64()),  # of the CRCs of its batches; null: unknown
    # Whether a batch has an earlier leader epoch than one before it: then epochs show nothing.
    pa.field("epochs_fall", pa.bool_()),
    # Of the partition's `leader-epoch-checkpoint`, in the row of its first segment; null: unknown.
    pa.field("checkpoint_epochs", pa.list_(pa.int32())),
    pa.field("checkpoint_epoch_offsets", pa.list_(pa.int64())),
    # Of the log directory's `log-start-offset-checkpoint`, likewise; null: not there, or unknown.
    pa.field("checkpoint_log_start_offset", pa.int64()),
    # What else decided the row, of other files: `builds.reuse.decided_by`.
    pa.field("decided_by", pa.list_(pa.int64())),
]
SEGMENTS: Final = pa.schema(_FIELDS)
"""The columns that builds fill in and that kip33 works with."""

BUILD_SETTINGS: Final = SEGMENTS.names[
    SEGMENTS.get_field_index("dialect") : SEGMENTS.get_field_index("bytes_version") + 1
]
"""The columns with the settings of a row's build."""

TIME_COLUMNS: Final = {
    "first_batch_time": "first_batch_timestamp",
    "max_time": "max_timestamp",
    "smallest_time": "smallest_timestamp",
    "largest_time": "largest_timestamp",
    "last_modified_time": "last_modified_ms",
}
"""The columns that are times, each with the column of milliseconds that it shows."""

_FIRST_WITH_EPOCHS: Final = 2  # the magic of batches that have a leader epoch
_TIME: Final = pa.timestamp("ms", "UTC")
_FIRST_MS: Final = 0
_END_MS: Final = 9_214_646_400_000  # 2262-01-01
PARTS: Final = pa.schema([*SEGMENTS, *(pa.field(name, _TIME) for name in TIME_COLUMNS)])
"""The columns of the Parquet files; the Spark schema is derived from it."""


def with_times(rows: pa.Table) -> pa.Table:
    """Return rows of SEGMENTS as rows of PARTS.

    A time before 1970 or after 2261 is null, because one such time keeps others from reading the
    file: Spark 3.5 refuses times before 1900; its `toPandas`, and whatever has 64 bits of
    nanoseconds, refuses those after April 2262. Kafka's clients send no time before 1970.
    """
    columns = [_times_of(rows[name]) for name in TIME_COLUMNS.values()]
    return pa.table([*rows.columns, *columns], schema=PARTS)


def with_time_columns(table: pa.Table) -> pa.Table:
    """Return a table of an answer with a column behind it for each of times in ms, as `with_times`.

    >>> with_time_columns(pa.table({"at_ms": [1, -1]})).slice(1).to_pylist()
    [{'at_ms': -1, 'at_time': None}]
    """
    for name in table.column_names:
        if name in TIME_FIELDS and time_name(name) not in table.column_names:
            table = table.append_column(time_name(name), _times_of(table[name]))
    return table


def with_column(rows: pa.Table, name: str, column: Any) -> pa.Table:
    """Return rows with other values of the same type in one of their columns."""
    number = rows.schema.get_field_index(name)
    return rows.set_column(number, rows.schema.field(number), column)


def chosen(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Return the columns with these names, in this order; None: all. ValueError for another."""
    if columns is None:
        return schema
    if isinstance(columns, str):
        raise ValueError(f"columns {columns!r}: expected a list, such as [{columns!r}]")
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        raise ValueError(
            f"columns: {', '.join(map(repr, unknown))} found, expected some of "
            f"{', '.join(schema.names)}"
        )
    return pa.schema([schema.field(name) for name in columns])


def lacks_epochs(rows: pa.Table) -> Any:
    """Return which rows are of logs with leader epochs that are not known: of before schema 4.

    They have the columns `magics` and `leader_epochs`.
    """
    import pyarrow.compute as pc

    magics = rows["magics"].combine_chunks()
    has_epochs = pc.greater_equal(pc.list_flatten(magics), _FIRST_WITH_EPOCHS)
    return pc.and_(pc.is_null(rows["leader_epochs"]), _are_with(magics, has_epochs))


def have_note(rows: pa.Table, *notes: SegmentNote) -> Any:
    """Return which rows, which have the column `notes`, have at least one of some notes."""
    import pyarrow.compute as pc

    column = rows["notes"].combine_chunks()
    wanted = pa.array(notes, pa.string())
    return _are_with(column, pc.is_in(pc.list_flatten(column), value_set=wanted))


def _are_with(lists: Any, is_wanted: Any) -> Any:
    """Return which lists have a wanted value; `is_wanted` is of the values of all lists."""
    import numpy as np
    import pyarrow.compute as pc

    found = np.zeros(len(lists), bool)
    found[pc.list_parent_indices(lists).filter(is_wanted).to_numpy()] = True
    return pa.chunked_array([pa.array(found)])


def _times_of(column: Any) -> Any:
    import pyarrow.compute as pc

    is_shown = pc.and_(pc.greater_equal(column, _FIRST_MS), pc.less(column, _END_MS))
    return pc.cast(pc.if_else(is_shown, column, None), _TIME)
