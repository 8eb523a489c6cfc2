"""The logs that a roll audit reads: their batch headers, read by both engines.

Only headers are read: no CRC is checked, so damage inside a batch is not seen. Each result says how
many bytes were read.

What a roll audit reads of one log: its first batch header, or all of them.

Only headers are read: no CRC is checked, so damage inside a batch is not seen. Each result says how
many bytes were read.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kip33.archive.bins import Engine
from kip33.archive.layouts import layout_of
from kip33.archive.listing import Listed, log_uris
from kip33.archive.sources import require_segments
from kip33.audits.roll_audit import FIGURES, HeaderFacts, SettingsOf
from kip33.catalog.catalog_columns import CatalogColumns, columns_of
from kip33.catalog.schema import SEGMENTS
from kip33.errors import CorruptSegmentError, FileReadError
from kip33.formats.batch import (
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    MAX_SEGMENT_BYTES,
    RECORD_BATCH_OVERHEAD,
    BatchColumns,
    BatchHeader,
)
from kip33.formats.byte_sources import ReadInto
from kip33.formats.native import compiled, plain
from kip33.formats.scan import ROWS, BatchScan, read_header_at
from kip33.rules import index_entries
from kip33.rules.retention_rows import int64_column
from kip33.rules.rolling import RollSettings
from kip33.rules.segment_summary import SegmentStatus, new_summary, smallest_timestamp, summarize
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import one_line, opened, scanned
from kip33.stores.locations import Location

_LOG_FIELDS: list["pa.Field[Any]"] = [
    pa.field("number", pa.int64()),
    pa.field("log_dir", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("base_offset", pa.int64()),
    pa.field("log_uri", pa.string()),
    pa.field("size_bytes", pa.int64()),
    pa.field("last_modified_ms", pa.int64()),
    pa.field("error", pa.string()),
]


ROLL_LOGS: Final = pa.schema(_LOG_FIELDS)
"""One row per log to read; `number` is its row among the audited segments."""


def logs_below(
    source: str,
    *,
    topics: Sequence[str] = (),
    layout: str = "kafka",
    on_listed: Listed | None = None,
) -> pa.Table:
    """Return the logs below a SOURCE as ROLL_LOGS; LocationError if it has no logs."""
    place = Location.of(source)
    listing = require_segments(place, topics, layout=layout_of(layout), on_listed=on_listed)
    table = listing.table
    columns: dict[str, Any] = {
        name: table[name] for name in ROLL_LOGS.names if name in table.column_names
    }
    columns |= {
        "number": pa.array(np.arange(table.num_rows)),
        "log_uri": log_uris(place, table["path"], table["inside"]),
    }
    return pa.table({name: columns[name] for name in ROLL_LOGS.names}).cast(ROLL_LOGS)


def logs_of(columns: CatalogColumns) -> pa.Table:
    """Return the logs of a catalog as ROLL_LOGS, numbered in the order of its columns."""
    names = ("log_dir", "topic", "partition", "base_offset", "log_uri")
    numbers = ("size_bytes", "last_modified_ms")
    table = {name: columns.column(name) for name in (*names, *numbers)}
    table |= {
        "number": pa.array(np.arange(columns.size)),
        "error": pa.nulls(columns.size, pa.string()),
    }
    logs = pa.table({name: table[name] for name in ROLL_LOGS.names}).cast(ROLL_LOGS)
    return logs.filter(pa.array(columns.int64("base_offset").known))


def read_source(
    logs: pa.Table, settings_of: SettingsOf, engine: Engine
) -> tuple[CatalogColumns, HeaderFacts, int, list[str]]:
    """Return the logs as columns of a catalog, what headers tell, the bytes read, the errors."""
    run = partial(_read_bin, partial(_walk_log, settings_of))
    figures = engine.run_on_bins(logs, run)
    figures.sort(key=lambda of_log: of_log.number)
    rows = pa.Table.from_pylist([of_log.row or {} for of_log in figures], schema=SEGMENTS)
    columns = columns_of([rows], more=FIGURES)
    facts = HeaderFacts(*(of_log.take(columns.order) for of_log in _facts(figures, len(figures))))
    errors = [of_log.error for of_log in figures if of_log.error]
    return columns, facts, sum(of_log.bytes_read for of_log in figures), errors


def read_first_batches(
    columns: CatalogColumns, engine: Engine
) -> tuple[HeaderFacts, int, list[str]]:
    """Return what the first header of each log tells, the bytes read, and the errors."""
    figures = engine.run_on_bins(
        logs_of(columns), partial(_read_bin, read_first_batch), reads_files=False
    )
    errors = [of_log.error for of_log in figures if of_log.error]
    return _facts(figures, columns.size), sum(of_log.bytes_read for of_log in figures), errors


class FirstBatch(NamedTuple):
    """What the header of a segment's first batch tells; None: there is no batch."""

    size_bytes: int | None = None
    last_offset: int | None = None
    first_message_timestamp: int | None = None  # None also where the header does not tell


