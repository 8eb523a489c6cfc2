"""The first record at or after a time in one segment, from its indexes and its log.

A search begins at a place that the indexes name and the batches there confirm. An entry of a time
index is confirmed if the batch that it names has its timestamp, and no batch from that position to
this batch is later. An entry of `kip33` names no batch, so one of the batches after an earlier
index point must have its timestamp. To skip a stretch between two entries, both index files must
come from one scan, and all entries must be true; a stretch that costs less than this check is
walked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kip33.archive.log_slice import LogSlice
from kip33.archive.log_window import LogWindow, Meter
from kip33.errors import CorruptIndexError, CorruptSegmentError, UnsupportedFormatError
from kip33.formats.batch import CODEC_MASK, LOG_APPEND_TIME, BatchHeader
from kip33.formats.records import MAX_RECORD_BYTES, Record
from kip33.rules.search import Exactness, bears_out, reach_of
from kip33.search.answers import Hit
from kip33.search.index_lookup import IndexLookup, Start
from kip33.search.searched_segment import SearchedSegment

LATER_THAN_ALL_MS: Final = 2**63 - 1  # later than every record
_PACKED_OR_STAMPED: Final = CODEC_MASK | LOG_APPEND_TIME


class _RisingRecords:
    """The records of one batch that are later than all records before them, read on demand.

    The first record at or after a time is one of them. Times are searched in ascending order, so
    only the last of these records is kept in memory.
    """

    def __init__(self, records: Iterator[Record], start_offset: int) -> None:
        """Take a batch's records from an offset on."""
        self._records = records
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
                if not self._step or record.timestamp > self._step.timestamp:
                    self._step, self._steps = record, self._steps + 1
                    if record.timestamp >= target_ms:
                        return record, self._steps == 1
        except (CorruptSegmentError, UnsupportedFormatError) as error:
            self._damage = error
        if self._damage:
            raise self._damage
        return None


