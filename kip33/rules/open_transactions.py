"""The transactions that are open while a segment is scanned: the tables, and what they give."""

from typing import Final

import numpy as np
import numpy.typing as npt

from kip33.formats.batch import BatchColumns
from kip33.formats.native import Speed, plain
from kip33.rules.hash_table import OFFSET, SLOT_KEY, USED, Table, new_table, twice_as_large
from kip33.rules.transaction_summary import NO_TRANSACTIONS, TransactionSummary
from kip33.rules.transactions import (
    ABORT_COLUMNS,
    ABORT_GOES_BACK,
    BEGIN_TOGETHER,
    NO_ROOM,
    TAKEN,
    TRANSACTION_STATE,
    WRITES_OUTSIDE,
    append_batches,
)

HEAP_OFFSETS: Final = 1024
FAILURES: Final = {
    WRITES_OUTSIDE: "producer {producer_id} writes outside its open transaction",
    ABORT_GOES_BACK: "producer {producer_id}: "
    "the abort marker at offset {marker_offset} is not above the last one",
    BEGIN_TOGETHER: "producer {producer_id}: two transactions begin at offset {first_offset}",
}


class OpenTransactions:
    """The transactions that are open after the batches seen so far, from the segment's start."""

    def __init__(self) -> None:
        """Start without open transactions: those of earlier segments are unknown here."""
        self._state = np.zeros(1, TRANSACTION_STATE)
        self._open_of, self._ongoing, self._enders = new_table(), new_table(), new_table()
        self._heap = np.empty(HEAP_OFFSETS, np.int64)
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
            self._heap = np.empty(max(2 * len(ongoing), HEAP_OFFSETS), np.int64)
            self._heap[: len(ongoing)] = ongoing
            self._state["waiting"] = len(ongoing)

    def _failure(self, batch: np.void, outcome: int) -> tuple[int, str]:
        why = FAILURES[outcome].format(
            producer_id=batch["producer_id"],
            marker_offset=batch["base_offset"],
            first_offset=self._state[0]["ended"],
        )
        return int(batch["position"]), f"{why}; Kafka fails to load"


def _as_dict(table: Table) -> dict[int, int]:
    used = table[table[:, USED] == 1]
    return dict(zip(used[:, SLOT_KEY].tolist(), used[:, OFFSET].tolist(), strict=True))
