"""The walk: one pass over a segment's bytes, from header to header, checking every CRC.

One function gets the bytes piece by piece. Its state between pieces is a STATE record, so a batch
may be larger than any buffer: its CRC is carried over and its body is never assembled. It runs
uncompiled for small files and compiled (`kip33.formats.native.compiler`) for all others. So it uses
only integers, fields of arrays, and the functions of `kip33.formats.crc`.

It decides exactly as Kafka which entries are complete: `FileLogInputStream.nextBatch` and
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
from kip33.formats.crc import (
    Bytes,
    crc32,
    crc32c,
    int8_at,
    int16_at,
    int32_at,
    int64_at,
    java_sum,
    uint32_at,
    will_need,
)

STATE: Final = np.dtype(
    [
        ("end", np.int64),  # the file's size
        ("entry", np.int64),  # position of the current entry: everything before it is valid
        ("inside", np.int64),  # 1 while the body of the current entry is read
        ("remaining_bytes", np.int64),  # of that body
        ("crc", np.int64),  # of the bytes of that body so far
        ("expected_crc", np.int64),
        ("record_skip_bytes", np.int64),  # to the next record's length, from the current byte
        ("seeks_record", np.int64),  # 1 while searching the first record with the max timestamp
        ("base_timestamp", np.int64),
        ("rows", np.int64),  # complete rows of the columns
    ]
)

# Why the walk returned.
MORE: Final = 0  # it needs bytes
FULL: Final = 1  # the columns are full
MARKER: Final = 2  # the last row is a producer's control batch that `markers` must read
END: Final = 3  # at most 17 bytes are left: Kafka stops silently
TORN: Final = 4  # the size field points past the end of the file
SIZE_TOO_SMALL: Final = 5
BAD_CRC: Final = 6

COMPLETE: Final = -1  # of `why_incomplete`: the batch is complete

# The largest start of a record: length, attributes, timestamp delta, offset delta.
RECORD_START_BYTES: Final = 5 + 1 + 10 + 5

# If bodies are skipped, each header is a cache miss, and only it gives the position of the next.
# Batches often have one size, so the header this many batches ahead is prefetched at a guess.
HEADERS_AHEAD: Final = 8

# The marker of a control batch with a producer id: `control` of a row.
NOT_CONTROL: Final = 0
ABORT: Final = 1
COMMIT: Final = 2
UNREAD: Final = 3  # not a plain marker: `kip33.formats.markers` reads it


def varint_at(data: Bytes, at: int, stop: int, most_bytes: int) -> tuple[int, int]:
    """Return a zig-zag varint and the position after it, -1 if it is torn or too long.

    With at most 5 bytes it is an int: Java drops the bits of the fifth byte beyond 32.
    """
    value = 0
    shift = 0
    while at < stop and shift < 7 * most_bytes:
        byte = int8_at(data, at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte >= 0:
            if most_bytes == 5:
                value &= 0xFFFFFFFF
            return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), at
        shift += 7
    return 0, -1


def marker_type(data: Bytes, at: int, stop: int, count: int) -> int:
    """Return ABORT or COMMIT if `data[at:stop]` is one plain transaction marker, else UNREAD."""
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
    """Search the records for the first one with the batch's max timestamp.

    Returns the end of the bytes that were used: `stop`, or the start of a record whose first bytes
    are incomplete. Invalid bytes end the search; the row then keeps its last offset.
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


def read_header(
    data: Bytes, at: int, size: int, entry: int, state: Any, row: Any, seek: bool
) -> tuple[int, int]:
    """Fill `row` from the header at `at`; return the bytes before the CRC's range, and the CRC.

    `entry` is the header's position in the file. If `seek` is set and the batch allows it, `state`
    is prepared for the search of the first record with the max timestamp.
    """
    magic = int8_at(data, at + 16)
    row["position"] = entry
    row["size_bytes"] = LOG_OVERHEAD + size
    row["magic"] = magic
    base_offset = int64_at(data, at)
    row["base_offset"] = base_offset
    row["control"] = NOT_CONTROL
    if magic < 2:
        attributes = int8_at(data, at + 17) & 0xFF
        row["attributes"] = attributes
        row["last_offset"] = base_offset
        row["offset_of_max_timestamp"] = base_offset
        timestamp = NO_TIMESTAMP if magic == 0 else int64_at(data, at + 18)
        row["max_timestamp"] = timestamp
        row["base_timestamp"] = timestamp
        row["producer_id"] = -1
        row["leader_epoch"] = -1
        row["records_count"] = -1 if attributes & CODEC_MASK else 1
        row["crc"] = uint32_at(data, at + 12)
        return LEGACY_CRC_START, uint32_at(data, at + 12)
    attributes = int16_at(data, at + 21) & 0xFF
    last_offset = java_sum(base_offset, int32_at(data, at + 23))
    producer_id = int64_at(data, at + 43)
    row["attributes"] = attributes
    row["last_offset"] = last_offset
    row["offset_of_max_timestamp"] = last_offset
    row["base_timestamp"] = int64_at(data, at + 27)
    row["max_timestamp"] = int64_at(data, at + 35)
    row["producer_id"] = producer_id
    row["leader_epoch"] = int32_at(data, at + 12)
    row["records_count"] = int32_at(data, at + 57)
    if attributes & CONTROL and producer_id >= 0:
        row["control"] = UNREAD
    if seek and attributes & (CODEC_MASK | LOG_APPEND_TIME) == 0:
        state["seeks_record"] = 1
        state["base_timestamp"] = int64_at(data, at + 27)
        state["record_skip_bytes"] = RECORD_BATCH_OVERHEAD - V2_CRC_START
    row["crc"] = uint32_at(data, at + 17)
    return V2_CRC_START, uint32_at(data, at + 17)


