"""The transactions of a segment, as far as the segment alone shows them.

`LogSegment.recover` passes every batch of a producer to a `ProducerStateManager`. An ABORT marker
that ends a transaction gives an entry of the `.txnindex`; some batches make the log fail to load.
A segment is scanned without knowing which transactions are open at its start. So a scan gives a
`TransactionSummary`: the entries of the `.txnindex` as if no transaction were open, and the data
that `rules.transaction_index` needs to complete them when the previous segment's transactions are
known.

The loop, its hash table and its heap are plain Python that is also compiled. A table is an array of
slots (used, key, offset). Their number is a power of two, and at most half of them are used.
Collisions use linear probing, deletion uses backward shift. Only `new_table` allocates memory: the
loop counts the keys it adds and stops with NO_ROOM when half the slots are used. The heap has the
smallest offset at 0; offsets in growing order, as in a log, are pushed without a swap.

Kafka 4.1: `ProducerAppendInfo`, `ProducerStateManager.completeTxn`, `TransactionIndex.append`.
"""

import json
from typing import Any, Final, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from kip33.formats.batch import CONTROL, TRANSACTIONAL, BatchColumns
from kip33.formats.crc import java_sum
from kip33.formats.native import Speed, plain
from kip33.formats.walk import ABORT, COMMIT

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

Table: TypeAlias = npt.NDArray[np.int64]

USED: Final = 0  # the columns; 1 in a used slot, because any int64 may be a key
SLOT_KEY: Final = 1
OFFSET: Final = 2
FEWEST_SLOTS: Final = 64  # 1.5 KiB: few segments have more than 32 transactions open at once

# 2^64 / golden ratio, odd: spreads neighbouring keys. The top bit is cleared: it changes no home
# below 2^31 and would make numba's product a float.
_MULTIPLIER: Final = 0x1E3779B97F4A7C15
_HEAP_OFFSETS: Final = 1024

# How `append_batches` ended: all rows processed, larger tables needed, or a failure.
TAKEN: Final = 0
NO_ROOM: Final = 1
WRITES_OUTSIDE: Final = 2
ABORT_GOES_BACK: Final = 3
BEGIN_TOGETHER: Final = 4

_FAILURES: Final = {
    WRITES_OUTSIDE: "producer {producer_id} writes outside its open transaction",
    ABORT_GOES_BACK: "producer {producer_id}: "
    "the abort marker at offset {marker_offset} is not above the last one",
    BEGIN_TOGETHER: "producer {producer_id}: two transactions begin at offset {first_offset}",
}


class TransactionSummary(NamedTuple):
    """The transactions of one segment.

    `aborts` has rows of ABORT_COLUMNS, in the log's order, as if no transaction were open at the
    start.
    """

    aborts: npt.NDArray[np.int64]
    first_ends: dict[int, int]  # offset of each producer's first marker
    open_at_end: dict[int, int]  # first offset of those that began here, by producer
    lowest: int | None  # first offset of all that began here

    def to_json(self) -> str:
        """Return it as text, for `from_json`."""
        pairs = [[*of_producer.items()] for of_producer in (self.first_ends, self.open_at_end)]
        return json.dumps([self.aborts.tolist(), *pairs, self.lowest])

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the summary from the text of `to_json`."""
        aborts, first_ends, open_at_end, lowest = json.loads(text)
        rows = np.array(aborts, np.int64).reshape(-1, ABORT_COLUMNS)
        return cls(rows, dict(first_ends), dict(open_at_end), lowest)

    @property
    def changes_nothing(self) -> bool:
        """Return whether no transaction begins or ends in this segment."""
        return not self.first_ends and not self.open_at_end


class OpenTransactions:
    """The transactions that are open after the batches seen so far, from the segment's start."""

    def __init__(self) -> None:
        """Start without open transactions: those of earlier segments are unknown here."""
        self._state = np.zeros(1, TRANSACTION_STATE)
        self._open_of, self._ongoing, self._enders = new_table(), new_table(), new_table()
        self._heap = np.empty(_HEAP_OFFSETS, np.int64)
        self._rows = np.empty((0, ABORT_COLUMNS), np.int64)
        self._aborts: list[npt.NDArray[np.int64]] = []

    def append(self, batches: BatchColumns, speed: Speed = plain) -> tuple[int, str] | None:
        """Process `batches` in order; return (position, reason) of the first that Kafka refuses."""
        if len(self._rows) < len(batches):
            self._rows = np.empty((len(batches), ABORT_COLUMNS), np.int64)
        self._state["rows"] = 0
        row, outcome = 0, NO_ROOM
        while outcome == NO_ROOM:
            row, outcome = speed(append_batches)(
                batches,
                row,
                self._state,
                self._open_of,
                self._ongoing,
                self._heap,
                self._enders,
                self._rows,
            )
            if outcome == NO_ROOM:
                self._make_room(speed)
        if self._state["rows"][0]:
            self._aborts.append(self._rows[: self._state["rows"][0]].copy())
        return None if outcome == TAKEN else self._failure(batches[row], outcome)

    def summary(self) -> TransactionSummary:
        """Return the summary of the batches so far."""
        state = self._state[0]
        if not state["begun"] and not state["enders"]:
            return NO_TRANSACTIONS
        return TransactionSummary(
            np.concatenate(self._aborts) if self._aborts else NO_TRANSACTIONS.aborts,
            _as_dict(self._enders),
            _as_dict(self._open_of),
            int(state["lowest"]) if state["begun"] else None,
        )

    def _make_room(self, speed: Speed) -> None:
        state = self._state[0]
        if 2 * state["open"] >= len(self._open_of):
            self._open_of = twice_as_large(self._open_of, speed)
        if 2 * state["ongoing"] >= len(self._ongoing):
            self._ongoing = twice_as_large(self._ongoing, speed)
        if 2 * state["enders"] >= len(self._enders):
            self._enders = twice_as_large(self._enders, speed)
        if state["waiting"] >= len(self._heap):  # drop ended transactions
            ongoing = np.sort(self._ongoing[self._ongoing[:, USED] == 1, SLOT_KEY])
            self._heap = np.empty(max(2 * len(ongoing), _HEAP_OFFSETS), np.int64)
            self._heap[: len(ongoing)] = ongoing
            self._state["waiting"] = len(ongoing)

    def _failure(self, batch: np.void, outcome: int) -> tuple[int, str]:
        why = _FAILURES[outcome].format(
            producer_id=batch["producer_id"],
            marker_offset=batch["base_offset"],
            first_offset=self._state[0]["ended"],
        )
        return int(batch["position"]), f"{why}; Kafka fails to load"


