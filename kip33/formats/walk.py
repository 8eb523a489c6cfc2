"""The walk: one pass over a segment's bytes, from header to header, checking every CRC.

One function, fed piece by piece. What it must remember between pieces stands in a STATE record,
so a batch may be larger than any buffer: its CRC is carried, its body never assembled. It runs
as it stands for small files and compiled (`kip33.formats.native`) for all others, and uses only
what both can: integers, fields of arrays, and the functions of `bigendian` and `crc`.

Which entries are whole is Kafka's decision to the letter: `FileLogInputStream.nextBatch` and
`RecordBatch.ensureValid` (kafka-storage 4.1; the same since 0.11).
"""

from typing import Any, Final

import numpy as np

from kip33.formats.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE_UP_TO_MAGIC,
    LEGACY_CRC_START,
    LEGACY_HEADER_BYTES,
    LEGACY_MIN_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    V2_CRC_START,
)
from kip33.formats.bigendian import (
    Bytes,
    int8_at,
    int16_at,
    int32_at,
    int64_at,
    java_sum,
    uint32_at,
)
from kip33.formats.crc import crc32, crc32c

STATE: Final = np.dtype(
    [
        ("end", np.int64),  # the file's size
        ("entry", np.int64),  # position of the entry at hand: all before it is valid
        ("inside", np.int64),  # 1 while the body of the entry at hand is read
        ("remaining_bytes", np.int64),  # of that body
        ("crc", np.int64),  # over what was read of it
        ("expected_crc", np.int64),
        ("record_skip_bytes", np.int64),  # to the next record's length, from where we stand
        ("seeks_record", np.int64),  # 1 while the first record with the max timestamp is sought
        ("base_timestamp", np.int64),
        ("rows", np.int64),  # complete rows of the columns
    ]
)

# Why the walk came back.
MORE: Final = 0  # it needs bytes
FULL: Final = 1  # the columns are full
MARKER: Final = 2  # the last row is a control batch of a producer that needs a closer look
END: Final = 3  # at most 17 bytes are left: Kafka stops quietly
TORN: Final = 4  # the size field points past the end of the file
SIZE_TOO_SMALL: Final = 5
BAD_CRC: Final = 6

# The longest start of a record: length, attributes, timestamp delta, offset delta.
RECORD_START_BYTES: Final = 5 + 1 + 10 + 5

# What became of a control batch that has a producer id: `control` of a row.
NOT_CONTROL: Final = 0
ABORT: Final = 1
COMMIT: Final = 2
UNREAD: Final = 3  # anything but a plain marker: `kip33.formats.markers` reads it


def varint_at(data: Bytes, at: int, stop: int, most_bytes: int) -> tuple[int, int]:
    """Return a zig-zag varint and the place after it; place -1 where it is torn or too long."""
    value = 0
    shift = 0
    while at < stop and shift < 7 * most_bytes:
        byte = int8_at(data, at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte >= 0:
            return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), at
        shift += 7
    return 0, -1


def marker_type(data: Bytes, at: int, stop: int, count: int) -> int:
    """Return ABORT or COMMIT where `data[at:stop]` is one plain transaction marker, else UNREAD."""
    if count != 1:
        return UNREAD
    length, at = varint_at(data, at, stop, 5)
    if at < 0 or length != stop - at:
        return UNREAD
    _, at = varint_at(data, at + 1, stop, 10)  # after the attributes: timestamp delta
    if at < 0:
        return UNREAD
    _, at = varint_at(data, at, stop, 5)  # offset delta
    if at < 0 or stop - at != 1 + 4 + 1 + 6 + 1:  # key and value with their lengths, no headers
        return UNREAD
    if data[at] != 8 or data[at + 5] != 12 or data[at + 12] != 0:  # zig-zag of 4, 6 and 0
        return UNREAD
    kind = int16_at(data, at + 3)
    if int16_at(data, at + 1) != 0 or int16_at(data, at + 6) != 0 or kind < 0 or kind > 1:
        return UNREAD
    return COMMIT if kind == 1 else ABORT


def seek_record(data: Bytes, at: int, stop: int, state: Any, row: Any) -> int:
    """Look at record after record for the first with the batch's max timestamp.

    Returns how far the bytes at `at` are understood: `stop`, or the start of a record whose first
    bytes are not all here yet. Garbage ends the search; the row then keeps its last offset.
    """
    last_piece = state["remaining_bytes"] <= stop - at
    place = at + state["record_skip_bytes"]
    while place < stop and state["seeks_record"] == 1:
        if stop - place < RECORD_START_BYTES and not last_piece:
            state["record_skip_bytes"] = 0
            return int(place)
        length, after_length = varint_at(data, place, stop, 5)
        delta, after_delta = varint_at(data, after_length + 1, stop, 10)
        if after_length < 0 or after_delta < 0 or length <= 0:
            state["seeks_record"] = 0
        elif java_sum(state["base_timestamp"], delta) == row["max_timestamp"]:
            offset_delta, after_offset = varint_at(data, after_delta, stop, 5)
            if after_offset >= 0:
                row["offset_of_max_timestamp"] = java_sum(row["base_offset"], offset_delta)
            state["seeks_record"] = 0
        place = after_length + length
    state["record_skip_bytes"] = max(place - stop, 0)
    return stop


