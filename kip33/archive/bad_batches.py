"""What is behind batches with a wrong CRC, in a log of which not all is lost.

Kafka's recovery cuts a log at the first such batch. So what stands for a broker's log ends there:
indexes, catalogs, restore, search, retention. But a consumer may seek past the batch and read on
(a broker wrote such batches: KAFKA-8722), and an archive may be the last copy. So `dump`, `verify`
and those who read records look behind it.

The size field of a batch leads to the next one. If the CRC there is right, and its offsets continue
those before the damage, reading goes on there. If not, its size may lead on. Nothing is searched
byte by byte: a size that points past the end of the file ends the log.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kip33.archive.log_window import LogWindow
from kip33.formats.batch import BatchColumns, BatchHeader
from kip33.formats.byte_sources import ReadInto
from kip33.formats.scan import BatchCrc, BatchScan


class DamagedBytes(NamedTuple):
    """Bytes of a log that are no batch, between two that are."""

    position: int
    next_position: int  # of the batch after them
    first_offset: int | None  # after the last one before them; None: no batch was read there
    next_offset: int  # in the offset field of the batch after them

    def __str__(self) -> str:
        """Return which bytes these are, and which offsets may have been in them."""
        return f"left out: bytes {self.position} to {self.next_position - 1}, {self._offsets}"

    @property
    def _offsets(self) -> str:
        first, last = self.first_offset, self.next_offset - 1
        if first is None:
            return f"offsets before {self.next_offset}"
        if first > last:
            return "no offset"
        return f"at most offset {last}" if first == last else f"at most offsets {first} to {last}"


def damaged_bytes_at(
    read_into: ReadInto, size_bytes: int, position: int, first_offset: int | None
) -> DamagedBytes | None:
    """Return what is left out of a log from a batch with a wrong CRC on, None if all the rest is.

    `first_offset` follows the last one of the batch before it, None if none was read.
    """
    log, crc = LogWindow(read_into, size_bytes), BatchCrc()
    least = first_offset or 0
    for header in log.headers(position):
        is_later = header.position > position and header.base_offset >= least
        if is_later and crc.matches(log, header):
            return DamagedBytes(position, header.position, first_offset, header.base_offset)
        least = max(least, _first_after(header))
    return None


def _first_after(header: BatchHeader) -> int:
    """Return the offset after a batch that is left out, if its header agrees with itself."""
    agrees = header.last_offset - header.base_offset + 1 == header.records_count
    return header.last_offset + 1 if agrees else 0


class WholeBatches:
    """The batches of a log, also those behind damage, and what is left out between them.

    Iterate once; `scan` then says how the log ended, and `valid_bytes` where recovery cuts it.
    """

    def __init__(
        self,
        read_into: ReadInto,
        size_bytes: int,
        *,
        position: int = 0,
        first_offset: int | None = None,
        native: bool | None = None,
    ) -> None:
        """Prepare to scan up to `size_bytes` from `position`, where the offsets begin."""
        self._read_into, self._size_bytes, self._native = read_into, size_bytes, native
        self._next_offset = first_offset
        self.scan = self._scan_from(position)
        self.valid_bytes = position

    def _scan_from(self, position: int) -> BatchScan:
        return BatchScan(self._read_into, self._size_bytes, position=position, native=self._native)

    def __iter__(self) -> Iterator[BatchColumns | DamagedBytes]:
        """Yield both in order; an array is reused, so copy it to keep its rows."""
        first = self.scan
        while True:
            for batches in self.scan:
                self._next_offset = int(batches["last_offset"][-1]) + 1
                yield batches
            self.valid_bytes = first.valid_bytes
            if not self.scan.has_wrong_crc:
                return
            found = damaged_bytes_at(
                self._read_into, self._size_bytes, self.scan.valid_bytes, self._next_offset
            )
            if not found:
                return
            yield found
            self.scan = self._scan_from(found.next_position)
