"""Where recovery's producer state makes a log fail to load.

Index rules know nothing of transactions, but `LogSegment.recover` feeds every batch of a producer
to a `ProducerStateManager`, whose exceptions leave it (kafka-semantics 10, rows 34 to 36). Sane
logs never get there; a byte-exact rebuild has to know when Kafka would have left no index.

Kafka 4.1: `ProducerAppendInfo`, `ProducerStateManager.completeTxn`, `TransactionIndex.append`.
"""

from typing import Any, Final

import numpy as np

from kip33.formats.batch import CONTROL, TRANSACTIONAL, BatchColumns
from kip33.formats.walk import ABORT, COMMIT
from kip33.rules.offset_tables import OFFSET, USED, new_table, put, remove, slot_of, twice_as_large
from kip33.rules.speed import Speed, plain

TRANSACTION_STATE: Final = np.dtype(
    [
        ("open", np.int64),  # producers with an open transaction
        ("ongoing", np.int64),  # transactions by first offset, as Kafka keys them
        ("ended", np.int64),  # first offset of the transaction that ended last
        ("aborts", np.int64),  # 1 once there was one
        ("last_abort", np.int64),  # offset of its marker
    ]
)

# How far `append_batches` got: all rows, up to one that needs larger tables, or a failure.
TAKEN: Final = 0
NO_ROOM: Final = 1
WRITES_OUTSIDE: Final = 2
ABORT_GOES_BACK: Final = 3
BEGIN_TOGETHER: Final = 4

FAILURES: Final = {
    WRITES_OUTSIDE: "producer {producer_id} writes outside its open transaction",
    ABORT_GOES_BACK: "producer {producer_id}: "
    "the abort marker at offset {marker_offset} is not above the last one",
    BEGIN_TOGETHER: "producer {producer_id}: two transactions begin at offset {first_offset}",
}


def first_marked(batches: Any) -> int:
    """Return the first row that is transactional or control, else the number of rows.

    Most segments have none, and this is all that is done with them.
    """
    for i in range(batches.size):
        if batches[i]["attributes"] & (TRANSACTIONAL | CONTROL):
            return i
    return int(batches.size)


def begin(
    state: Any, open_of: Any, at: int, ongoing: Any, producer_id: int, first_offset: int
) -> int:
    """Note the transaction, the producer's slot being `at`; return TAKEN or NO_ROOM.

    `ProducerAppendInfo.appendDataBatch`; a first offset that is ongoing already is replaced there.
    """
    if 2 * state["open"] >= len(open_of) or 2 * state["ongoing"] >= len(ongoing):
        return NO_ROOM
    put(open_of, at, producer_id, first_offset)
    state["open"] += 1
    at = slot_of(ongoing, first_offset)
    if not ongoing[at, USED]:
        put(ongoing, at, first_offset, first_offset)
        state["ongoing"] += 1
    return TAKEN


def end(state: Any, open_of: Any, at: int, ongoing: Any, marker_offset: int, marker: int) -> int:
    """End the transaction of slot `at`; return TAKEN or a failure.

    `TransactionIndex.append` for an abort, then `ProducerStateManager.completeTxn`.
    """
    first_offset = int(open_of[at, OFFSET])
    remove(open_of, at)
    state["open"] -= 1
    state["ended"] = first_offset
    if marker == ABORT:
        if state["aborts"] and marker_offset <= state["last_abort"]:
            return ABORT_GOES_BACK
        state["aborts"] = 1
        state["last_abort"] = marker_offset
    at = slot_of(ongoing, first_offset)
    if not ongoing[at, USED]:
        return BEGIN_TOGETHER
    remove(ongoing, at)
    state["ongoing"] -= 1
    return TAKEN


def append_batches(
    batches: Any, row: int, states: Any, open_of: Any, ongoing: Any
) -> tuple[int, int]:
    """Take `batches` from `row` on in order; return the row where that ends, and why.

    That is (`batches.size`, TAKEN), or a row not taken and NO_ROOM, or one that fails and a key of
    FAILURES. `open_of` has the first offset of each producer's open transaction, `ongoing` the
    first offsets of all; both are tables of `offset_tables`.
    """
    state = states[0]
    if row == 0 and state["open"] == 0:  # later rows are asked for with many open
        row = first_marked(batches)
    for i in range(row, batches.size):
        batch = batches[i]
        marked = batch["attributes"] & (TRANSACTIONAL | CONTROL)
        if batch["producer_id"] < 0:
            continue
        outcome = TAKEN
        producer_id = int(batch["producer_id"])
        at = slot_of(open_of, producer_id)
        if marked & CONTROL:
            marker = batch["control"]
            if open_of[at, USED] and marker in (ABORT, COMMIT):
                outcome = end(state, open_of, at, ongoing, batch["base_offset"], marker)
        elif not open_of[at, USED]:
            if marked:
                first_offset = int(batch["base_offset"])
                outcome = begin(state, open_of, at, ongoing, producer_id, first_offset)
        elif not marked:
            outcome = WRITES_OUTSIDE
        if outcome != TAKEN:
            return i, outcome
    return batches.size, TAKEN


class OpenTransactions:
    """The transactions that are open after the batches seen so far, from the segment's start."""

    def __init__(self) -> None:
        """Start with none: what a producer did in earlier segments is not in this one."""
        self._state = np.zeros(1, TRANSACTION_STATE)
        self._open_of, self._ongoing = new_table(), new_table()

    def append(self, batches: BatchColumns, speed: Speed = plain) -> tuple[int, str] | None:
        """Take `batches` in order; return (position, why) of the first that Kafka fails on."""
        row, outcome = 0, NO_ROOM
        while outcome == NO_ROOM:
            row, outcome = speed(append_batches)(
                batches, row, self._state, self._open_of, self._ongoing
            )
            if outcome == NO_ROOM:
                self._open_of = twice_as_large(self._open_of, speed)
                self._ongoing = twice_as_large(self._ongoing, speed)
        return None if outcome == TAKEN else self._failure(batches[row], outcome)

    def _failure(self, batch: np.void, outcome: int) -> tuple[int, str]:
        why = FAILURES[outcome].format(
            producer_id=batch["producer_id"],
            marker_offset=batch["base_offset"],
            first_offset=self._state[0]["ended"],
        )
        return int(batch["position"]), f"{why}; Kafka fails to load"
