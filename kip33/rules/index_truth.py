"""Check whether an index is true of its log, entry by entry, and how many entries are missing.

A broker's index cannot be compared byte by byte, because restarts, truncations and larger appends
leave no trace in the log. Every correct index has these properties, which are checked here:

    a stair      a batch whose max timestamp is above all earlier ones and above -1
    time entry   (T, o): T is a stair's timestamp; o is that batch's last offset, or the offset of
                 its first record with T (leaders of 0.11 to 3.6). In the kip33 dialect o is the
                 offset after any batch at which T was the max so far
    closing      the last stair has its entry, unless the broker crashed while it was active
    offset entry (o, p): a batch begins at p; o is the last offset of a batch at or after p, and
                 before the next entry's. Before Kafka 2.0 it is the first offset of the batch at p;
                 for a compressed set of v0 or v1, the first offset inside. Sets are not opened: any
                 offset after the previous batch is accepted, because it leads to the same set

`watch_*` process the batches piece by piece and look up the file's entries, so memory depends on
the index, not on the log.

The gaps between the entries decide whether a correct index is sparse. A broker adds an entry to the
`.index` when a batch begins more than `index.interval.bytes` after the last index point. It also
adds one to the `.timeindex` if the max timestamp grew. `IndexGaps` applies that rule along the log,
starts again at each entry of the file, and counts the missing entries in between. A gap is:

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

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kip33.errors import counted
from kip33.formats.batch import CODEC_MASK, NO_TIMESTAMP, BatchColumns
from kip33.formats.crc import java_sum
from kip33.formats.time_index import PIECE_ENTRIES
from kip33.rules.index_entries import DEFAULT_INDEX_INTERVAL_BYTES

Int64s = npt.NDArray[np.int64]
MOST_PROBLEMS_NAMED: Final = 10  # per file

STAIR: Final = np.dtype(
    [
        ("timestamp", np.int64),  # the entry's; its stair is searched
        ("wanted_offset", np.int64),  # the entry's
        ("found", np.int64),  # 1: a batch is the stair
        ("last_offset", np.int64),
        ("first_record_offset", np.int64),
        ("next_offset_seen", np.int64),  # 1: true in the kip33 dialect
    ]
)
WATCH: Final = np.dtype([("max_timestamp", np.int64), ("at", np.int64)])
PLACE: Final = np.dtype(
    [
        ("position", np.int64),  # the entry's
        ("found", np.int64),  # 1: a batch begins there
        ("base_offset", np.int64),
        ("is_set", np.int64),  # 1: compressed v0 or v1, whose first offset is inside
        ("offset_before", np.int64),  # the last offset of the batch before
    ]
)
LAST: Final = np.dtype([("offset", np.int64), ("position", np.int64)])  # position -1: not found

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


class Untrue(NamedTuple):
    """The wrong entries of one file."""

    entries: int
    first: int  # number of the first one, from 0
    problems: tuple[str, ...]  # of the first few
    numbers: Int64s  # of all, except repeats of the last entry
    reasons: dict[int, str]  # by number, for the first `most_named`


class TimeIndexTruth:
    """Checks the entries of one `.timeindex` against the log."""

    def __init__(
        self,
        timestamps: Int64s,
        offsets: Int64s,
        repeats: int = 0,
        *,
        interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    ) -> None:
        """Take the file's entries: timestamps in ms, absolute offsets, in file order.

        `repeats` of the last entry follow, if the file ends in zeros; they are only counted.
        """
        self.gaps = IndexGaps(timestamps.size, interval_bytes, in_gap=False)
        self._timestamps, self._offsets, self._repeats = timestamps, offsets, repeats
        unique, first = np.unique(timestamps, return_index=True)
        self._stairs = np.zeros(unique.size, STAIR)
        self._stairs["timestamp"] = unique
        self._stairs["wanted_offset"] = offsets[first]
        self._watch = np.zeros(1, WATCH)
        self._watch["max_timestamp"] = NO_TIMESTAMP

    def append(self, batches: BatchColumns, speed: Any) -> None:
        """Process the next batches; their `offset_of_max_timestamp` is that of the first record."""
        speed(watch_stairs)(batches, self._watch, self._stairs)
        speed(watch_time_gaps)(batches, self.gaps.state, self._stairs)

    @property
    def max_timestamp(self) -> int:
        """Return the log's max timestamp, NO_TIMESTAMP if it has none."""
        return int(self._watch["max_timestamp"][0])

    def untrue(self, *, next_offset: bool, most_named: int = MOST_PROBLEMS_NAMED) -> Untrue | None:
        """Return the wrong entries, in Kafka's meaning or in that of the kip33 dialect."""
        true = np.zeros(self._timestamps.size, np.bool_)
        for piece in _pieces(true.size):
            stairs = self._stairs_of(piece)
            true[piece] = (stairs["found"] == 1) & self._agrees(stairs, piece, next_offset)
        out_of_order: dict[int, tuple[int, int]] = {}
        if not true.all() or not _in_order(self._timestamps, self._offsets):
            out_of_order = self._drop_out_of_order(true, most_named)
        reasons: dict[int, str] = {}
        faults = np.flatnonzero(~true)  # up to a million if preallocated; a few are named
        for i in faults[:most_named].tolist():
            stair = self._stairs_of(slice(i, i + 1))
            if not stair["found"][0]:
                reasons[i] = "but no batch is the first to reach that"
            elif i not in out_of_order:
                end = stair["last_offset"][0]
                reasons[i] = f"but the batch that reaches it ends at offset {end}"
            else:
                reasons[i] = f"out of order after {out_of_order[i]}"

        def says(i: int) -> str:
            return f"timestamp {self._timestamps[i]} at offset {self._offsets[i]}"

        return _untrue(faults, self._repeats, true.size, reasons, says)

    def other_dialect(self, *, next_offset: bool) -> str | None:
        """Return a line for a file of which every entry is true in the other meaning, else None."""
        if self.untrue(next_offset=not next_offset):
            return None
        other = "recover or live" if next_offset else "kip33"
        return f"every entry is correct in another dialect; is this a file of --dialect {other}?"

    def _stairs_of(self, piece: slice) -> Any:
        return self._stairs[np.searchsorted(self._stairs["timestamp"], self._timestamps[piece])]

    def _agrees(self, stairs: Any, piece: slice, next_offset: bool) -> npt.NDArray[np.bool_]:
        offsets = self._offsets[piece]
        if next_offset:
            agrees = (stairs["next_offset_seen"] == 1) & (stairs["wanted_offset"] == offsets)
        else:
            agrees = (stairs["last_offset"] == offsets) | (stairs["first_record_offset"] == offsets)
        return np.asarray(agrees, np.bool_)

    def _drop_out_of_order(
        self, true: npt.NDArray[np.bool_], most_named: int
    ) -> dict[int, tuple[int, int]]:
        """Clear `true` for entries that are out of order after the true ones before them.

        Return the first few of these with the true entry before each.
        """
        last = NO_TIMESTAMP, -1
        dropped: dict[int, tuple[int, int]] = {}
        for piece in _pieces(true.size):
            for i in (np.flatnonzero(true[piece]) + piece.start).tolist():
                entry = int(self._timestamps[i]), int(self._offsets[i])
                if entry[0] > last[0] and entry[1] >= last[1]:
                    last = entry
                    continue
                true[i] = False
                if len(dropped) < most_named:
                    dropped[i] = last
        return dropped


