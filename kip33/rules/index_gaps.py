"""The gaps between the entries of an index: they decide whether a correct index is sparse.

A broker adds an entry to the `.index` when a batch begins more than `index.interval.bytes` after
the last index point. It also adds one to the `.timeindex` if the max timestamp grew. The functions
below apply that rule along the log, start again at each entry of the file, and count the missing
entries in between. A gap is:

    .index       the bytes from the end of an entry's append, or from the log's start, to the
                 position of the next entry, or to the log's end
    .timeindex   the bytes from the first batch with a later timestamp than an entry, to the batch
                 of the next entry

A restart of the broker begins a new interval, so at most one entry is missing after it. An append
of several batches gets at most one entry: if an entry names such an append, the batches inside it
get none. An append without an entry cannot be recognized. So an index is sparse if

    two entries in a row are missing, in a gap that is not explained by one append of the size of
    the largest one that the `.index` names (for a `.timeindex`: by two such appends), or
    three entries are missing, and more than half as many as are there (files without such appends)

Lookups in a sparse index give right answers, but read more than two intervals of the log.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from kip33.formats.batch import NO_TIMESTAMP, BatchColumns

GAPS: Final = np.dtype(
    [
        ("interval_bytes", np.int64),
        ("next", np.int64),  # number of the next entry in the file
        ("in_gap", np.int64),  # 1: between entries
        ("gap_start", np.int64),
        ("point", np.int64),  # position of the last index point, present or missing
        ("max_timestamp", np.int64),
        ("wanted_offset", np.int64),  # the last offset of the append that an entry names
        ("append_start", np.int64),
        ("end", np.int64),  # of the last batch
        ("in_row", np.int64),  # missing in this gap
        ("missing", np.int64),  # in all of the log
        ("largest", np.int64),
        ("largest_start", np.int64),
        ("largest_with_two", np.int64),  # of the gaps in which two or more are missing
        ("largest_with_two_start", np.int64),
        ("largest_append", np.int64),  # of several batches; 0: no such append
    ]
)


def end_gap(state: Any, position: int) -> None:
    """Record the gap that ends at a position."""
    length = position - state["gap_start"]
    if length > state["largest"]:
        state["largest"] = length
        state["largest_start"] = state["gap_start"]
    if state["in_row"] >= 2 and length > state["largest_with_two"]:
        state["largest_with_two"] = length
        state["largest_with_two_start"] = state["gap_start"]
    state["in_gap"] = 0
    state["in_row"] = 0


def count_missing(state: Any, position: int) -> None:
    """Count a missing entry if a broker would have written one for the batch at `position`."""
    if state["in_gap"] == 1 and position - state["point"] > state["interval_bytes"]:
        state["in_row"] += 1
        state["missing"] += 1
        state["point"] = position


def watch_offset_gaps(batches: Any, states: Any, offsets: Any, positions: Any) -> None:
    """Process the next batches; `offsets` and `positions` are the entries of a correct `.index`."""
    state = states[0]
    for i in range(batches.size):
        batch = batches[i]
        position = batch["position"]
        last_offset = batch["last_offset"]
        number = state["next"]
        while number < positions.size and positions[number] < position:  # only in a wrong index
            number += 1
        if number < positions.size and positions[number] == position:
            if state["in_gap"] == 1:
                end_gap(state, position)
            state["in_gap"] = 0
            state["point"] = position
            state["append_start"] = position
            state["wanted_offset"] = offsets[number]
            number += 1
        state["next"] = number
        count_missing(state, position)
        end = position + batch["size_bytes"]
        state["end"] = end
        if state["in_gap"] == 0 and last_offset >= state["wanted_offset"]:
            state["in_gap"] = 1
            state["gap_start"] = end
            if position != state["append_start"]:
                size = end - state["append_start"]
                state["largest_append"] = max(state["largest_append"], size)


def watch_time_gaps(batches: Any, states: Any, stairs: Any) -> None:
    """Process the next batches; `stairs` has the file's timestamps, sorted, without repeats."""
    state = states[0]
    for i in range(batches.size):
        batch = batches[i]
        position = batch["position"]
        timestamp = batch["max_timestamp"]
        if timestamp > state["max_timestamp"]:
            state["max_timestamp"] = timestamp
            number = state["next"]
            while number < stairs.size and stairs[number]["timestamp"] < timestamp:
                number += 1
            state["next"] = number
            if number < stairs.size and stairs[number]["timestamp"] == timestamp:
                if state["in_gap"] == 1:
                    end_gap(state, position)
            elif state["in_gap"] == 0:
                state["in_gap"] = 1
                state["gap_start"] = position
                state["point"] = position
        count_missing(state, position)
        state["end"] = position + batch["size_bytes"]


class Gap(NamedTuple):
    """A stretch of log without an entry."""

    size_bytes: int
    start: int  # its first byte
    missing: int  # minimum of entries missing in the file
    interval_bytes: int

    def __str__(self) -> str:
        """Return a description."""
        return (
            f"at least {self.missing} entries are missing: {self.size_bytes} bytes of "
            f"the log from byte {self.start} on have no entry, although "
            f"index.interval.bytes is {self.interval_bytes}"
        )


class IndexGaps:
    """Collects the gaps of one index from the batches of its log."""

    def __init__(self, entries: int, interval_bytes: int, *, in_gap: bool) -> None:
        """Start before the first batch, with the number of entries of the file."""
        self._entries = entries
        self._state = np.zeros(1, GAPS)
        self._state["interval_bytes"] = interval_bytes
        self._state["in_gap"] = in_gap
        self._state["max_timestamp"] = NO_TIMESTAMP

    def watch_offsets(
        self, batches: BatchColumns, speed: Any, offsets: Any, positions: Any
    ) -> None:
        """Process the next batches for a `.index`."""
        speed(watch_offset_gaps)(batches, self._state, offsets, positions)

    def watch_times(self, batches: BatchColumns, speed: Any, stairs: Any) -> None:
        """Process the next batches for a `.timeindex`."""
        speed(watch_time_gaps)(batches, self._state, stairs)

    def close(self) -> None:
        """End the last gap, at the end of the last batch. A second call changes nothing."""
        if self._state[0]["in_gap"]:
            end_gap(self._state[0], self._state[0]["end"])

    @property
    def largest_bytes(self) -> int:
        """Return the size of the largest gap, 0 without gaps."""
        self.close()
        return int(self._state["largest"][0])

    @property
    def largest_append_bytes(self) -> int:
        """Return the size of the largest append of several batches, 0 if no entry names one."""
        return int(self._state["largest_append"][0])

    def sparse(self, unseen_append_bytes: int) -> Gap | None:
        """Return the gap that makes the index sparse, None if it is not sparse.

        Appends without an entry, of `unseen_append_bytes` in total, explain a gap.
        """
        self.close()
        state = self._state[0]
        missing, interval = int(state["missing"]), int(state["interval_bytes"])
        explained = interval + unseen_append_bytes if unseen_append_bytes else 0
        if state["largest_with_two"] > explained:
            size, start = state["largest_with_two"], state["largest_with_two_start"]
            return Gap(int(size), int(start), missing, interval)
        if not unseen_append_bytes and missing >= 3 and 2 * missing > self._entries:
            return Gap(int(state["largest"]), int(state["largest_start"]), missing, interval)
        return None
