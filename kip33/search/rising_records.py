"""The records of one batch that are later than all records before them."""

from collections.abc import Iterator

from kip33.errors import CorruptSegmentError, UnsupportedFormatError
from kip33.formats.records import Record


class RisingRecords:
    """The records of one batch that are later than all records before them, read on demand.

    The first record at or after a time is one of them. Times are searched in ascending order, so
    only the last of these records is kept in memory.
    """

    def __init__(self, records: Iterator[Record], start_offset: int) -> None:
        """Take a batch's records; those below `start_offset` are ignored."""
        self._records, self._start_offset = records, start_offset
        self._step: Record | None = None
        self._steps = 0
        self._damage: CorruptSegmentError | UnsupportedFormatError | None = None
        self.asked_ms: int | None = None
        self.next_offset = start_offset  # after the last readable record

    def first(self, target_ms: int) -> tuple[Record, bool] | None:
        """Return the first record at or after a time and whether it is the batch's first, or None.

        Raises the error of an unreadable record before it, and ValueError for a time that is
        smaller than the previous one.
        """
        if self.asked_ms is not None and target_ms < self.asked_ms:
            raise ValueError(f"{target_ms} was asked after {self.asked_ms}")
        self.asked_ms = target_ms
        if self._step and self._step.timestamp >= target_ms:
            return self._step, self._steps == 1
        try:
            while record := next(self._records, None):
                self.next_offset = max(self.next_offset, record.offset + 1)
                if record.offset < self._start_offset:
                    continue
                if not self._step or record.timestamp > self._step.timestamp:
                    self._step, self._steps = record, self._steps + 1
                    if record.timestamp >= target_ms:
                        return record, self._steps == 1
        except (CorruptSegmentError, UnsupportedFormatError) as error:
            self._damage = error
        if self._damage:
            raise self._damage
        return None
