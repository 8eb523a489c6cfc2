"""Records as a Parquet file whose row groups have enough rows or bytes."""

from collections.abc import Sequence
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_GROUP_ROWS: Final = 1 << 17  # at most
_GROUP_BYTES: Final = 1 << 26


class ParquetRecords:
    """A Parquet file; a row group is written as soon as it has enough rows or bytes.

    A group depends on its rows alone, not on the batches in which they came.
    """

    def __init__(self, schema: pa.Schema, file: BinaryIO) -> None:
        """Write to an open file, which stays open."""
        self._writer = pq.ParquetWriter(file, schema, compression="zstd")
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the records of a batch."""
        ends = np.cumsum(_sums(batch.columns, batch.num_rows))
        start = before = 0
        while start < batch.num_rows:
            room = int(np.searchsorted(ends, before + _GROUP_BYTES - self._bytes)) + 1
            end = min(start + _GROUP_ROWS - self._rows, room, batch.num_rows)
            self._batches.append(batch.slice(start, end - start))
            self._rows += end - start
            self._bytes += int(ends[end - 1]) - before
            start, before = end, int(ends[end - 1])
            if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
                self._flush()

    def finish(self, summary: object = None) -> None:
        """Write the rest and the footer."""
        self._flush()
        self._writer.close()

    def end(self) -> None:
        """Keep pyarrow from writing a footer later, after an error."""
        self._writer.is_open = False

    def _flush(self) -> None:
        if self._rows:
            table = pa.Table.from_batches(self._batches, self._schema)
            self._writer.write_table(table.combine_chunks())  # pages end where chunks do
        self._batches = []
        self._rows = self._bytes = 0


def _row_bytes(column: "pa.Array[Any]") -> npt.NDArray[np.int64]:
    """Return how many bytes the values of each row have, about."""
    of_kind: Any = column
    kind = of_kind.type
    if pa.types.is_struct(kind):
        return _sums(of_kind.flatten(), len(column))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        children = [of_kind.keys, of_kind.items] if pa.types.is_map(kind) else [of_kind.values]
        offsets = of_kind.offsets.to_numpy()
        ends = np.concatenate(([0], np.cumsum(_sums(children, len(children[0])))))[offsets]
        is_valid = column.is_valid().to_numpy(zero_copy_only=False)
        of_rows: npt.NDArray[np.int64] = np.where(is_valid, np.diff(ends), 0)
        return of_rows
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        lengths: Any = pc.fill_null(pc.binary_length(column), 0)
        return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)
    return np.full(len(column), 0 if pa.types.is_null(kind) else kind.bit_width // 8, np.int64)


def _sums(columns: Sequence["pa.Array[Any]"], rows: int) -> npt.NDArray[np.int64]:
    found = np.zeros(rows, np.int64)
    for column in columns:
        found += _row_bytes(column)
    return found
