"""KIP-33's first rule: which entries the two indexes of a segment get.

`append_batches` is the loop of `LogSegment.recover` (kafka-storage 4.1; the same time index since
0.10.1): after more than `index.interval.bytes` of log, the current batch gets an entry in the
offset index. The max timestamp so far then gets an entry in the time index if it grew.
`close_index` adds the last entry of a cleanly closed segment. A dialect only says which offset the
timestamp gets.

The functions work on columns of `formats.batch.BATCH`, piece by piece, with an ENTRY_STATE.
"""

from functools import cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from kip33.formats.batch import MAX_INT32, NO_TIMESTAMP, BatchColumns
from kip33.formats.crc import java_sum
from kip33.formats.time_index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES

DialectName: TypeAlias = Literal["recover", "live", "kip33"]
"""The names of DIALECTS."""

DEFAULT_INDEX_INTERVAL_BYTES: Final = 4096
DEFAULT_SEGMENT_INDEX_BYTES: Final = 10_485_760


class Dialect(NamedTuple):
    """Which offset a time index entry carries.

    `first_record`: the offset of the first record with the batch's max timestamp, if the batch is
    uncompressed, CreateTime and v2. In all other cases the batch's last offset.
    `next_offset`: instead the offset after the batch at which the entry is inserted.
    `written_by_brokers`: a release of Kafka writes such files, so brokers read them correctly.
    """

    name: str
    first_record: bool = False
    next_offset: bool = False
    written_by_brokers: bool = True

    def recorded_offsets(self, batches: BatchColumns, topic: str) -> npt.NDArray[np.int64]:
        """Return each batch's offset of max timestamp as this dialect records it.

        `__cluster_metadata` is written by Raft, without the validator that read the records.
        """
        if self.first_record and topic != "__cluster_metadata":
            return batches["offset_of_max_timestamp"]
        return batches["last_offset"]


RECOVER: Final = Dialect("recover")
LIVE: Final = Dialect("live", first_record=True)  # LogValidator of 0.11 to 3.6
# D1: the KIP's text, "the next offset"
KIP33: Final = Dialect("kip33", next_offset=True, written_by_brokers=False)
DIALECTS: Final = {dialect.name: dialect for dialect in (RECOVER, LIVE, KIP33)}

ENTRY_STATE: Final = np.dtype(
    [
        ("base_offset", np.int64),
        ("interval_bytes", np.int64),
        ("time_slots", np.int64),
        ("offset_slots", np.int64),
        ("next_offset", np.int64),  # 1 in a dialect that records it
        ("last_offset", np.int64),  # of the last batch taken
        ("max_timestamp", np.int64),
        ("offset_of_max", np.int64),
        ("last_indexed_position", np.int64),
        ("time_entries", np.int64),
        ("last_entry_timestamp", np.int64),
        ("last_entry_offset", np.int64),
        ("offset_entries", np.int64),
        ("last_index_offset", np.int64),
        ("refusal", np.int64),
        ("refused_position", np.int64),
    ]
)
BASE_OFFSETS: Final = (
    *("base_offset", "last_offset", "offset_of_max", "last_entry_offset", "last_index_offset"),
)

# Why Kafka writes no index: the refusal of a state.
ACCEPTED: Final = 0
OFFSET_BELOW_BASE: Final = 1
OFFSET_BEYOND_INT32: Final = 2
OFFSET_INDEX_FULL: Final = 3
OFFSETS_GO_BACK: Final = 4
TIME_INDEX_FULL: Final = 5
TIME_OFFSETS_GO_BACK: Final = 6

REFUSALS: Final = {
    OFFSET_BELOW_BASE: "its last offset is below the segment's base offset; Kafka fails to load",
    OFFSET_BEYOND_INT32: "its last offset is 2^31 or more above the base offset; "
    "Kafka splits the segment or fails to load",
    OFFSET_INDEX_FULL: "the offset index is full (segment.index.bytes); Kafka fails to load",
    OFFSETS_GO_BACK: "its last offset is not above the last indexed one; Kafka empties the segment",
    TIME_INDEX_FULL: "the time index is full (segment.index.bytes); Kafka fails to load",
    TIME_OFFSETS_GO_BACK: "the max timestamp's offset is below the last entry's; "
    "Kafka empties the segment",
}


def new_state(
    dialect: Dialect, *, base_offset: int, interval_bytes: int, segment_index_bytes: int
) -> BatchColumns:
    """Return an array of one ENTRY_STATE for an empty segment.

    Raises ValueError for an interval or a size that Kafka refuses as a topic's setting.
    """
    if interval_bytes < 0:
        raise ValueError(f"index.interval.bytes={interval_bytes}: expected 0 or more")
    if segment_index_bytes < TIME_ENTRY_BYTES:
        raise ValueError(
            f"segment.index.bytes={segment_index_bytes}: expected at least one entry of "
            f"{TIME_ENTRY_BYTES} bytes"
        )
    state = np.frombuffer(
        bytearray(_empty_state(dialect, interval_bytes, segment_index_bytes)), ENTRY_STATE
    )
    if base_offset:
        for name in BASE_OFFSETS:
            state[name] = base_offset
    return state


