"""Writing a snapshot's Parquet parts: one a task, each published whole."""

from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kip33.storage.catalog import SEGMENTS, Part
from kip33.storage.files import publish
from kip33.storage.locations import Location

ROWS_PER_GROUP: Final = 20_000


def part_place(folder: Location, number: int) -> Location:
    """Return where part `number` goes; a task that is tried again replaces its part whole."""
    return folder.child(f"part-{number:05d}.parquet")


def publish_part(folder: Location, number: int, rows: pa.Table) -> Part:
    """Write a table of SEGMENTS as one part."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", row_group_size=ROWS_PER_GROUP)
    place, data = part_place(folder, number), sink.getvalue()
    publish(place, data.to_pybytes())
    return Part(place.name, rows.num_rows, data.size)


class PartWriter:
    """Collects rows and publishes them as one Parquet part, sorted as they come."""

    def __init__(self, folder: Location, number: int) -> None:
        """Start part `number`."""
        self._place = part_place(folder, number)
        self._rows: list[dict[str, Any]] = []
        self._count = 0
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, SEGMENTS, compression="zstd")

    def append(self, row: dict[str, Any]) -> None:
        """Add a row, a dict with the columns of SEGMENTS; those it lacks are null."""
        self._rows.append(row)
        if len(self._rows) >= ROWS_PER_GROUP:
            self._flush()

    def publish(self) -> Part:
        """Write the part; a part of no rows is written as well, so that every task has one."""
        self._flush()
        self._writer.close()
        data = self._sink.getvalue()
        publish(self._place, data.to_pybytes())
        return Part(self._place.name, self._count, data.size)

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, SEGMENTS))
            self._count += len(self._rows)
            self._rows = []
