"""The logs that a roll audit reads: their batch headers, read by both engines.

Only headers are read: no CRC is checked, so damage inside a batch is not seen. Each result says how
many bytes were read.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kip33.archive.bins import Engine, Progress
from kip33.archive.layouts import layout_of
from kip33.archive.listing import Listed, log_uris
from kip33.archive.sources import require_segments
from kip33.audits.roll_audit import FIGURES, HeaderFacts, SettingsOf
from kip33.audits.roll_log_headers import (
    FirstBatch,
    LogFigures,
    LogToRead,
    read_first_batch,
    walk_log,
)
from kip33.catalog.catalog_columns import CatalogColumns, columns_of
from kip33.catalog.schema import SEGMENTS
from kip33.rules.retention_rows import int64_column
from kip33.stores.concurrently import map_in_order
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
    logs: pa.Table,
    settings_of: SettingsOf,
    engine: Engine,
    *,
    parallelism: int | None = None,
    on_progress: Progress | None = None,
) -> tuple[CatalogColumns, HeaderFacts, int, list[str]]:
    """Return the logs as columns of a catalog, what headers tell, the bytes read, the errors."""
    run = partial(_read_bin, partial(walk_log, settings_of))
    found = engine.run_on_bins(logs, run, parallelism=parallelism, on_progress=on_progress)
    found.sort(key=lambda one: one.number)
    rows = pa.Table.from_pylist([one.row or {} for one in found], schema=SEGMENTS)
    columns = columns_of([rows], more=FIGURES)
    facts = HeaderFacts(*(one.take(columns.order) for one in _facts(found, len(found))))
    errors = [one.error for one in found if one.error]
    return columns, facts, sum(one.bytes_read for one in found), errors


def read_first_batches(
    columns: CatalogColumns,
    engine: Engine,
    *,
    parallelism: int | None = None,
    on_progress: Progress | None = None,
) -> tuple[HeaderFacts, int, list[str]]:
    """Return what the first header of each log tells, the bytes read, and the errors."""
    found = engine.run_on_bins(
        logs_of(columns),
        partial(_read_bin, read_first_batch),
        reads_files=False,
        parallelism=parallelism,
        on_progress=on_progress,
    )
    errors = [one.error for one in found if one.error]
    return _facts(found, columns.size), sum(one.bytes_read for one in found), errors


def _read_bin(read: Any, number: int, logs: pa.Table) -> Iterator[LogFigures]:
    """Yield what is read of every log of one bin, which is the work of one task."""
    rows = [LogToRead(**row) for row in logs.to_pylist()]
    if rows:
        yield from map_in_order(Location.of(rows[0].log_uri), rows, read, held_bytes=_size)


def _size(log: LogToRead) -> int:
    return log.size_bytes or 0


def _facts(found: Sequence[LogFigures], rows: int) -> HeaderFacts:
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