class _LogFigures(NamedTuple):
    """What was read of one log."""

    number: int
    bytes_read: int
    first: FirstBatch = FirstBatch()
    offset_entries: int | None = None
    time_entries: int | None = None
    row: dict[str, Any] | None = None  # of SEGMENTS, if all headers were read
    error: str | None = None


def _read_bin(read: Any, number: int, logs: pa.Table) -> Iterator[_LogFigures]:
    """Yield what is read of every log of one bin, which is the work of one task."""
    rows = [LogToRead(**row) for row in logs.to_pylist()]
    if rows:
        yield from map_in_order(Location.of(rows[0].log_uri), rows, read, held_bytes=_size)


class LogToRead(NamedTuple):
    """One row of ROLL_LOGS."""

    number: int
    log_dir: str | None
    topic: str | None
    partition: int | None
    base_offset: int | None
    log_uri: str
    size_bytes: int | None
    last_modified_ms: int | None
    error: str | None = None  # why it cannot be read


def _size(log: LogToRead) -> int:
    return log.size_bytes or 0


def _facts(found: Sequence[_LogFigures], rows: int) -> HeaderFacts:
    """Return what was read as columns; rows that were not read are unknown."""
    by_number = {one.number: one for one in found}
    each = [by_number.get(number) for number in range(rows)]
    firsts = [one.first if one else FirstBatch() for one in each]
    return HeaderFacts(
        int64_column([one.size_bytes for one in firsts]),
        int64_column([one.last_offset for one in firsts]),
        int64_column([one.first_message_timestamp for one in firsts]),
        int64_column([one.offset_entries if one else None for one in each]),
        int64_column([one.time_entries if one else None for one in each]),
    )


def first_batch_of(header: BatchHeader) -> FirstBatch:
    """Return what a header tells of a segment's first batch.

    The first message's timestamp is the base timestamp, unless that is a delete horizon. It is the
    batch's with LogAppendTime, or if it is the only message. Of a v0 or v1 wrapper it is unknown.
    """
    is_one = header.magic < 2 and header.records_count == 1
    timestamp: int | None = None
    if header.attributes & LOG_APPEND_TIME or header.max_timestamp < 0 or is_one:
        timestamp = header.max_timestamp
    elif header.magic >= 2 and not header.attributes & DELETE_HORIZON and header.records_count:
        timestamp = header.base_timestamp
    elif header.records_count == 1:
        timestamp = header.max_timestamp
    return FirstBatch(header.size_bytes, header.last_offset, timestamp)


def read_first_batch(log: LogToRead) -> _LogFigures:
    """Read the header of a log's first batch."""
    try:
        with opened(Location.of(log.log_uri)) as (read_into, size_bytes):
            scan = BatchScan(
                read_into,
                size_bytes,
                check_crc=False,
                native=False,
                chunk_bytes=2 * RECORD_BATCH_OVERHEAD,
                rows=1,
            )
            batches = next(iter(scan), None)
            if batches is None or not batches.size:
                return _LogFigures(log.number, scan.bytes_read)
            header = read_header_at(read_into, int(batches[0]["position"]))
            read = scan.bytes_read + RECORD_BATCH_OVERHEAD
            return _LogFigures(log.number, read, first_batch_of(header))
    except (FileReadError, CorruptSegmentError) as error:
        return _LogFigures(log.number, 0, error=f"{log.log_uri}: {one_line(error)}")


