"""The records of batches that are in memory, as rows of `RECORD`.

Bodies are decompressed one after another into one array until it has RUN_BYTES. Then one call
reads the records of all of them. So a small batch costs little more than its bytes.

The first PLAIN_BYTES are read by plain code, so a small log does not wait for compiled code. Bytes
count as they are decompressed: a log of 700 bytes may have a million records.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from kip33.errors import CorruptSegmentError, UnsupportedFormatError
from kip33.formats.batch import CODEC_MASK, LOG_OVERHEAD
from kip33.formats.batch_entries import ENTRY, UNREADABLE, V2_RECORDS, fill_entries
from kip33.formats.held_batches import HeldBatches
from kip33.formats.native import Speed, compiled, plain
from kip33.formats.record_columns import BAD, CURSOR, DONE, RECORD_LIMITS, add_records
from kip33.formats.record_fields import RECORD
from kip33.formats.records import record_error
from kip33.formats.whole_bodies import PlacedBody, WholeBodies

Rows: TypeAlias = npt.NDArray[np.void]

RECORD_ROWS: Final = 8192  # at once: they stay in the CPU's caches
RUN_BYTES: Final = 1 << 20
PLAIN_BYTES: Final = 1 << 16  # fewer bytes are read before compiled code is loaded
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


class RecordLimits(NamedTuple):
    """The records to return; offsets and timestamps (ms) are inclusive."""

    first_offset: int = _LOWEST
    last_offset: int = _HIGHEST
    first_timestamp: int = _LOWEST
    last_timestamp: int = _HIGHEST


class DecodedRecords(NamedTuple):
    """Rows of RECORD, and the bytes that they point into; both are valid until the next step."""

    data: Any  # as the functions of `gathered_bytes` take it at this speed
    records: Rows
    speed: Speed


class UnreadableBatch(NamedTuple):
    """A batch whose next record cannot be read; the records before it were returned."""

    position: int
    error: CorruptSegmentError | UnsupportedFormatError


class RecordDecoder:
    """Reads the records of batches; one decoder serves one thread."""

    def __init__(self, *, max_batch_bytes: int) -> None:
        """Return all records; no batch may have more than `max_batch_bytes`."""
        self.limit(RecordLimits())
        self._most = max_batch_bytes
        self._bytes_decoded = 0
        self._bodies = WholeBodies(max_batch_bytes)
        self._rows = np.empty(RECORD_ROWS, RECORD)

    def limit(self, limits: RecordLimits) -> None:
        """Return the records inside `limits` from now on."""
        self._limits = np.array([limits], RECORD_LIMITS)

    def decode(self, held: HeldBatches) -> Iterator[DecodedRecords | UnreadableBatch]:
        """Yield the records of batches, in order; after an unreadable batch come the next ones."""
        entries = np.empty(len(held.batches), ENTRY)
        speed = self._speed_for(int(held.batches["size_bytes"].sum()))
        speed(fill_entries)(_taken(held.data, speed), held.start, held.batches, entries)
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
        size_bytes = int((entries["stop"] - entries["start"]).sum())
        speed = self._speed_for(size_bytes)
        self._bytes_decoded += size_bytes
        taken, add = _taken(data, speed), speed(add_records)
        while True:
            why = add(taken, entries, cursor, self._limits, self._rows)
            count = int(cursor["rows"][0])
            if count:
                yield DecodedRecords(taken, self._rows[:count], speed)
                cursor["rows"] = 0
            if why == DONE:
                return
            if why == BAD:
                position = int(entries["position"][cursor["entry"][0]])
                yield UnreadableBatch(position, self._error_at(held, entries, cursor[0]))
                cursor["entry"] += 1
                cursor["at"] = -1

    def _error_at(
        self, held: HeldBatches, entries: Rows, cursor: Any
    ) -> CorruptSegmentError | UnsupportedFormatError:
        """Return the error of `iterate_records` for the batch that cannot be read further."""
        entry = entries[cursor["entry"]]
        position = int(entry["position"])
        at = position - held.start
        size = LOG_OVERHEAD + int.from_bytes(held.data[at + 8 : at + 12].tobytes())
        read, read_bytes = 0, 0
        if entry["kind"] == V2_RECORDS and cursor["at"] >= 0:
            read, read_bytes = int(cursor["number"]), int(cursor["at"] - entry["start"])
        return record_error(
            held.data.data[at : at + size],
            position=position,
            max_batch_bytes=self._most,
            read=(read, read_bytes),
        )

    def _speed_for(self, size_bytes: int) -> Speed:
        """Return the speed at which the next bytes are read."""
        return compiled if self._bytes_decoded + size_bytes > PLAIN_BYTES else plain


def _taken(data: npt.NDArray[np.uint8], speed: Speed) -> Any:
    """Return bytes in the form that the functions take: compiled code takes one type."""
    if speed is plain:
        return data.data
    view = data.view()
    view.flags.writeable = False
    return view