class OffsetIndexTruth:
    """Checks the entries of one `.index` against the log."""

    def __init__(
        self,
        offsets: Int64s,
        positions: Int64s,
        repeats: int = 0,
        *,
        base_offset: int = 0,
        interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    ) -> None:
        """Take the file's entries: absolute offsets, positions in bytes, in file order.

        `repeats` of the last entry follow, if the file ends in zeros; they are only counted.
        """
        self.gaps = IndexGaps(offsets.size, interval_bytes, in_gap=True)
        self._offsets, self._positions, self._repeats = offsets, positions, repeats
        unique = np.unique(positions)
        self._places = np.zeros(unique.size, PLACE)
        self._places["position"] = unique
        unique = np.unique(offsets)
        self._lasts = np.full(unique.size, -1, LAST)
        self._lasts["offset"] = unique
        self._cursors = np.zeros(3, np.int64)
        self._cursors[2] = base_offset - 1

    def append(self, batches: BatchColumns, speed: Any) -> None:
        """Process the next batches."""
        speed(watch_places)(batches, self._cursors, self._places, self._lasts)
        speed(watch_offset_gaps)(batches, self.gaps.state, self._offsets, self._positions)

    def untrue(self, *, most_named: int = MOST_PROBLEMS_NAMED) -> Untrue | None:
        """Return the wrong entries."""
        places = self._places[np.searchsorted(self._places["position"], self._positions)]
        lasts = self._lasts[np.searchsorted(self._lasts["offset"], self._offsets)]
        inside = (places["offset_before"] < self._offsets) & (self._offsets < places["base_offset"])
        begins = (places["base_offset"] == self._offsets) | ((places["is_set"] == 1) & inside)
        true = (places["found"] == 1) & (begins | (lasts["position"] >= self._positions))
        ends = np.where(begins, self._positions, lasts["position"])  # of the append, at least
        in_order = np.ones(true.size, np.bool_)
        in_order[1:] = (np.diff(self._offsets) > 0) & (
            self._positions[1:] > np.maximum(self._positions[:-1], ends[:-1])
        )
        faults = np.flatnonzero(~(true & in_order))
        reasons: dict[int, str] = {}
        for i in faults[:most_named].tolist():
            if not places["found"][i]:
                reasons[i] = "but no batch begins there"
            elif not true[i]:
                reasons[i] = "but no batch at or after it ends with it"
            else:
                before = int(self._offsets[i - 1]), int(self._positions[i - 1])
                reasons[i] = f"out of order after {before}"

        def says(i: int) -> str:
            return f"offset {self._offsets[i]} at byte {self._positions[i]}"

        return _untrue(faults, self._repeats, true.size, reasons, says)