def read_header(data: Bytes, at: int, size: int, state: Any, row: Any, seek: bool) -> int:
    """Fill `row` and `state` from the header at `at`; return the bytes before the CRC's range."""
    magic = int8_at(data, at + 16)
    row["position"] = state["entry"]
    row["size_bytes"] = LOG_OVERHEAD + size
    row["magic"] = magic
    row["base_offset"] = int64_at(data, at)
    row["control"] = NOT_CONTROL
    state["inside"] = 1
    state["crc"] = 0
    state["seeks_record"] = 0
    if magic < 2:
        attributes = int8_at(data, at + 17) & 0xFF
        row["attributes"] = attributes
        row["last_offset"] = row["base_offset"]
        row["max_timestamp"] = NO_TIMESTAMP if magic == 0 else int64_at(data, at + 18)
        row["producer_id"] = -1
        row["leader_epoch"] = -1
        row["records_count"] = -1 if attributes & CODEC_MASK else 1
        state["expected_crc"] = uint32_at(data, at + 12)
        before = LEGACY_CRC_START
    else:
        attributes = int16_at(data, at + 21) & 0xFF
        row["attributes"] = attributes
        row["last_offset"] = java_sum(row["base_offset"], int32_at(data, at + 23))
        row["max_timestamp"] = int64_at(data, at + 35)
        row["producer_id"] = int64_at(data, at + 43)
        row["leader_epoch"] = int32_at(data, at + 12)
        row["records_count"] = int32_at(data, at + 57)
        state["base_timestamp"] = int64_at(data, at + 27)
        state["expected_crc"] = uint32_at(data, at + 17)
        state["record_skip_bytes"] = RECORD_BATCH_OVERHEAD - V2_CRC_START
        if seek and attributes & (CODEC_MASK | LOG_APPEND_TIME) == 0:
            state["seeks_record"] = 1
        if attributes & CONTROL and row["producer_id"] >= 0:
            row["control"] = UNREAD
        before = V2_CRC_START
    row["offset_of_max_timestamp"] = row["last_offset"]
    state["remaining_bytes"] = LOG_OVERHEAD + size - before
    return before


def walk(
    data: Bytes,
    at: int,
    stop: int,
    states: Any,
    columns: Any,
    check_crc: bool,
    seek: bool,
    tables: Any,
) -> tuple[int, int]:
    """Walk over `data[at:stop]`, adding a row to `columns` for every whole batch.

    Returns why it came back and the first byte it has not used. The caller moves what is left to
    the front of its buffer, or, where `state.remaining_bytes` is beyond the buffer and no CRC is
    checked, reads on behind the body. `seek` fills `offset_of_max_timestamp` from the records.
    `states` is an array of one STATE; `tables` chooses the compiled CRC-32C.
    """
    state = states[0]
    while True:
        row = columns[min(state["rows"], columns.size - 1)]
        if state["inside"] == 0:
            if state["rows"] == columns.size:
                return FULL, at
            if state["entry"] >= state["end"] - HEADER_SIZE_UP_TO_MAGIC:
                return END, at
            if stop - at < HEADER_SIZE_UP_TO_MAGIC:
                return MORE, at
            size = int32_at(data, at + 8)
            if size < LEGACY_MIN_SIZE:
                return SIZE_TOO_SMALL, at
            if state["entry"] > state["end"] - LOG_OVERHEAD - size:
                return TORN, at
            header_bytes = LEGACY_HEADER_BYTES
            if int8_at(data, at + 16) >= 2:
                header_bytes = RECORD_BATCH_OVERHEAD
                if LOG_OVERHEAD + size < RECORD_BATCH_OVERHEAD:
                    return SIZE_TOO_SMALL, at
            if stop - at < header_bytes:
                return MORE, at
            at += read_header(data, at, size, state, row, seek)

        piece_stop = at + min(stop - at, state["remaining_bytes"])
        if state["seeks_record"] == 1:
            piece_stop = seek_record(data, at, piece_stop, state, row)
        if check_crc:
            if row["magic"] < 2:
                state["crc"] = crc32(state["crc"], data, at, piece_stop)
            else:
                state["crc"] = crc32c(state["crc"], data, at, piece_stop, tables)
        state["remaining_bytes"] -= piece_stop - at
        body_start = at - V2_CRC_START + RECORD_BATCH_OVERHEAD  # where the whole body is here
        at = piece_stop
        if state["remaining_bytes"] > 0:
            return MORE, at
        if check_crc and state["crc"] != state["expected_crc"]:
            return BAD_CRC, at
        state["inside"] = 0
        state["entry"] += row["size_bytes"]
        state["rows"] += 1
        if row["control"] == UNREAD:
            whole = at - body_start == row["size_bytes"] - RECORD_BATCH_OVERHEAD
            if whole and row["attributes"] & CODEC_MASK == 0:
                row["control"] = marker_type(data, body_start, at, row["records_count"])
            if row["control"] == UNREAD:
                return MARKER, at