class _WalkedLog(NamedTuple):
    """The state of one walk over the headers of a log."""

    summary: BatchColumns
    magics: Any
    entries: BatchColumns
    times: Any
    offsets: Any

    @classmethod
    def begin(cls, base_offset: int, settings: RollSettings) -> "_WalkedLog":
        """Return the state before the first batch."""
        entries = index_entries.new_state(
            index_entries.RECOVER,
            base_offset=base_offset,
            interval_bytes=settings.index_interval_bytes,
            segment_index_bytes=settings.segment_index_bytes,
        )
        pairs = (np.empty((ROWS, 2), np.int64), np.empty((ROWS, 2), np.int64))
        return cls(new_summary(), np.zeros(256, np.uint8), entries, *pairs)


def _walk_log(settings_of: SettingsOf, log: LogToRead) -> _LogFigures:
    """Read all batch headers of a log."""
    row: dict[str, Any] = {
        name: getattr(log, name)
        for name in ("log_dir", "topic", "partition", "base_offset", "log_uri")
    } | {
        "size_bytes": log.size_bytes,
        "last_modified_ms": log.last_modified_ms,
        "status": SegmentStatus.UNREADABLE.value,
        "error": log.error,
    }
    if log.error or log.base_offset is None:
        return _LogFigures(
            log.number, 0, row=row, error=log.error and f"{log.log_uri}: {log.error}"
        )
    walked = _WalkedLog.begin(log.base_offset, settings_of(log.topic))
    try:
        with scanned(Location.of(log.log_uri)) as (read_into, size_bytes, view_at):
            scan = BatchScan(read_into, size_bytes, check_crc=False, view_at=view_at)
            first = _walk(scan, walked, read_into, size_bytes)
    except (FileReadError, CorruptSegmentError) as error:
        why = one_line(error)
        return _LogFigures(log.number, 0, row=row | {"error": why}, error=f"{log.log_uri}: {why}")
    row |= {"size_bytes": size_bytes, **_row_figures(scan, walked, size_bytes)}
    state = walked.entries[0]
    return _LogFigures(
        log.number,
        scan.bytes_read,
        first,
        int(state["offset_entries"]),
        int(state["time_entries"]),
        row,
    )


def _walk(scan: BatchScan, walked: _WalkedLog, read_into: ReadInto, size_bytes: int) -> FirstBatch:
    if size_bytes > MAX_SEGMENT_BYTES:
        return FirstBatch()
    speed = compiled if scan.native else plain
    first = FirstBatch()
    for batches in scan:
        if first.size_bytes is None:
            first = first_batch_of(read_header_at(read_into, int(batches[0]["position"])))
        speed(summarize)(batches, walked.summary, walked.magics)
        if not walked.entries[0]["refusal"]:
            speed(index_entries.append_batches)(
                batches, batches["last_offset"], walked.entries, walked.times, walked.offsets
            )
    return first


def _row_figures(scan: BatchScan, walked: _WalkedLog, size_bytes: int) -> dict[str, Any]:
    """Return the columns of SEGMENTS that the headers tell."""
    summary = walked.summary[0]
    if size_bytes > MAX_SEGMENT_BYTES or walked.entries[0]["refusal"] or scan.load_failure:
        return {"status": SegmentStatus.INVALID.value}
    is_valid = scan.valid_bytes == size_bytes
    status = SegmentStatus.OK if is_valid else SegmentStatus.TRUNCATED
    found: dict[str, Any] = {
        "status": (status if size_bytes else SegmentStatus.EMPTY).value,
        "error": scan.damage,
        "valid_bytes": scan.valid_bytes,
        "batch_count": int(summary["batch_count"]),
        "record_count": None if summary["wrappers"] else int(summary["record_count"]),
        "max_timestamp": int(summary["max_timestamp"]),
    }
    if summary["batch_count"]:
        found |= {
            "last_offset": int(summary["last_offset"]),
            "first_batch_timestamp": int(summary["first_batch_timestamp"]),
            "smallest_timestamp": smallest_timestamp(summary),
        }
    return found