def _in_order(timestamps: Int64s, offsets: Int64s) -> bool:
    return bool((timestamps[1:] > timestamps[:-1]).all() and (offsets[1:] >= offsets[:-1]).all())


def _pieces(count: int) -> Iterator[slice]:
    """Yield slices over the entries, to bound the memory of whatever is computed from them."""
    for start in range(0, count, PIECE_ENTRIES):
        yield slice(start, min(start + PIECE_ENTRIES, count))


def _untrue(
    faults: Any,
    repeats: int,
    entries: int,
    reasons: dict[int, str],
    says: Callable[[int], str],
) -> Untrue | None:
    """Return the wrong entries of `entries`; repeats of the last one are always out of order."""
    if not faults.size and not repeats:
        return None
    named = faults[:MOST_PROBLEMS_NAMED].tolist()
    problems = [f"entry {i}: {says(i)}, {reasons[i]}" for i in named]
    first = int(faults[0]) if faults.size else entries
    if len(problems) < MOST_PROBLEMS_NAMED and repeats:
        problems.append(f"entry {entries}: repeats the one before it")
    return Untrue(len(faults) + repeats, first, tuple(problems), faults, reasons)


def watch_stairs(batches: Any, watches: Any, stairs: Any) -> None:
    """Fill `stairs`, sorted by timestamp without repeats, from the next batches."""
    watch = watches[0]
    at = watch["at"]
    for i in range(batches.size):
        batch = batches[i]
        timestamp = batch["max_timestamp"]
        if timestamp > watch["max_timestamp"]:
            watch["max_timestamp"] = timestamp
            while at < stairs.size and stairs[at]["timestamp"] < timestamp:
                at += 1
            if at < stairs.size and stairs[at]["timestamp"] == timestamp:
                stairs[at]["found"] = 1
                stairs[at]["last_offset"] = batch["last_offset"]
                stairs[at]["first_record_offset"] = batch["offset_of_max_timestamp"]
        at_stair = at < stairs.size and stairs[at]["timestamp"] == watch["max_timestamp"]
        if at_stair and stairs[at]["wanted_offset"] == java_sum(batch["last_offset"], 1):
            stairs[at]["next_offset_seen"] = 1
    watch["at"] = at


