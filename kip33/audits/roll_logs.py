"""What a roll audit reads of each log: its first batch header, or all of them.

Only headers are read: no CRC is checked, so damage inside a batch is not seen. Each result says how
many bytes were read.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kip33.archive.bins import Engine
from kip33.audits.audited_logs import LOGS, AuditedLog, numbered, read_logs
from kip33.audits.roll_audit import FIGURES, HeaderFacts, SettingsOf
from kip33.catalog.catalog_columns import CatalogColumns, columns_of
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.segment_order import order_of
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
from kip33.stores.files import one_line, opened, scanned


def logs_of(columns: CatalogColumns) -> pa.Table:
    """Return the logs of a catalog as LOGS, numbered in the order of its columns."""
    names = ("log_dir", "topic", "partition", "base_offset", "log_uri")
    figures = ("size_bytes", "last_modified_ms")
    logs = numbered(pa.table({name: columns.column(name) for name in (*names, *figures)}), LOGS)
    return logs.filter(pa.array(columns.int64("base_offset").known))


def read_source(
    logs: pa.Table, settings_of: SettingsOf, engine: Engine
) -> tuple[CatalogColumns, HeaderFacts, int, list[str]]:
    """Return the logs as columns of a catalog, what headers tell, the bytes read, the errors."""
    figures = read_logs(logs, partial(_walk_log, settings_of), engine)
    rows = pa.Table.from_pylist([of_log.row or {} for of_log in figures], schema=SEGMENTS)
    order = order_of(rows)
    columns = columns_of(rows.take(pa.array(order)), more=FIGURES)
    facts = HeaderFacts(*(of_log.take(order) for of_log in _facts(figures)))
    return columns, facts, *_bytes_and_errors(figures)


def read_first_batches(
    columns: CatalogColumns, engine: Engine
) -> tuple[HeaderFacts, int, list[str]]:
    """Return what the first header of each log tells, the bytes read, and the errors."""
    logs = logs_of(columns)
    figures = read_logs(logs, read_first_batch, engine, reads_files=False)
    by_row = dict(zip(logs["number"].to_pylist(), figures, strict=True))
    rows = [by_row.get(number, _LogFigures(0)) for number in range(columns.size)]
    return _facts(rows), *_bytes_and_errors(figures)


def _bytes_and_errors(figures: Sequence["_LogFigures"]) -> tuple[int, list[str]]:
    errors = [of_log.error for of_log in figures if of_log.error]
    return sum(of_log.bytes_read for of_log in figures), errors


class FirstBatch(NamedTuple):
    """What the header of a segment's first batch tells; None: there is no batch."""

    size_bytes: int | None = None
    last_offset: int | None = None
    first_message_timestamp: int | None = None  # None also where the header does not tell


class _LogFigures(NamedTuple):
    """What was read of one log."""

    bytes_read: int
    first: FirstBatch = FirstBatch()
    offset_entries: int | None = None
    time_entries: int | None = None
    row: dict[str, Any] | None = None  # has the columns of SEGMENTS, if all headers were read
    error: str | None = None


def _facts(figures: Sequence[_LogFigures]) -> HeaderFacts:
    """Return what was read as columns; what was not is unknown."""
    return HeaderFacts(
        int64_column([one.first.size_bytes for one in figures]),
        int64_column([one.first.last_offset for one in figures]),
        int64_column([one.first.first_message_timestamp for one in figures]),
        int64_column([one.offset_entries for one in figures]),
        int64_column([one.time_entries for one in figures]),
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


def read_first_batch(log: AuditedLog) -> _LogFigures:
    """Read the header of a log's first batch."""
    try:
        with opened(log.location) as (read_into, size_bytes):
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
                return _LogFigures(scan.bytes_read)
            header = read_header_at(read_into, int(batches[0]["position"]))
            read = scan.bytes_read + RECORD_BATCH_OVERHEAD
            return _LogFigures(read, first_batch_of(header))
    except (FileReadError, CorruptSegmentError) as error:
        return _LogFigures(0, error=f"{log.log_uri}: {one_line(error)}")


class _WalkedLog(NamedTuple):
    """The state of one walk over the headers of a log."""

    summary: BatchColumns
    magics: Any
    entries: BatchColumns
    times: Any
    offsets: Any

    @classmethod
    def begin(cls, base_offset: int, settings: RollSettings) -> "_WalkedLog":
        entries = index_entries.new_state(
            index_entries.RECOVER,
            base_offset=base_offset,
            interval_bytes=settings.index_interval_bytes,
            segment_index_bytes=settings.segment_index_bytes,
        )
        pairs = (np.empty((ROWS, 2), np.int64), np.empty((ROWS, 2), np.int64))
        return cls(new_summary(), np.zeros(256, np.uint8), entries, *pairs)


def _walk_log(settings_of: SettingsOf, log: AuditedLog) -> _LogFigures:
    row: dict[str, Any] = log._asdict() | {"status": SegmentStatus.UNREADABLE.value}
    if log.error or log.base_offset is None:
        return _LogFigures(0, row=row, error=log.error and f"{log.log_uri}: {log.error}")
    walked = _WalkedLog.begin(log.base_offset, settings_of(log.topic))
    try:
        with scanned(log.location) as (read_into, size_bytes, view_at):
            scan = BatchScan(read_into, size_bytes, check_crc=False, view_at=view_at)
            first = _walk(scan, walked, read_into, size_bytes)
    except (FileReadError, CorruptSegmentError) as error:
        why = one_line(error)
        return _LogFigures(0, row=row | {"error": why}, error=f"{log.log_uri}: {why}")
    row |= {"size_bytes": size_bytes, **_row_figures(scan, walked, size_bytes)}
    state = walked.entries[0]
    return _LogFigures(
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
