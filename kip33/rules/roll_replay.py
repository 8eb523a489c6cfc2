"""Replay batches as appends: the segments that a broker would have made under other settings.

`replay_batches` is `LogSegment.shouldRoll` and the append of `LogSegment` in one loop over columns
of `formats.batch.BATCH`, for compiled code. Each batch is one append, as a leader makes them. A
segment that begins without a timestamp never ends by time here: no file has its creation time.
"""

from typing import Any, Final

import numpy as np

from kip33.formats.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    MAX_INT32,
    NO_TIMESTAMP,
    BatchColumns,
)
from kip33.formats.crc import java_sum
from kip33.rules.rolling import RollReading, RollReason, RollSettings

# `reason` of a segment; REPLAY_ENDS[code] is the text.
ACTIVE: Final = 0
BY_SIZE: Final = 1
BY_TIME: Final = 2
BY_INDEX: Final = 3
BY_OFFSET_RANGE: Final = 4
REPLAY_ENDS: Final = (
    RollReason.ACTIVE,
    RollReason.SIZE,
    RollReason.TIME,
    RollReason.INDEX_FULL,
    RollReason.OFFSET_RANGE,
)

# `reading` of a state.
BY_FIRST_BATCH: Final = 0
BY_FIRST_MESSAGE: Final = 1
BY_LARGEST: Final = 2
_READINGS: Final = {
    RollReading.KAFKA: BY_FIRST_BATCH,
    RollReading.KIP33: BY_FIRST_MESSAGE,
    RollReading.LARGEST: BY_LARGEST,
}

_SEGMENT_FIELDS: Final = [
    ("base_offset", np.int64),
    ("last_offset", np.int64),
    ("batches", np.int64),
    ("size_bytes", np.int64),
    ("start_timestamp", np.int64),  # from which its time counts; -1: none
    ("first_timestamp", np.int64),  # the max timestamp of its first batch
    ("max_timestamp", np.int64),
    ("offset_entries", np.int64),
    ("time_entries", np.int64),  # with the closing entry, if there is one
    ("reason", np.int64),  # why it ended
]
REPLAYED_SEGMENT: Final = np.dtype(_SEGMENT_FIELDS)
REPLAY_STATE: Final = np.dtype(
    [
        *_SEGMENT_FIELDS,
        ("last_entry_timestamp", np.int64),
        ("indexed_bytes", np.int64),  # where the last entry of the offset index was inserted
        ("wants_message", np.int64),  # 1: the caller must set `start_timestamp`
        ("reading", np.int64),
        ("limit_ms", np.int64),
        ("segment_bytes", np.int64),
        ("interval_bytes", np.int64),
        ("offset_slots", np.int64),
        ("time_slots", np.int64),
        ("oversized", np.int64),  # batches that are larger than segment.bytes: Kafka refuses them
    ]
)


def new_replay(reading: RollReading, settings: RollSettings, base_offset: int) -> BatchColumns:
    """Return an array of one REPLAY_STATE: an empty log that begins at `base_offset`."""
    state = np.zeros(1, REPLAY_STATE)
    state["reading"] = _READINGS[reading]
    state["limit_ms"] = settings.segment_ms
    state["segment_bytes"] = settings.segment_bytes
    state["interval_bytes"] = settings.index_interval_bytes
    state["offset_slots"] = settings.offset_slots
    state["time_slots"] = settings.time_slots
    open_segment(state[0], base_offset)
    return state


def open_segment(state: Any, base_offset: int) -> None:
    """Begin an empty segment."""
    state["base_offset"] = base_offset
    state["last_offset"] = java_sum(base_offset, -1)
    state["batches"] = state["size_bytes"] = 0
    state["start_timestamp"] = state["first_timestamp"] = NO_TIMESTAMP
    state["max_timestamp"] = state["last_entry_timestamp"] = NO_TIMESTAMP
    state["offset_entries"] = state["time_entries"] = state["indexed_bytes"] = 0
    state["wants_message"] = 0