def watch_places(batches: Any, cursors: Any, places: Any, lasts: Any) -> None:
    """Fill `places` (sorted by position) and `lasts` (sorted by offset) from the batches."""
    at = cursors[0]
    last = cursors[1]
    offset_before = cursors[2]
    for i in range(batches.size):
        batch = batches[i]
        while at < places.size and places[at]["position"] < batch["position"]:
            at += 1
        if at < places.size and places[at]["position"] == batch["position"]:
            places[at]["found"] = 1
            places[at]["base_offset"] = batch["base_offset"]
            places[at]["offset_before"] = offset_before
            if batch["magic"] < 2 and batch["attributes"] & CODEC_MASK:
                places[at]["is_set"] = 1
        while last < lasts.size and lasts[last]["offset"] < batch["last_offset"]:
            last += 1
        if last < lasts.size and lasts[last]["offset"] == batch["last_offset"]:
            lasts[last]["position"] = batch["position"]
        offset_before = batch["last_offset"]
    cursors[0] = at
    cursors[1] = last
    cursors[2] = offset_before


def _end_gap(state: Any, position: int) -> None:
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


def _count_missing(state: Any, position: int) -> None:
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
                _end_gap(state, position)
            state["in_gap"] = 0
            state["point"] = position
            state["append_start"] = position
            state["wanted_offset"] = offsets[number]
            number += 1
        state["next"] = number
        _count_missing(state, position)
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
                    _end_gap(state, position)
            elif state["in_gap"] == 0:
                state["in_gap"] = 1
                state["gap_start"] = position
                state["point"] = position
        _count_missing(state, position)
        state["end"] = position + batch["size_bytes"]


class _Gap(NamedTuple):
    """A stretch of log without an entry."""

    size_bytes: int
    start: int  # its first byte
    missing: int  # minimum of entries missing in the file
    interval_bytes: int

    def __str__(self) -> str:
        return (
            f"at least {counted(self.missing, 'entry')} missing: {self.size_bytes} bytes of "
            f"the log from byte {self.start} on have no entry, although "
            f"index.interval.bytes is {self.interval_bytes}"
        )


class IndexGaps:
    """The gaps of one index, in the `state` of `watch_offset_gaps` or `watch_time_gaps`."""

    def __init__(self, entries: int, interval_bytes: int, *, in_gap: bool) -> None:
        """Start before the first batch, with the number of entries of the file."""
        self._entries = entries
        self.state = np.zeros(1, GAPS)
        self.state["interval_bytes"] = interval_bytes
        self.state["in_gap"] = in_gap
        self.state["max_timestamp"] = NO_TIMESTAMP

    def close(self) -> None:
        """End the last gap, at the end of the last batch. A second call changes nothing."""
        if self.state[0]["in_gap"]:
            _end_gap(self.state[0], self.state[0]["end"])

    @property
    def largest_bytes(self) -> int:
        """Return the size of the largest gap, 0 without gaps."""
        self.close()
        return int(self.state["largest"][0])

    @property
    def largest_append_bytes(self) -> int:
        """Return the size of the largest append of several batches, 0 if no entry names one."""
        return int(self.state["largest_append"][0])

    def sparse(self, unseen_append_bytes: int) -> _Gap | None:
        """Return the gap that makes the index sparse, None if it is not sparse.

        Appends without an entry, of `unseen_append_bytes` in total, explain a gap.
        """
        self.close()
        state = self.state[0]
        missing, interval = int(state["missing"]), int(state["interval_bytes"])
        explained = interval + unseen_append_bytes if unseen_append_bytes else 0
        if state["largest_with_two"] > explained:
            size, start = state["largest_with_two"], state["largest_with_two_start"]
            return _Gap(int(size), int(start), missing, interval)
        if not unseen_append_bytes and missing >= 3 and 2 * missing > self._entries:
            return _Gap(int(state["largest"]), int(state["largest_start"]), missing, interval)
        return None
