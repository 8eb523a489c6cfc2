"""What becomes of transactional records with `isolation="read_committed"`.

The batch headers of the partition are read first, from the oldest segment or from one whose catalog
row has the open transactions at its end. A producer's next marker decides about its transactional
batches: COMMIT or ABORT. Records end at the last stable offset, where the oldest transaction begins
that is still open, as for a broker. If the log has a gap or damage, the marker of a transaction
that is open there may be lost: its outcome is unknown. In Kafka this is `Fetcher`'s list of aborted
transactions and `UnifiedLog.lastStableOffset`.

A hole that compaction may have left hides no marker: the cleaner keeps a marker while a record of
its transaction is there (`Cleaner.buildOffsetMap`, `CleanedTransactionMetadata`).
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kip33.archive.bad_batches import DamagedBytes, WholeBatches
from kip33.errors import FileReadError, Kip33Error, UnreadableLogError
from kip33.formats.batch import CONTROL, TRANSACTIONAL, BatchColumns
from kip33.formats.walk import ABORT, COMMIT
from kip33.records.partitions import PartitionSegments, ReadSegment, holes_before
from kip33.records.record_request import RecordRequest
from kip33.records.segment_rows import scanned_figures
from kip33.rules.offset_holes import Hole, is_compacted
from kip33.rules.transaction_index import UNCHANGED, Open, open_as_json, open_from_json
from kip33.stores.files import one_line, opened

_FATE_COLUMNS: Final = ("producer_id", "base_offset", "attributes", "control")


class Begun(NamedTuple):
    """What is read of a partition, as its transactions allow."""

    request: RecordRequest
    fates: "TransactionFates"
    notice: str | None = None  # that an open transaction ends it before the log does


def begun_of(partition: PartitionSegments, asked: RecordRequest) -> Begun | None:
    """Return what is read of a partition, None if no segment may have wanted records.

    With `read_committed` this reads the headers of its batches.
    """
    needed = [number for number, one in enumerate(partition) if asked.needs(one)]
    if not needed:
        return None
    if not asked.only_committed:
        return Begun(asked, TransactionFates())
    fates = _fates_of(partition, first_needed=needed[0], last_needed=needed[-1])
    notice = _notice_of(partition[: needed[-1] + 1], fates, asked)
    return Begun(asked.below(fates.last_stable_offset), fates, notice)


def _notice_of(
    partition: Sequence[ReadSegment], fates: "TransactionFates", asked: RecordRequest
) -> str | None:
    """Return that records of these segments are not read, because a transaction is open."""
    end = fates.last_stable_offset
    if end is None or end > asked.limits.last_offset:
        return None
    if not asked.starting_at(end).needs(partition[-1]):
        return None
    producer = min(producer for producer, first in fates.open.items() if first == end)
    begins_in = [one for one in partition if (one.begin_offset or 0) <= end] or partition
    return (
        f"{begins_in[-1].log.uri}: at offset {end} producer {producer} begins a transaction that "
        "is still open at the end of the log; read_committed ends before it"
    )


class TransactionFates:
    """Follows the batches of a partition, in order."""

    def __init__(self, open_at_start: Open | None = None) -> None:
        """Start with the first offset of each producer's open transaction."""
        self.open = dict(open_at_start or {})
        self._aborted: dict[int, _Spans] = {}
        self._undecided: dict[int, _Spans] = {}

    def append(self, batches: BatchColumns) -> None:
        """Process batches, rows of BATCH whose `control` is known."""
        marked = (batches["attributes"] & (TRANSACTIONAL | CONTROL)) != 0
        rows = batches[marked & (batches["producer_id"] >= 0)]
        for producer, offset, attributes, control in zip(
            *(rows[name].tolist() for name in _FATE_COLUMNS), strict=True
        ):
            if not attributes & CONTROL:
                self.open.setdefault(producer, offset)
            elif control in (ABORT, COMMIT):
                first = self.open.pop(producer, None)
                if first is not None and control == ABORT:
                    _add(self._aborted, producer, first, offset)

    def lose(self, next_offset: int) -> None:
        """Process a gap or damage before an offset: markers may have been there."""
        for producer, first in self.open.items():
            _add(self._undecided, producer, first, next_offset - 1)
        self.open.clear()

    @property
    def last_stable_offset(self) -> int | None:
        """Return the first offset of the oldest open transaction, None if none is open."""
        return min(self.open.values(), default=None)

    def aborted(self, batches: BatchColumns) -> npt.NDArray[np.bool_]:
        """Return which batches are of aborted transactions."""
        return _inside_spans(self._aborted, batches)

    def undecided(self, batches: BatchColumns) -> npt.NDArray[np.bool_]:
        """Return which batches are of transactions with unknown outcome."""
        return _inside_spans(self._undecided, batches)


def _fates_of(
    partition: Sequence[ReadSegment], *, first_needed: int, last_needed: int
) -> TransactionFates:
    """Return the fates of the transactions in the segments with these numbers.

    A transaction that begins in a later segment may be missing. A segment that cannot be read is a
    gap; reading its records reports it.
    """
    begin, open_at_start = _known_start(partition, first_needed)
    fates = TransactionFates(open_at_start)
    holes: list[Hole | None] | None = None
    next_offset: int | None = None
    for number in range(begin, len(partition)):
        segment = partition[number]
        base_offset = segment.begin_offset or 0
        if number > last_needed and _is_decided(fates, partition[last_needed + 1]):
            break
        if next_offset is not None and base_offset > next_offset and fates.open:
            holes = holes or _holes_in(partition)
            if not is_compacted(holes[number]):
                fates.lose(base_offset)
        next_offset = _pass(segment, fates, next_offset)
        if next_offset is None and number + 1 < len(partition):
            fates.lose(partition[number + 1].begin_offset or 0)
    return fates


