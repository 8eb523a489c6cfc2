"""The logs that an audit reads, and one way to read them on an engine.

Audits of rolling, of timestamps and of dialects choose logs, read them by log or by partition, and
make rows of the results. What differs is the function that reads.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.bins import Engine, Work
from kip33.archive.layouts import layout_of
from kip33.archive.listing import log_uris
from kip33.archive.sources import require_segments
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.segment_order import KEY, in_order, partition_begins
from kip33.formats.batch import NO_TIMESTAMP
from kip33.stores.concurrently import map_in_order
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress, Phase, tell_nobody

Result = TypeVar("Result")
_FIELDS: list["pa.Field[Any]"] = [
    pa.field("number", pa.int64(), nullable=False),
    *(SEGMENTS.field(name) for name in (*KEY, "size_bytes", "last_modified_ms", "error")),
    pa.field("path", pa.string()),
]

LOGS: Final = pa.schema(_FIELDS)
"""One row per log, as in AuditedLog; `number` rises from row to row."""


class AuditedLog(NamedTuple):
    """One log to read; `number` is its row among the audited segments."""

    number: int
    log_dir: str | None
    topic: str | None
    partition: int | None
    base_offset: int | None
    log_uri: str
    size_bytes: int | None
    last_modified_ms: int | None  # None: a directory that cannot be listed
    error: str | None = None  # why it cannot be read
    path: str | None = None  # below SOURCE; None: of a catalog
    max_timestamp: int | None = None  # of a catalog; None: unknown
    largest_before: int = NO_TIMESTAMP  # of the partition's earlier segments

    @property
    def location(self) -> Location:
        """Return where it is."""
        return Location.of(self.log_uri)


def logs_below(
    source: str,
    *,
    topics: Sequence[str] = (),
    layout: str = "kafka",
    on_progress: OnProgress = tell_nobody,
) -> pa.Table:
    """Return the logs below a SOURCE as LOGS; LocationError if it has no logs."""
    place = Location.of(source)
    table = require_segments(place, topics, layout=layout_of(layout), on_progress=on_progress).table
    return numbered(
        table.append_column("log_uri", log_uris(place, table["path"], table["inside"])), LOGS
    )


def numbered(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with their numbers and the schema's other columns; absent ones are null."""
    columns: dict[str, Any] = {
        field.name: rows[field.name]
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    }
    columns["number"] = pa.array(np.arange(rows.num_rows))
    return pa.table(columns).cast(schema)


def read_logs(
    logs: pa.Table,
    read: Callable[[AuditedLog], Result],
    engine: Engine,
    *,
    reads_files: bool = True,
) -> list[Result]:
    """Return `read(log)` of each row, in order; not `reads_files`: all logs weigh the same."""
    run = partial(_read_logs, read)
    found: list[tuple[int, Result]] = engine.run_on_bins(logs, run, reads_files=reads_files)
    return [result for _, result in sorted(found, key=itemgetter(0))]


def read_partitions(
    logs: pa.Table, read: Callable[[list[AuditedLog]], Result], engine: Engine
) -> list[Result]:
    """Return `read(logs)` of each partition of each log directory, in any order."""
    run = partial(_read_partitions, read)
    reading = Work(Phase.READING_LOGS, "partition")
    return engine.run_on_bins(_by_partition(logs), run, work=reading)


def _read_logs(
    read: Callable[[AuditedLog], Result], number: int, logs: pa.Table
) -> Iterator[tuple[int, Result]]:
    """Read the logs of one bin, which is the work of one task."""
    rows = [AuditedLog(**row) for row in logs.to_pylist()]
    if rows:
        results = map_in_order(
            rows[0].location, rows, read, held_bytes=lambda log: log.size_bytes or 0
        )
        yield from zip((log.number for log in rows), results, strict=True)


def _read_partitions(
    read: Callable[[list[AuditedLog]], Result], number: int, partitions: pa.Table
) -> Iterator[Result]:
    for row in partitions.to_pylist():
        yield read([AuditedLog(**log) for log in row["logs"]])


def _by_partition(logs: pa.Table) -> pa.Table:
    """Return a table with one row per partition: its logs as a list, and their size together."""
    if not logs.num_rows:
        return pa.table({"size_bytes": pa.array([], pa.int64())})
    sorted_logs = in_order(logs).combine_chunks()
    starts = np.flatnonzero(partition_begins(sorted_logs))
    sizes = pc.fill_null(sorted_logs["size_bytes"], 0).to_numpy()
    offsets = pa.array(np.append(starts, logs.num_rows), pa.int32())
    [struct] = sorted_logs.to_struct_array().chunks
    return pa.table(
        {
            "size_bytes": pa.array(np.add.reduceat(sizes, starts)),
            "log_uri": sorted_logs["log_uri"].take(pa.array(starts)),  # the first one
            "logs": pa.ListArray.from_arrays(offsets, struct),
        }
    )