class SegmentSearch:
    """One open segment; times must be searched in ascending order. `notes` has its faults."""

    def __init__(
        self,
        segment: SearchedSegment,
        log: LogWindow,
        indexes: IndexLookup,
        max_record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        """Take an open slice of a log.

        A broker does not read records of compressed batches of more than `max_record_bytes`.
        """
        self.log = log
        self._max_record_bytes = max_record_bytes
        self._segment, self._indexes = segment, indexes
        # Position and offset before which no record is late enough.
        self._resume = (0, segment.base_offset)
        self._none_from: int | None = None
        self._stairs: tuple[int, _RisingRecords] | None = None
        self._starts = _ProvenStarts(log, indexes, segment.base_offset)
        self._first_position: int | None = None  # of the first batch with a record to return

    @property
    def notes(self) -> list[str]:
        """Return one line per fault."""
        damage = [f"{self.log.damage}; the rest was not read"] if self.log.damage else []
        return [f"{self._segment.log_uri}: {note}" for note in (*self._indexes.notes, *damage)]

    def find(self, target_ms: int) -> Hit | None:
        """Return the first record at or after a time; OSError if the log cannot be read."""
        if self._none_from is not None and target_ms >= self._none_from:
            return None
        position, first_offset = self._starts.start(target_ms, self._resume)
        for header in self.log.headers(position):
            if header.max_timestamp >= target_ms:
                hit = self._look_into(header, target_ms, first_offset)
                if hit:
                    self._resume = (header.position, first_offset)
                    return hit
            first_offset = max(first_offset, header.last_offset + 1)
        self._none_from = target_ms
        return None

    def find_max(self, timestamp: int) -> Hit | None:
        """Return the first record with this timestamp in the first batch that has it as its max.

        This is a broker's answer for MAX_TIMESTAMP: it reads no other batch and none of magic 0,
        and it ignores its log start offset.
        """
        base_offset = self._segment.base_offset
        at_start = (0, base_offset)  # includes empty batches
        position, first_offset = self._starts.start(timestamp, at_start)
        for header in self.log.walk(position):
            if header.max_timestamp == timestamp:
                if header.magic == 0:
                    return None
                every = self.log.every_record(header, self._max_record_bytes)
                records = (record for record in every if record.offset >= base_offset)
                stairs = _RisingRecords(records, base_offset)
                return self._first(stairs, header, timestamp, first_offset)
            first_offset = max(first_offset, header.last_offset + 1)
        return None

    def find_indexed_max(self, timestamp: int) -> Hit | None:
        """Return the time index's offset for the largest timestamp, without reading records.

        This is the answer of brokers before 3.8 for MAX_TIMESTAMP: the last offset of the first
        batch that has it. If the index file is known to be `live`, it is the offset of the record
        in a plain batch.
        """
        for header in self.log.walk(0):
            if header.max_timestamp == timestamp:
                is_plain = header.magic == 2 and not header.attributes & _PACKED_OR_STAMPED
                named = is_plain and header.records_count and self._indexes.dialect == "live"
                found = self.find_max(timestamp) if named else None
                return found or Hit(
                    *(header.last_offset, timestamp), position=header.position, claimed=timestamp
                )
        return None

    def largest_below(self, timestamp: int) -> int:
        """Return the largest timestamp below this one in headers of batches with records, or -1."""
        claimed = -1
        for header in self.log.headers(0):
            if header.records_count and claimed < header.max_timestamp < timestamp:
                claimed = header.max_timestamp
        return claimed

    def find_largest(self, least: int, claimed_from: int, claimed_below: int | None) -> Hit | None:
        """Return the first record with the largest timestamp, which is at least `least`.

        Only batches whose header has a timestamp within the bounds are decoded, each of them once,
        and only if it is not below a record found before. For a batch that cannot be decoded, the
        timestamp in its header is used.
        """
        found: Hit | None = None
        first_offset = self._segment.base_offset
        for header in self.log.headers(0):
            claimed = header.max_timestamp
            is_within = claimed_below is None or claimed < claimed_below
            if header.records_count and is_within and claimed >= max(least, claimed_from):
                found = self._largest_in(header, least, first_offset) or found
                least = found.claimed + 1 if found else least
            first_offset = max(first_offset, header.last_offset + 1)
        return found

    def _largest_in(self, header: BatchHeader, least: int, first_offset: int) -> Hit | None:
        stairs, largest = _RisingRecords(self.log.records(header), self.log.from_offset), least
        hit: Hit | None = None
        while True:
            found = self._first(stairs, header, largest, first_offset)
            if found is None or found.exactness == Exactness.BATCH:
                return found or hit
            hit, largest = found, found.claimed + 1

    def _look_into(self, header: BatchHeader, target_ms: int, first_offset: int) -> Hit | None:
        known = self._stairs if self._stairs and self._stairs[0] == header.position else None
        if known is None or (known[1].asked_ms or 0) > target_ms:
            records = self.log.records(header, self._max_record_bytes)
            stairs = _RisingRecords(records, self.log.from_offset)
            known = self._stairs = (header.position, stairs)
        return self._first(known[1], header, target_ms, first_offset)

    def _first(
        self, stairs: _RisingRecords, header: BatchHeader, target_ms: int, first_offset: int
    ) -> Hit | None:
        try:
            found = stairs.first(target_ms)
        except (CorruptSegmentError, UnsupportedFormatError) as error:
            least = max(first_offset, stairs.next_offset)
            if header.magic >= 2:
                least = max(least, header.base_offset)
            note = f"{self._segment.log_uri}: {error}: its records cannot be read"
            return Hit(
                *(least, None, Exactness.BATCH, note),
                position=header.position,
                claimed=header.max_timestamp,
            )
        if found is None:
            return None
        record, is_first_of_batch = found
        return Hit(
            *(record.offset, record.timestamp),
            is_first_of_batch=is_first_of_batch,
            position=header.position,
            claimed=record.timestamp,
        )

    def begins_with(self, hit: Hit) -> bool:
        """Return whether no record of the slice is before a hit."""
        if not hit.is_first_of_batch or self._stairs is None:
            return False
        if self._first_position is None:
            self.log.expect(0)  # one header is usually enough
            for header in self.log.headers(0):
                self._first_position = header.position
                is_hit = header.position == self._stairs[0]
                if is_hit or self.log.has_record(header):
                    break
        return self._stairs[0] == self._first_position


@contextmanager
def opened_search(
    segment: SearchedSegment, of_log: LogSlice, meter: Meter, *, check_crc: bool = False
) -> Iterator[SegmentSearch]:
    """Open a slice of a segment's log, and its indexes on demand; raises the OSError of the store.

    With `check_crc` a batch that does not match its CRC is treated as damage.
    """
    with of_log.opened(meter, check_crc=check_crc) as log:
        indexes = IndexLookup(segment, log.files, meter)
        yield SegmentSearch(segment, log.window, indexes, meter.max_record_bytes)


class _ProvenStarts:
    """The starts that a segment's indexes name, each compared with the log before it is used."""

    def __init__(self, log: LogWindow, indexes: IndexLookup, base_offset: int) -> None:
        self._log, self._indexes, self._base_offset = log, indexes, base_offset
        self._is_index_true: bool | None = None

    def start(self, target_ms: int, resume: tuple[int, int]) -> tuple[int, int]:
        """Return a position to begin, and an offset before which no record is late enough."""
        indexes, end = self._indexes, self._log.end
        starts = indexes.starts_for(target_ms, end)
        upper = indexes.upper_start_for(target_ms, end)
        nearest = max(resume[0], min((start.position for start in starts), default=0))
        is_far = upper is not None and upper.position - nearest > indexes.proof_bytes
        begin = resume
        for start in starts:
            if start.position <= resume[0] and not is_far:
                break
            if self._is_confirmed(start, target_ms):
                begin = max(begin, (start.position, start.first_offset))
                break
        else:
            if starts:
                indexes.distrust("the batches at its position do not match it")
                return resume
        if upper is None or upper.position <= begin[0]:
            return begin
        if is_far:
            if self._are_all_confirmed() and self._is_confirmed(upper, target_ms):
                return upper.position, upper.first_offset
            indexes.distrust("the batches at its position do not match it")
            return begin
        self._log.expect(upper.position - begin[0] + (upper.expected_bytes or 0))
        return begin

    def _are_all_confirmed(self) -> bool:
        if self._is_index_true is None:
            try:
                starts = self._indexes.all_starts(self._log.end)
                self._is_index_true = all(
                    start is not None and self._is_confirmed(start, LATER_THAN_ALL_MS)
                    for start in starts
                )
            except CorruptIndexError:
                self._is_index_true = False
        return self._is_index_true

    def _is_confirmed(self, start: Start, target_ms: int) -> bool:
        reach = reach_of(start.claim)
        headers: list[BatchHeader] = []
        rest = self._log.end - start.position
        self._log.expect(rest if start.expected_bytes is None else start.expected_bytes)
        damage = self._log.damage
        for header in self._log.walk(start.position):
            headers.append(header)
            if header.last_offset >= reach:
                break
            if header.max_timestamp > start.claim.entry.timestamp:
                return False
        else:
            self._log.damage = damage  # not of the log: the index gave a wrong position
            return False
        if start.is_exact and headers[0].last_offset != start.last_offset:
            return False
        within = headers[0].base_offset >= self._base_offset
        return within and bears_out(headers, start.claim, target_ms)
