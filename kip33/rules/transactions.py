"""The loop over the transactions of a segment; plain Python that is also compiled.

`LogSegment.recover` passes every batch of a producer to a `ProducerStateManager`. An ABORT marker
that ends a transaction gives an entry of the `.txnindex`; some batches make the log fail to load.
`rules.open_transactions` has the tables between two calls of the loop.

Kafka 4.1: `ProducerAppendInfo`, `ProducerStateManager.completeTxn`, `TransactionIndex.append`.
"""

from typing import Any, Final

import numpy as np

from kip33.formats.batch import CONTROL, TRANSACTIONAL
from kip33.formats.crc import java_sum
from kip33.formats.walk import ABORT, COMMIT
from kip33.rules.hash_table import OFFSET, USED, put, remove, slot_of
from kip33.rules.offset_heap import pop, push

TRANSACTION_STATE: Final = np.dtype(
    [
        ("open", np.int64),  # producers with an open transaction
        ("ongoing", np.int64),  # transactions by first offset, as Kafka keys them
        ("waiting", np.int64),  # first offsets in the heap, including some of ended transactions
        ("enders", np.int64),  # producers that ended a transaction here, or may have
        ("ended", np.int64),  # first offset of the transaction that ended last
        ("aborts", np.int64),  # 1 once there was one
        ("last_abort", np.int64),  # offset of its marker
        ("begun", np.int64),  # 1 once a transaction began
        ("lowest", np.int64),  # first offset of all that began here
        ("rows", np.int64),  # abort rows of this call
    ]
)

# The columns of an abort row.
PRODUCER_ID, FIRST_OFFSET, LAST_OFFSET, LAST_STABLE_OFFSET, KNOWN_BY = range(5)
ABORT_COLUMNS: Final = 5
BEGAN_HERE: Final = 1  # KNOWN_BY: the producer's transaction, or its continuation, began here
FIRST_END: Final = 2  # KNOWN_BY: the producer's first marker here may end an earlier transaction

# How `append_batches` ended: all rows processed, larger tables needed, or a failure.
TAKEN: Final = 0
NO_ROOM: Final = 1
WRITES_OUTSIDE: Final = 2
ABORT_GOES_BACK: Final = 3
BEGIN_TOGETHER: Final = 4


def first_marked(batches: Any) -> int:
    """Return the first row that is transactional or control, else the number of rows.

    Most segments have no such row, and then nothing else is done with them.
    """
    for i in range(batches.size):
        if batches[i]["attributes"] & (TRANSACTIONAL | CONTROL):
            return i
    return int(batches.size)


def begin(
    state: Any,
    open_of: Any,
    at: int,
    ongoing: Any,
    heap: Any,
    producer_id: int,
    first_offset: int,
) -> int:
    """Record the transaction of the producer in slot `at`; return TAKEN or NO_ROOM.

    `ProducerAppendInfo.appendDataBatch`; Kafka replaces a first offset that is already ongoing.
    """
    if 2 * state["open"] >= len(open_of) or 2 * state["ongoing"] >= len(ongoing):
        return NO_ROOM
    if state["waiting"] >= len(heap):
        return NO_ROOM
    put(open_of, at, producer_id, first_offset)
    state["open"] += 1
    at = slot_of(ongoing, first_offset)
    if not ongoing[at, USED]:
        state["ongoing"] += 1
    put(ongoing, at, first_offset, producer_id)
    push(heap, int(state["waiting"]), first_offset)
    state["waiting"] += 1
    if not state["begun"] or first_offset < state["lowest"]:
        state["lowest"] = first_offset
    state["begun"] = 1
    return TAKEN


def last_stable_offset(
    state: Any, ongoing: Any, heap: Any, producer_id: int, marker_offset: int
) -> int:
    """Return the first offset of the oldest ongoing transaction of another producer, else the next.

    `ProducerStateManager.lastStableOffset`. Offsets in the heap of ended transactions and of the
    producer's own transaction, which ends now, are dropped.
    """
    while state["waiting"] > 0:
        first_offset = int(heap[0])
        at = slot_of(ongoing, first_offset)
        if ongoing[at, USED] and ongoing[at, OFFSET] != producer_id:
            return first_offset
        pop(heap, int(state["waiting"]))
        state["waiting"] -= 1
    return java_sum(marker_offset, 1)


def end(
    state: Any,
    open_of: Any,
    at: int,
    ongoing: Any,
    heap: Any,
    enders: Any,
    aborts: Any,
    batch: Any,
) -> int:
    """Process a marker of the producer in slot `at`; return TAKEN, NO_ROOM or a failure.

    `TransactionIndex.append` for an abort, then `ProducerStateManager.completeTxn`. A marker
    without a transaction in this segment is recorded if it may end one of an earlier segment.
    """
    if 2 * state["enders"] >= len(enders):
        return NO_ROOM
    producer_id, marker_offset = int(batch["producer_id"]), int(batch["base_offset"])
    known_by = BEGAN_HERE if open_of[at, USED] else 0
    first_end = slot_of(enders, producer_id)
    if not enders[first_end, USED]:
        put(enders, first_end, producer_id, marker_offset)
        state["enders"] += 1
        known_by |= FIRST_END
    first_offset = int(open_of[at, OFFSET]) if known_by & BEGAN_HERE else marker_offset
    if batch["control"] == ABORT and known_by:
        row = aborts[state["rows"]]
        row[PRODUCER_ID] = producer_id
        row[FIRST_OFFSET] = first_offset
        row[LAST_OFFSET] = marker_offset
        row[LAST_STABLE_OFFSET] = last_stable_offset(
            state, ongoing, heap, producer_id, marker_offset
        )
        row[KNOWN_BY] = known_by
        state["rows"] += 1
    if not known_by & BEGAN_HERE:
        return TAKEN
    return complete(state, open_of, at, ongoing, first_offset, marker_offset, batch["control"])


def complete(
    state: Any,
    open_of: Any,
    at: int,
    ongoing: Any,
    first_offset: int,
    marker_offset: int,
    marker: int,
) -> int:
    """End the transaction of slot `at`; return TAKEN or a failure."""
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
    batches: Any,
    row: int,
    states: Any,
    open_of: Any,
    ongoing: Any,
    heap: Any,
    enders: Any,
    aborts: Any,
) -> tuple[int, int]:
    """Process `batches` from `row` in order; return the row where this ends, and why.

    That is (`batches.size`, TAKEN), or a row that was not processed and NO_ROOM, or a row that
    fails and a key of FAILURES. These are tables of `hash_table`: `open_of` has the first offset of
    each producer's open transaction, `ongoing` the producer of each first offset, `enders` the
    offset of each producer's first marker. `heap` has the first offsets of all ongoing
    transactions. `aborts` gets the abort rows and has as many rows as `batches`.
    """
    state = states[0]
    if row == 0 and state["open"] == 0:  # called for later rows when many are open
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
            if marker in (ABORT, COMMIT):
                outcome = end(state, open_of, at, ongoing, heap, enders, aborts, batch)
        elif not open_of[at, USED]:
            if marked:
                first_offset = int(batch["base_offset"])
                outcome = begin(state, open_of, at, ongoing, heap, producer_id, first_offset)
        elif not marked:
            outcome = WRITES_OUTSIDE
        if outcome != TAKEN:
            return i, outcome
    return batches.size, TAKEN