@cache
def _empty_state(dialect: Dialect, interval_bytes: int, segment_index_bytes: int) -> bytes:
    """Return the bytes of a state for base offset 0."""
    state = np.zeros(1, ENTRY_STATE)
    state["interval_bytes"] = interval_bytes
    state["time_slots"] = segment_index_bytes // TIME_ENTRY_BYTES
    state["offset_slots"] = segment_index_bytes // OFFSET_ENTRY_BYTES
    state["next_offset"] = dialect.next_offset
    state["max_timestamp"] = state["last_entry_timestamp"] = NO_TIMESTAMP
    return state.tobytes()


def preallocated_bytes(segment_index_bytes: int, entry_bytes: int) -> tuple[int, ...]:
    """Return the sizes an active segment's index may have, as set and by default."""
    sizes = (segment_index_bytes, DEFAULT_SEGMENT_INDEX_BYTES)
    return tuple(size // entry_bytes * entry_bytes for size in sizes)


def refuse(state: Any, refusal: int, position: int) -> None:
    """Record why, and at which byte, Kafka refuses the segment."""
    state["refusal"] = refusal
    state["refused_position"] = position


def first_disordered(
    batches: BatchColumns, base_offset: int, last_offset: int
) -> tuple[int, str] | None:
    """Return position and reason of the first batch whose offsets are not those of its place.

    `last_offset` is the last one before these batches. Recovery refuses such a segment wherever it
    makes an index entry for the batch. It splits a segment whose offsets grow beyond int32.
    """
    offsets = batches["last_offset"]
    before = np.concatenate(([last_offset], offsets[:-1]))
    is_below = offsets < base_offset
    found = np.flatnonzero(is_below | (offsets <= before))
    if not len(found):
        return None
    row = int(found[0])
    if is_below[row]:
        why = REFUSALS[OFFSET_BELOW_BASE]
    else:
        why = f"its last offset, {offsets[row]}, is not above the one before, {before[row]}"
    return int(batches["position"][row]), why


def maybe_append(state: Any, offset: int, position: int, times: Any, count: int) -> int:
    """Append the max timestamp so far to the time index if it grew; return the entries in `times`.

    `TimeIndex.maybeAppend` without its check for a full index: a decreasing offset is refused, an
    equal timestamp is ignored.
    """
    if state["time_entries"] > 0 and offset < state["last_entry_offset"]:
        refuse(state, TIME_OFFSETS_GO_BACK, position)
    elif state["max_timestamp"] > state["last_entry_timestamp"]:
        relative = java_sum(offset, -state["base_offset"])
        if relative > MAX_INT32:  # D1: possible only with "the next offset"
            refuse(state, OFFSET_BEYOND_INT32, position)
            return count
        times[count, 0] = state["max_timestamp"]
        times[count, 1] = relative
        state["last_entry_timestamp"] = state["max_timestamp"]
        state["last_entry_offset"] = offset
        state["time_entries"] += 1
        return count + 1
    return count


def append_batches(
    batches: Any, recorded_offsets: Any, states: Any, times: Any, offsets: Any
) -> tuple[int, int]:
    """Process `batches` in order; write new entries and return how many of each there are.

    `times` gets rows (timestamp, relative offset), `offsets` rows (relative offset, position);
    both have room for one row per batch. Stops at the first batch that Kafka refuses.
    """
    state = states[0]
    time_count = 0
    offset_count = 0
    for i in range(batches.size):
        batch = batches[i]
        last_offset = batch["last_offset"]
        position = batch["position"]
        relative = java_sum(last_offset, -state["base_offset"])
        if relative < 0 or relative > MAX_INT32:
            below = last_offset < state["base_offset"]
            refuse(state, OFFSET_BELOW_BASE if below else OFFSET_BEYOND_INT32, position)
            break
        state["last_offset"] = last_offset
        if batch["max_timestamp"] > state["max_timestamp"]:
            state["max_timestamp"] = batch["max_timestamp"]
            state["offset_of_max"] = recorded_offsets[i]
        if position - state["last_indexed_position"] > state["interval_bytes"]:
            if state["offset_entries"] >= state["offset_slots"]:
                refuse(state, OFFSET_INDEX_FULL, position)
                break
            if state["offset_entries"] > 0 and last_offset <= state["last_index_offset"]:
                refuse(state, OFFSETS_GO_BACK, position)
                break
            offsets[offset_count, 0] = relative
            offsets[offset_count, 1] = position
            offset_count += 1
            state["offset_entries"] += 1
            state["last_index_offset"] = last_offset
            if state["time_entries"] >= state["time_slots"] - 1:
                refuse(state, TIME_INDEX_FULL, position)
                break
            offset = state["offset_of_max"]
            if state["next_offset"] == 1:
                offset = java_sum(last_offset, 1)
            time_count = maybe_append(state, offset, position, times, time_count)
            if state["refusal"] != ACCEPTED:
                break
            state["last_indexed_position"] = position
    return time_count, offset_count


def close_index(states: Any, end_position: int, times: Any) -> int:
    """Write the closing entry, if there is one, into `times`; return 1 or 0.

    D1, kip33: the closing entry has the next segment's base offset. If the partition has no gap,
    that is the last offset + 1, so the next segment is not needed.
    """
    state = states[0]
    offset = state["offset_of_max"]
    if state["next_offset"] == 1:
        offset = java_sum(state["last_offset"], 1)
    return maybe_append(state, offset, end_position, times, 0)
