"""The transactions of one partition, found by reading its batch headers first.

The pass begins at the oldest segment, or after a segment whose catalog row has the transactions
that are open at its end. It ends where no transaction that is wanted is open.
"""

from collections.abc import Sequence

from kip33.errors import FileReadError, Kip33Error
from kip33.formats.scan import BatchScan
from kip33.records.read_segment import ReadSegment
from kip33.records.transaction_fates import TransactionFates
from kip33.rules.transaction_index import UNCHANGED, Open, open_from_json
from kip33.stores.files import opened


def fates_of(
    partition: Sequence[ReadSegment], *, first_needed: int, last_needed: int
) -> TransactionFates:
    """Return the fates of the transactions in the segments with these numbers.

    A transaction that begins in a later segment may be missing. A segment that cannot be read is a
    gap; reading its records reports it.
    """
    begin, open_at_start = _known_start(partition, first_needed)
    fates = TransactionFates(open_at_start)
    next_offset: int | None = None
    for number in range(begin, len(partition)):
        segment = partition[number]
        base_offset = segment.base_offset or 0
        if number > last_needed and _is_decided(fates, partition[last_needed + 1]):
            break
        if next_offset is not None and base_offset > next_offset:
            fates.lose(base_offset)
        next_offset = _pass(segment, fates, next_offset)
        if next_offset is None and number + 1 < len(partition):
            fates.lose(partition[number + 1].base_offset or 0)
    return fates


def _is_decided(fates: TransactionFates, segment: ReadSegment) -> bool:
    """Return whether no transaction that began before a segment is open."""
    oldest = fates.last_stable_offset
    return oldest is None or oldest >= (segment.base_offset or 0)


def _pass(segment: ReadSegment, fates: TransactionFates, first_new: int | None) -> int | None:
    """Process a segment; return the offset after the last one, None if its end is damaged.

    Batches are left out whose offsets an earlier segment has; these are below `first_new`.
    """
    next_offset = max(segment.base_offset or 0, first_new or 0)
    if segment.error:
        return None
    try:
        with opened(segment.log) as (read_into, size_bytes):
            size_bytes = segment.readable_bytes(size_bytes)
            scan = BatchScan(read_into, size_bytes)
            for batches in scan:
                if first_new is not None:
                    batches = batches[batches["last_offset"] >= first_new]
                fates.append(batches)
                next_offset = max(next_offset, segment.end_of(batches["last_offset"]))
    except (FileReadError, Kip33Error):
        return None
    return None if scan.damage or scan.load_failure else next_offset


def _known_start(partition: Sequence[ReadSegment], first_needed: int) -> tuple[int, Open | None]:
    """Return the segment at which the pass begins, and the transactions open there.

    These are those at the end of the nearest earlier segment whose row has them, if all segments
    between have no transactions and follow without a gap.
    """
    for number in range(first_needed - 1, -1, -1):
        segment = partition[number]
        if segment.last_offset is None or segment.open_transactions is None:
            break
        if partition[number + 1].base_offset != segment.last_offset + 1:
            break
        if segment.open_transactions != UNCHANGED:
            return number + 1, open_from_json(segment.open_transactions, None)
    return 0, None
