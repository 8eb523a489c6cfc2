"""The records of batches that are in memory, as rows of `RECORD`.

Bodies are decompressed one after another into one array until it has RUN_BYTES. Then one call
reads the records of all of them. So a small batch costs little more than its bytes.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from kip33.errors import CorruptSegmentError, UnsupportedFormatError
from kip33.formats.batch import CODEC_MASK, LOG_OVERHEAD
from kip33.formats.batch_entries import ENTRY, UNREADABLE, V2_RECORDS, fill_entries
from kip33.formats.held_batches import HeldBatches
from kip33.formats.native import compiled, plain
from kip33.formats.record_columns import BAD, CURSOR, DONE, RECORD_LIMITS, add_records
from kip33.formats.record_fields import RECORD
from kip33.formats.records import iterate_records
from kip33.formats.whole_bodies import PlacedBody, WholeBodies

Rows: TypeAlias = npt.NDArray[np.void]

RECORD_ROWS: Final = 8192  # at once: they stay in the CPU's caches
RUN_BYTES: Final = 1 << 20
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


class RecordLimits(NamedTuple):
    """The records to return; offsets and timestamps (ms) are inclusive."""

    first_offset: int = _LOWEST
    last_offset: int = _HIGHEST
    first_timestamp: int = _LOWEST
    last_timestamp: int = _HIGHEST


class DecodedRecords(NamedTuple):
    """Rows of RECORD, and the bytes that they point into; both are valid until the next step."""

    data: Any  # as the functions of `gathered_bytes` take it
    records: Rows


class UnreadableBatch(NamedTuple):
    """A batch whose next record cannot be read; the records before it were returned."""

    position: int
    error: CorruptSegmentError | UnsupportedFormatError


class RecordDecoder:
    """Reads the records of batches; one decoder serves one thread."""

    def __init__(self, limits: RecordLimits, *, max_batch_bytes: int, native: bool) -> None:
        """Return records inside `limits`; no batch may have more than `max_batch_bytes`."""
        self._limits = np.array([limits], RECORD_LIMITS)
        self._most = max_batch_bytes
        self._native = native
        self._speed = compiled if native else plain
        self._bodies = WholeBodies(max_batch_bytes)
        self._rows = np.empty(RECORD_ROWS, RECORD)

    def decode(self, held: HeldBatches) -> Iterator[DecodedRecords | UnreadableBatch]:
        """Yield the records of batches, in order; after an unreadable batch come the next ones."""
        entries = np.empty(len(held.batches), ENTRY)
        data = self._taken(held.data)
        speed = self._speed
        speed(fill_entries)(data, held.start, held.batches, entries)
        is_plain = entries["attributes"] & CODEC_MASK == 0
        sizes = entries["stop"] - entries["start"]
        entries["kind"][is_plain & (sizes > self._most)] = UNREADABLE
        for array, run in self._runs(held, entries, is_plain):
            yield from self._records(held, array, run)

    def _runs(
        self, held: HeldBatches, entries: Rows, is_plain: npt.NDArray[np.bool_]
    ) -> Iterator[tuple[npt.NDArray[np.uint8], Rows]]:
        """Yield arrays, each with the entries whose bodies it has."""
        if is_plain.all():
            yield held.data, entries
            return
        stored = held.data.data
        is_empty = (entries["kind"] == V2_RECORDS) & (entries["count"] <= 0)
        is_skipped = (is_empty | (entries["kind"] == UNREADABLE)).tolist()
        codecs = (entries["attributes"] & CODEC_MASK).tolist()
        magics, starts, stops = (entries[name].tolist() for name in ("magic", "start", "stop"))
        first, complete = 0, [1] * len(entries)
        self._bodies.clear()
        for i in range(len(entries)):
            if not is_skipped[i]:
                body = self._placed(stored[starts[i] : stops[i]], codecs[i], magics[i])
                if body is None:
                    entries["kind"][i] = UNREADABLE
                else:
                    starts[i], stops[i], complete[i] = body
            if self._bodies.size_bytes >= RUN_BYTES or i == len(entries) - 1:
                run = entries[first : i + 1]
                run["start"], run["stop"] = starts[first : i + 1], stops[first : i + 1]
                run["is_complete"] = complete[first : i + 1]
                yield self._bodies.data, run
                first = i + 1
                self._bodies.clear()

    def _placed(self, stored: memoryview, codec: int, magic: int) -> PlacedBody | None:
        """Put a body with the others; return its place, None for a codec that is not there."""
        try:
            return self._bodies.append(stored, codec, magic=magic)
        except UnsupportedFormatError:
            return None

    def _records(
        self, held: HeldBatches, data: npt.NDArray[np.uint8], entries: Rows
    ) -> Iterator[DecodedRecords | UnreadableBatch]:
        cursor = np.zeros(1, CURSOR)
        cursor["at"] = -1
        speed, taken = self._speed, self._taken(data)
        add = speed(add_records)
        while True:
            why = add(taken, entries, cursor, self._limits, self._rows)
            count = int(cursor["rows"][0])
            if count:
                yield DecodedRecords(taken, self._rows[:count])
                cursor["rows"] = 0
            if why == DONE:
                return
            if why == BAD:
                position = int(entries["position"][cursor["entry"][0]])
                yield UnreadableBatch(position, self._error_at(held, position))
                cursor["entry"] += 1
                cursor["at"] = -1

    def _error_at(
        self, held: HeldBatches, position: int
    ) -> CorruptSegmentError | UnsupportedFormatError:
        """Return the error of `iterate_records` for an unreadable batch."""
        at = position - held.start
        size = LOG_OVERHEAD + int.from_bytes(held.data[at + 8 : at + 12].tobytes())
        batch = held.data.data[at : at + size]
        try:
            for _ in iterate_records(batch, position=position, max_batch_bytes=self._most):
                pass
        except (CorruptSegmentError, UnsupportedFormatError) as error:
            return error
        return CorruptSegmentError(f"batch at position {position}: cannot be read", position)

    def _taken(self, data: npt.NDArray[np.uint8]) -> Any:
        """Return bytes in the form that the functions take: compiled code takes one type."""
        if not self._native:
            return data.data
        view = data.view()
        view.flags.writeable = False
        return view
