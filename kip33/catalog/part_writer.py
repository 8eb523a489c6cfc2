"""Write a snapshot's Parquet parts into staging: one per task, each published at once."""

import uuid
import zlib
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kip33.catalog.draft import STAYS
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.snapshot import SnapshotPart
from kip33.stores.locations import Location
from kip33.stores.own_files import publish_or_raise

ROWS_PER_GROUP: Final = 20_000


class PartWriter:
    """Collects rows and publishes them, in their order, as one Parquet part."""

    def __init__(
        self, staging: Location, number: int, kind: str = "part", schema: pa.Schema = SEGMENTS
    ) -> None:
        """Start part `number`; its name is unique, so that no other attempt replaces it.

        `kind` precedes the number in the name, `schema` has the columns.
        """
        self._place = staging.child(f"{kind}-{number:05d}.{uuid.uuid4().hex[:8]}.parquet")
        self._schema = schema
        self._rows: list[dict[str, Any]] = []
        self.rows = 0
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd")

    def append(self, row: dict[str, Any]) -> None:
        """Add a row, a dict by columns of SEGMENTS; missing ones are null."""
        self._rows.append(row)
        self.rows += 1
        if len(self._rows) >= ROWS_PER_GROUP:
            self._flush()

    def append_table(self, rows: pa.Table) -> None:
        """Add a table of SEGMENTS."""
        self._flush()
        self._writer.write_table(rows, row_group_size=ROWS_PER_GROUP)
        self.rows += rows.num_rows

    def publish(self) -> SnapshotPart:
        """Write the part, even without rows: every task has one. PublishError if that fails."""
        self._flush()
        self._writer.close()
        data = self._sink.getvalue().to_pybytes()
        publish_or_raise(self._place, data, STAYS)
        return SnapshotPart(self._place.name, self.rows, len(data), zlib.crc32(data))

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, self._schema))
            self._rows = []