def why_incomplete(size: int, is_v2: bool, room: int) -> int:
    """Return COMPLETE if a batch with this size field fits into `room` bytes of a file.

    Else SIZE_TOO_SMALL or TORN, in the order in which Kafka checks.
    """
    if size < LEGACY_MIN_SIZE:
        return SIZE_TOO_SMALL
    if size > room - LOG_OVERHEAD:
        return TORN
    if is_v2 and size < RECORD_BATCH_OVERHEAD - LOG_OVERHEAD:
        return SIZE_TOO_SMALL
    return COMPLETE


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
    """Walk over `data[at:stop]` and add a row to `columns` for every complete batch.

    Returns why it stopped and the first byte it has not used. The caller moves the rest to the
    front of its buffer. If `state.remaining_bytes` exceeds the buffer and no CRC is checked, the
    caller continues after the body. `seek` fills `offset_of_max_timestamp` from the records.
    `states` is an array of one STATE; `tables` chooses the compiled CRC-32C.
    """
    state = states[0]
    end, entry, rows = int(state["end"]), int(state["entry"]), int(state["rows"])
    inside, remaining_bytes = int(state["inside"]), int(state["remaining_bytes"])
    value, expected_crc = int(state["crc"]), int(state["expected_crc"])
    while True:
        row = columns[min(rows, columns.size - 1)]
        if inside == 0:
            if rows == columns.size:
                why = FULL
                break
            if entry >= end - HEADER_SIZE_UP_TO_MAGIC:
                why = END
                break
            if stop - at < HEADER_SIZE_UP_TO_MAGIC:
                why = MORE
                break
            size = int32_at(data, at + 8)
            is_v2 = int8_at(data, at + 16) >= 2
            why = why_incomplete(size, is_v2, end - entry)
            if why != COMPLETE:
                break
            if not check_crc:
                ahead = at + HEADERS_AHEAD * (LOG_OVERHEAD + size)
                will_need(data, ahead)
                will_need(data, ahead + RECORD_BATCH_OVERHEAD)
            if stop - at < (RECORD_BATCH_OVERHEAD if is_v2 else LEGACY_HEADER_BYTES):
                why = MORE
                break
            before, expected_crc = read_header(data, at, size, entry, state, row, seek)
            at += before
            inside, value, remaining_bytes = 1, 0, LOG_OVERHEAD + size - before

        piece_stop = at + min(stop - at, remaining_bytes)
        if seek and state["seeks_record"] == 1:
            state["remaining_bytes"] = remaining_bytes
            piece_stop = seek_record(data, at, piece_stop, state, row)
        if check_crc:
            if row["magic"] < 2:
                value = crc32(value, data, at, piece_stop)
            else:
                value = crc32c(value, data, at, piece_stop, tables)
        remaining_bytes -= piece_stop - at
        body_start = at - V2_CRC_START + RECORD_BATCH_OVERHEAD  # if the body is complete here
        at = piece_stop
        if remaining_bytes > 0:
            why = MORE
            break
        if check_crc and value != expected_crc:
            why = BAD_CRC
            break
        inside = 0
        state["seeks_record"] = 0
        entry += row["size_bytes"]
        rows += 1
        if row["control"] == UNREAD:
            whole = at - body_start == row["size_bytes"] - RECORD_BATCH_OVERHEAD
            if whole and row["attributes"] & CODEC_MASK == 0:
                row["control"] = marker_type(data, body_start, at, row["records_count"])
            if row["control"] == UNREAD:
                why = MARKER
                break
    state["entry"], state["rows"], state["inside"] = entry, rows, inside
    state["remaining_bytes"], state["crc"] = remaining_bytes, value
    state["expected_crc"] = expected_crc
    return why, at