def _as_dict(table: Table) -> dict[int, int]:
    used = table[table[:, USED] == 1]
    return dict(zip(used[:, SLOT_KEY].tolist(), used[:, OFFSET].tolist(), strict=True))


NO_TRANSACTIONS: Final = TransactionSummary(np.empty((0, ABORT_COLUMNS), np.int64), {}, {}, None)


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
    fails and a key of `_FAILURES`. These are hash tables: `open_of` has the first offset of
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


def new_table(slots: int = FEWEST_SLOTS) -> Table:
    """Return an empty table of `slots` slots, a power of two."""
    return np.zeros((slots, 3), np.int64)


def twice_as_large(table: Table, speed: Speed) -> Table:
    """Return a table with twice the slots and all keys of `table`."""
    larger = new_table(2 * len(table))
    speed(put_all)(table, larger)
    return larger


def home_of(key: int, slots: int) -> int:
    """Return the home slot of `key`; `slots` is a power of two.

    Bits 32 and up of a product depend on all lower bits, so the key's upper half is first combined
    with its lower half. These bits are the same whether or not the product wraps at 64 bits.
    """
    return ((key ^ (key >> 32)) * _MULTIPLIER >> 32) & (slots - 1)


def slot_of(table: Any, key: int) -> int:
    """Return the slot of `key`, or the unused slot where `put` may put it."""
    at = home_of(key, len(table))
    while table[at, USED] and table[at, SLOT_KEY] != key:
        at = (at + 1) & (len(table) - 1)
    return at


def put(table: Any, at: int, key: int, offset: int) -> None:
    """Add `key`, which the table does not have, at its `slot_of`."""
    table[at, USED] = 1
    table[at, SLOT_KEY] = key
    table[at, OFFSET] = offset


def remove(table: Any, at: int) -> None:
    """Remove the key in slot `at`, which is used.

    Every later key, up to the next unused slot, moves into the free slot unless its home is after
    it. So a search never stops at a free slot before it reaches its key.
    """
    hole = at
    at = (at + 1) & (len(table) - 1)
    while table[at, USED]:
        home = home_of(int(table[at, SLOT_KEY]), len(table))
        if (at - home) & (len(table) - 1) >= (at - hole) & (len(table) - 1):
            put(table, hole, table[at, SLOT_KEY], table[at, OFFSET])
            hole = at
        at = (at + 1) & (len(table) - 1)
    table[hole, USED] = 0


def put_all(table: Any, larger: Any) -> None:
    """Copy all keys of `table` to `larger`, which is empty."""
    for i in range(len(table)):
        if table[i, USED]:
            key = int(table[i, SLOT_KEY])
            put(larger, slot_of(larger, key), key, table[i, OFFSET])


def push(heap: Any, size: int, offset: int) -> None:
    """Add `offset` to the `size` offsets of `heap`, which has room."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if heap[parent] <= offset:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = offset


def pop(heap: Any, size: int) -> None:
    """Remove the smallest of the `size` offsets of `heap`; `size` is at least 1."""
    size -= 1
    last = heap[size]
    at = 0
    child = 1
    while child < size:
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= last:
            break
        heap[at] = heap[child]
        at = child
        child = 2 * at + 1
    heap[at] = last