def _holes_in(partition: Sequence[ReadSegment]) -> list[Hole | None]:
    """The hole before each segment. Of logs that no build has read the headers are read."""
    known = [one.hole for one in partition]
    if all(one.figures for one in partition):
        return known
    found = holes_before([one if one.figures else _scanned(one) for one in partition])
    # Part of a partition may be dense: what is known is of all segments.
    return [one if is_compacted(one) else now for one, now in zip(known, found, strict=True)]


def _scanned(segment: ReadSegment) -> ReadSegment:
    figures, problem = scanned_figures(segment)
    if isinstance(problem, UnreadableLogError):
        return segment
    return segment._replace(figures=figures, damage=str(problem) if problem else None)


def _is_decided(fates: TransactionFates, segment: ReadSegment) -> bool:
    """Return whether no transaction that began before a segment is open."""
    oldest = fates.last_stable_offset
    return oldest is None or oldest >= (segment.begin_offset or 0)


def _pass(segment: ReadSegment, fates: TransactionFates, first_new: int | None) -> int | None:
    """Process a segment; return the offset after the last one, None if its end is damaged.

    Batches are left out whose offsets an earlier segment has; these are below `first_new`.
    """
    next_offset = max(segment.begin_offset or 0, first_new or 0)
    new = segment.after(next_offset).slice
    if segment.error:
        return None
    is_whole = segment.last_offset is not None and segment.damage is None
    if is_whole and segment.open_transactions == UNCHANGED:  # no transaction begins or ends in it
        return max(next_offset, (segment.last_offset or 0) + 1)
    try:
        with opened(segment.log) as (read_into, size_bytes):
            log = WholeBatches(read_into, segment.readable_bytes(size_bytes), native=True)
            for every in log:
                if isinstance(every, DamagedBytes):
                    fates.lose(every.next_offset)
                    continue
                batches = new.inside(every)
                fates.append(batches)
                next_offset = max(next_offset, segment.end_of(batches["last_offset"]))
                if new.ends_in(every):
                    return next_offset
    except (FileReadError, Kip33Error):
        return None
    if log.scan.only_zeros_follow and segment.is_whole_before_zeros(next_offset):
        return next_offset
    return None if log.scan.damage or log.scan.load_failure else next_offset


def _known_start(partition: Sequence[ReadSegment], first_needed: int) -> tuple[int, Open | None]:
    """Return the segment at which the pass begins, and the transactions open there.

    These are those at the end of the nearest earlier segment whose row has them, if all segments
    between have no transactions and follow without a gap.
    """
    for number in range(first_needed - 1, -1, -1):
        segment = partition[number]
        if segment.last_offset is None or segment.open_transactions is None:
            break
        following = partition[number + 1]
        if following.begin_offset != segment.last_offset + 1 and not is_compacted(following.hole):
            break
        if segment.open_transactions != UNCHANGED:
            return number + 1, open_from_json(segment.open_transactions, None)
    return 0, None


def with_open_transactions(
    partition: PartitionSegments, first_offset: int, end_offset: int
) -> PartitionSegments:
    """The segments of a partition with the transactions that a reader knows as open at their ends.

    Segments outside these offsets stay as they are: the next marker of a producer decides about its
    records, so nothing before `first_offset` counts. UnreadableLogError if a log must be read and
    cannot be.
    """
    found, fates = list(partition), TransactionFates()
    end: int | None = None  # of what was passed; None: not known
    lost = 0  # markers of older transactions may be missing
    for number, segment in enumerate(partition):
        begin = segment.begin_offset or 0
        last = None if segment.damage else segment.last_offset
        is_before = last is not None and last < first_offset
        if is_before or begin >= end_offset:
            continue
        if end is not None and begin > end and not is_compacted(segment.hole):
            fates.lose(begin)
            lost = begin
        known = None if last is None else open_from_json(segment.open_transactions, fates.open)
        if known is None or min(known.values(), default=lost) < lost:
            readable_size(segment)
            end = _pass(segment, fates, end)
        else:
            fates.open = dict(known)
            end = max(end or 0, (last or 0) + 1)
        if segment.open_transactions != UNCHANGED or lost == begin > 0:
            found[number] = segment._replace(open_transactions=open_as_json(fates.open))
        if end is None and number + 1 < len(partition):
            end = lost = partition[number + 1].begin_offset or 0
            fates.lose(lost)
    return found


def readable_size(segment: ReadSegment) -> int:
    """The bytes of a log; UnreadableLogError if it was deleted, or is out of reach."""
    try:
        with opened(segment.log) as (_, size_bytes):
            return size_bytes
    except FileReadError as error:
        raise UnreadableLogError(f"{segment.log.uri}: cannot be read: {one_line(error)}") from error


class _Spans(NamedTuple):
    """Parts of the log with one producer's batches, in order; both offsets are inclusive."""

    firsts: list[int]
    lasts: list[int]

    def have(self, offset: int) -> bool:
        place = bisect_right(self.firsts, offset) - 1
        return place >= 0 and offset <= self.lasts[place]


def _add(spans: dict[int, _Spans], producer: int, first: int, last: int) -> None:
    of_producer = spans.setdefault(producer, _Spans([], []))
    of_producer.firsts.append(first)
    of_producer.lasts.append(last)


def _inside_spans(spans: dict[int, _Spans], batches: BatchColumns) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(batches), bool)
    if spans:
        kinds = batches["attributes"] & (TRANSACTIONAL | CONTROL)
        for row in np.flatnonzero((kinds == TRANSACTIONAL) & (batches["magic"] >= 2)):
            of_producer = spans.get(int(batches["producer_id"][row]))
            found[row] = of_producer is not None and of_producer.have(
                int(batches["base_offset"][row])
            )
    return found
