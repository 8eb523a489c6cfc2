"""How the transactions of a partition end: what `isolation="read_committed"` leaves out.

A producer's next marker decides about its transactional batches: COMMIT or ABORT. Where the oldest
transaction begins that is open at the end, the last stable offset, the records that are returned
end, as for a broker. If the log has a gap or damage, the marker of a transaction that is open there
may be lost: it is undecided.

Kafka: `Fetcher`'s list of aborted transactions, `UnifiedLog.lastStableOffset`.
"""

from bisect import bisect_right
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kip33.formats.batch import CONTROL, TRANSACTIONAL, BatchColumns
from kip33.formats.walk import ABORT, COMMIT
from kip33.rules.transaction_index import Open

UNDECIDED_WHY: Final = (
    "the marker of its transaction may be lost: the log has a gap or damage after it"
)


class _Spans(NamedTuple):
    """Parts of the log with one producer's batches, in order; both offsets are inclusive."""

    firsts: list[int]
    lasts: list[int]

    def have(self, offset: int) -> bool:
        place = bisect_right(self.firsts, offset) - 1
        return place >= 0 and offset <= self.lasts[place]


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
            *(rows[name].tolist() for name in _READ), strict=True
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
        return _inside(self._aborted, batches)

    def undecided(self, batches: BatchColumns) -> npt.NDArray[np.bool_]:
        """Return of which batches it is not known whether they were committed."""
        return _inside(self._undecided, batches)


_READ: Final = ("producer_id", "base_offset", "attributes", "control")


def _add(spans: dict[int, _Spans], producer: int, first: int, last: int) -> None:
    of_producer = spans.setdefault(producer, _Spans([], []))
    of_producer.firsts.append(first)
    of_producer.lasts.append(last)


def _inside(spans: dict[int, _Spans], batches: BatchColumns) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(batches), bool)
    if spans:
        kinds = batches["attributes"] & (TRANSACTIONAL | CONTROL)
        for row in np.flatnonzero((kinds == TRANSACTIONAL) & (batches["magic"] >= 2)):
            of_producer = spans.get(int(batches["producer_id"][row]))
            found[row] = of_producer is not None and of_producer.have(
                int(batches["base_offset"][row])
            )
    return found