def close_segment(state: Any, reason: int, row: Any) -> None:
    """Copy the open segment to `row`, with the entry that closes its time index."""
    row["base_offset"] = state["base_offset"]
    row["last_offset"] = state["last_offset"]
    row["batches"] = state["batches"]
    row["size_bytes"] = state["size_bytes"]
    row["start_timestamp"] = state["start_timestamp"]
    row["first_timestamp"] = state["first_timestamp"]
    row["max_timestamp"] = state["max_timestamp"]
    row["offset_entries"] = state["offset_entries"]
    row["time_entries"] = state["time_entries"]
    if state["max_timestamp"] > state["last_entry_timestamp"]:
        row["time_entries"] = state["time_entries"] + 1
    row["reason"] = reason


def why_rolled(state: Any, batch: Any) -> int:
    """Return why the open segment is rolled before the batch, ACTIVE if it is not."""
    size = state["size_bytes"]
    if size > 0 and size > state["segment_bytes"] - batch["size_bytes"]:
        return BY_SIZE
    start = state["start_timestamp"]
    if size > 0 and start >= 0 and java_sum(batch["max_timestamp"], -start) > state["limit_ms"]:
        return BY_TIME
    if (
        state["offset_entries"] >= state["offset_slots"]
        or state["time_entries"] >= state["time_slots"]
    ):
        return BY_INDEX
    relative = java_sum(batch["last_offset"], -state["base_offset"])
    if relative < 0 or relative > MAX_INT32:
        return BY_OFFSET_RANGE
    return ACTIVE


def append_one(state: Any, batch: Any) -> None:
    """Append a batch to the open segment, with the entries of both indexes."""
    timestamp = batch["max_timestamp"]
    if state["batches"] == 0:
        state["first_timestamp"] = state["start_timestamp"] = timestamp
        one_timestamp = batch["records_count"] == 1 or batch["attributes"] & LOG_APPEND_TIME
        if state["reading"] == BY_FIRST_MESSAGE and timestamp >= 0 and not one_timestamp:
            state["wants_message"] = 1
    if timestamp > state["max_timestamp"]:
        state["max_timestamp"] = timestamp
    if state["reading"] == BY_LARGEST:
        state["start_timestamp"] = state["max_timestamp"]
    if state["size_bytes"] - state["indexed_bytes"] > state["interval_bytes"]:
        state["offset_entries"] += 1
        if state["max_timestamp"] > state["last_entry_timestamp"]:
            state["time_entries"] += 1
            state["last_entry_timestamp"] = state["max_timestamp"]
        state["indexed_bytes"] = state["size_bytes"]
    state["size_bytes"] += batch["size_bytes"]
    state["last_offset"] = batch["last_offset"]
    state["batches"] += 1
    if batch["size_bytes"] > state["segment_bytes"]:
        state["oversized"] += 1


def next_base(state: Any, batch: Any) -> int:
    """Return the base offset of the segment that begins with the batch.

    The log's end offset, or the batch's own first offset if it is larger. The header of a v0 or v1
    wrapper has only its last offset; Kafka then takes the smallest base that can hold it.
    """
    end_offset = java_sum(state["last_offset"], 1)
    first = batch["base_offset"]
    if batch["magic"] < 2 and batch["attributes"] & CODEC_MASK:
        first = java_sum(batch["last_offset"], -MAX_INT32)
    return int(max(end_offset, first))


def replay_batches(batches: Any, first: int, states: Any, rows: Any) -> tuple[int, int]:
    """Append `batches[first:]`; write each segment that ends into `rows`.

    Returns the index of the next batch, and the number of rows. It also returns if `rows` is full,
    or after a batch for which the caller must set `start_timestamp` (`wants_message`).
    """
    state = states[0]
    count = 0
    number = first
    while number < batches.size and count < rows.size:
        batch = batches[number]
        reason = why_rolled(state, batch)
        if reason != ACTIVE:
            base_offset = next_base(state, batch)
            if base_offset > state["base_offset"]:  # a segment of this base would be replaced
                close_segment(state, reason, rows[count])
                count += 1
            open_segment(state, base_offset)
        append_one(state, batch)
        number += 1
        if state["wants_message"] == 1:
            break
    return number, count
