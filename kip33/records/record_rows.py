"""`level="records"`: the records of batches as Arrow record batches."""

from collections.abc import Iterator

import pyarrow as pa

from kip33.formats.held_batches import HeldBatches
from kip33.formats.whole_bodies import RecordDecoder, RecordLimits, UnreadableBatch
from kip33.records.read_segment import ReadSegment
from kip33.records.record_table import RecordTable


class RecordRows:
    """Decodes batches and collects their records."""

    def __init__(self, schema: pa.Schema, max_batch_bytes: int) -> None:
        """Fill columns of `schema`."""
        self._table = RecordTable(schema)
        self._decoder = RecordDecoder(max_batch_bytes=max_batch_bytes)

    def use(self, limits: RecordLimits) -> None:
        """Return records inside `limits` from now on."""
        self._decoder.limit(limits)

    def add(
        self, segment: ReadSegment, held: HeldBatches, undecided: str | None
    ) -> Iterator[pa.RecordBatch | UnreadableBatch]:
        """Yield record batches that are full, and batches that cannot be read."""
        yield from self._table.begin(segment, undecided)
        for found in self._decoder.decode(held):
            if isinstance(found, UnreadableBatch):
                yield from self._table.finish(segment)
                yield found
            else:
                yield from self._table.append(segment, found)

    def finish(self, segment: ReadSegment) -> Iterator[pa.RecordBatch]:
        """Yield the rows so far."""
        return self._table.finish(segment)
