"""Where recovery's producer state makes a log fail to load.

Index rules know nothing of transactions, but `LogSegment.recover` feeds every batch of a producer
to a `ProducerStateManager`, whose exceptions leave it (kafka-semantics 10, rows 34 to 36). Sane
logs never get there; a byte-exact rebuild has to know when Kafka would have left no index.

Kafka 4.1: `ProducerAppendInfo`, `ProducerStateManager.completeTxn`, `TransactionIndex.append`.
"""

from collections.abc import Iterable
from typing import Any

from kip33.formats.batch import CONTROL, TRANSACTIONAL, BatchColumns
from kip33.formats.walk import ABORT, COMMIT
from kip33.rules.speed import Speed, plain


def has_transactions(batches: Any) -> bool:
    """Return whether any batch of a producer is transactional or a control batch."""
    for i in range(batches.size):
        marked = batches[i]["attributes"] & (TRANSACTIONAL | CONTROL)
        if marked and batches[i]["producer_id"] >= 0:
            return True
    return False


class OpenTransactions:
    """The transactions that are open after the batches seen so far, from the segment's start."""

    def __init__(self) -> None:
        """Start with none: what a producer did in earlier segments is not in this one."""
        self._first_offset_of: dict[int, int] = {}  # producer id -> its open transaction
        self._ongoing: set[int] = set()  # by first offset, as Kafka keys them
        self._last_abort: int | None = None

    def append(self, batches: BatchColumns, speed: Speed = plain) -> tuple[int, str] | None:
        """Take `batches` in order; return (position, why) of the first that Kafka fails on."""
        if not self._first_offset_of and not speed(has_transactions)(batches):
            return None
        rows = batches[batches["producer_id"] >= 0]
        names = ("producer_id", "base_offset", "attributes", "control", "position")
        return self._append(zip(*(rows[name].tolist() for name in names), strict=True))

    def _append(self, rows: Iterable[tuple[int, ...]]) -> tuple[int, str] | None:
        open_offsets = self._first_offset_of
        for producer_id, base_offset, attributes, control, position in rows:
            if attributes & CONTROL:
                if control in (ABORT, COMMIT) and producer_id in open_offsets:
                    failure = self._complete(open_offsets.pop(producer_id), base_offset, control)
                    if failure:
                        return position, f"producer {producer_id}: {failure}; Kafka fails to load"
            elif attributes & TRANSACTIONAL:
                if producer_id not in open_offsets:
                    open_offsets[producer_id] = base_offset
                    self._ongoing.add(base_offset)
            elif producer_id in open_offsets:
                return position, (
                    f"producer {producer_id} writes outside its open transaction; "
                    "Kafka fails to load"
                )
        return None

    def _complete(self, first_offset: int, marker_offset: int, control: int) -> str | None:
        if control == ABORT:
            if self._last_abort is not None and marker_offset <= self._last_abort:
                return f"the abort marker at offset {marker_offset} is not above the last one"
            self._last_abort = marker_offset
        if first_offset not in self._ongoing:
            return f"two transactions begin at offset {first_offset}"
        self._ongoing.remove(first_offset)
        return None
