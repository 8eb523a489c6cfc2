"""The records of many batches as rows of `formats.records.RECORD`, and their fields side by side.

`add_records` reads the bodies of the batches in one array. It copies no key and no value. Which
records can be read is decided as in `kip33.formats.records.iterate_records`. `add_fields` and
`find_headers` then copy fields as the data and offsets of an Arrow binary array.

The functions run uncompiled and compiled, as `kip33.formats.walk` does. So they use only integers,
fields of arrays and the functions of `kip33.formats.crc`.
"""

from typing import Any, Final

import numpy as np

from kip33.formats.batch import (
    CODEC_MASK,
    LEGACY_MIN_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
)
from kip33.formats.crc import Bytes, copy_bytes, int8_at, int32_at, int64_at, java_sum
from kip33.formats.held_batches import MESSAGE, UNREADABLE, V2_RECORDS, WRAPPED
from kip33.formats.records import APPEND_TYPE, CREATE_TYPE, NO_TYPE, read_record, sized_at

CURSOR: Final = np.dtype(
    [
        ("entry", np.int64),  # the row of the current batch
        ("at", np.int64),  # of its next record; -1: the batch is not begun
        ("number", np.int64),  # records of it that were read
        ("base", np.int64),  # what a wrapper adds to the offsets inside it
        ("rows", np.int64),  # complete rows
    ]
)
RECORD_LIMITS: Final = np.dtype(
    [
        ("first_offset", np.int64),  # all four are inclusive
        ("last_offset", np.int64),
        ("first_timestamp", np.int64),
        ("last_timestamp", np.int64),
    ]
)
"""Records outside are read and validated, but get no row."""

# Why `add_records` returned.
DONE: Final = 0  # all entries were read
ROWS_FULL: Final = 1  # the rows are full
BAD: Final = 2  # the next record of entry `cursor.entry` cannot be read
READ: Final = 3  # of `read_*`: the record was read


def add_batch(data: Bytes, entry: Any, cursor: Any, limit: Any, rows: Any) -> int:
    """Add the records of a batch of magic 2; return DONE, ROWS_FULL or BAD.

    What does not change is held in locals: compiled code reads fields of arrays again and again.
    """
    stop, count, first_offset = int(entry["stop"]), int(entry["count"]), int(entry["offset"])
    stamp, stamp_type = int(entry["base_timestamp"]), CREATE_TYPE
    is_stamped = entry["attributes"] & LOG_APPEND_TIME != 0
    if is_stamped:
        stamp, stamp_type = int(entry["max_timestamp"]), APPEND_TYPE
    is_complete = entry["is_complete"] != 0
    least_offset, most_offset = int(limit["first_offset"]), int(limit["last_offset"])
    least_time, most_time = int(limit["first_timestamp"]), int(limit["last_timestamp"])
    at, number, filled = int(cursor["at"]), int(cursor["number"]), int(cursor["rows"])
    outcome = DONE
    while number != count:
        if filled == rows.size:
            outcome = ROWS_FULL
            break
        row = rows[filled]
        after, timestamp_delta, offset_delta = read_record(data, at, stop, row)
        if after < 0 or (number == count - 1 and (after != stop or not is_complete)):
            outcome = BAD
            break
        at = after
        number += 1
        offset = java_sum(first_offset, offset_delta)
        timestamp = stamp if is_stamped else java_sum(stamp, timestamp_delta)
        row["offset"], row["timestamp"], row["timestamp_type"] = offset, timestamp, stamp_type
        if (
            least_offset <= offset
            and offset <= most_offset
            and least_time <= timestamp
            and timestamp <= most_time
        ):
            filled += 1
    cursor["at"], cursor["number"], cursor["rows"] = at, number, filled
    return outcome


def legacy_field(data: Bytes, at: int, stop: int) -> tuple[int, int, int]:
    """Return size, start and end of a field with an int32 length: -1 is null, end -1 is damage."""
    if stop - at < 4:
        return 0, 0, -1
    size = int32_at(data, at)
    if size > stop - at - 4:
        return 0, 0, -1
    if size < 0:
        return -1, at + 4, at + 4
    return size, at + 4, at + 4 + size


def read_message(data: Bytes, at: int, stop: int, offset: int, row: Any) -> bool:
    """Fill `row` from the message that begins with its CRC at `at`; return whether it is readable.

    Its timestamp and type are its own; those of a wrapper come before them.
    """
    if stop - at < 6:
        return False
    magic, attributes = int8_at(data, at + 4), int8_at(data, at + 5)
    at += 6
    row["offset"] = offset
    row["timestamp"] = NO_TIMESTAMP
    row["timestamp_type"] = NO_TYPE
    if magic != 0:
        if stop - at < 8:
            return False
        row["timestamp"] = int64_at(data, at)
        row["timestamp_type"] = APPEND_TYPE if attributes & LOG_APPEND_TIME else CREATE_TYPE
        at += 8
    row["key_bytes"], row["key"], at = legacy_field(data, at, stop)
    if at < 0:
        return False
    row["value_bytes"], row["value"], at = legacy_field(data, at, stop)
    row["headers_count"] = 0
    row["headers"] = 0
    return at >= 0


def last_inner_offset(data: Bytes, start: int, stop: int) -> tuple[int, int]:
    """Return the offset of the last complete message in a wrapper, and 1.

    The second number is 0 if there is no such message, or a size field is too small.
    """
    offset, found, at = 0, 0, start
    while stop - at >= LOG_OVERHEAD:
        size = int32_at(data, at + 8)
        if size < LEGACY_MIN_SIZE:
            return 0, 0
        if size > stop - at - LOG_OVERHEAD:
            break
        offset, found = int64_at(data, at), 1
        at += LOG_OVERHEAD + size
    return offset, found


def begin(data: Bytes, entry: Any, cursor: Any) -> int:
    """Prepare `cursor` for the first record of an entry; return READ, or BAD."""
    cursor["at"] = entry["start"]
    cursor["number"] = 0
    cursor["base"] = 0
    if entry["kind"] == V2_RECORDS:
        return READ if entry["count"] >= 0 else BAD
    if entry["kind"] == MESSAGE:
        return READ
    if entry["kind"] == UNREADABLE or not entry["is_complete"]:
        return BAD
    last, found = last_inner_offset(data, entry["start"], entry["stop"])
    if not found:
        return BAD
    if entry["magic"] != 0 and entry["offset"] != 0:  # else the offsets inside are absolute
        if entry["offset"] < last:
            return BAD
        cursor["base"] = java_sum(entry["offset"], -last)
    return READ


def next_message(data: Bytes, entry: Any, cursor: Any, row: Any) -> int:
    """Fill `row` from the next message inside a wrapper; return READ, DONE or BAD."""
    at, stop = cursor["at"], entry["stop"]
    if stop - at < LOG_OVERHEAD:
        return DONE
    size = int32_at(data, at + 8)
    if size > stop - at - LOG_OVERHEAD:  # truncated: Kafka skips it
        return DONE
    body = at + LOG_OVERHEAD
    offset = java_sum(cursor["base"], int64_at(data, at))
    if not read_message(data, body, body + size, offset, row):
        return BAD
    if int8_at(data, body + 5) & CODEC_MASK:
        return BAD
    if entry["magic"] == 0:
        row["timestamp_type"] = NO_TYPE
    elif entry["attributes"] & LOG_APPEND_TIME:
        row["timestamp_type"] = APPEND_TYPE
        if int8_at(data, body + 4) == 1:
            row["timestamp"] = entry["max_timestamp"]
    else:
        row["timestamp_type"] = CREATE_TYPE
    cursor["at"] = body + size
    return READ


def next_row(data: Bytes, entry: Any, cursor: Any, row: Any) -> int:
    """Fill `row` from the next message of an entry of magic 0 or 1; return READ, DONE or BAD."""
    if entry["kind"] == WRAPPED:
        return next_message(data, entry, cursor, row)
    if cursor["number"] > 0:
        return DONE
    if read_message(data, entry["start"], entry["stop"], entry["offset"], row):
        return READ
    return BAD


def add_messages(data: Bytes, entry: Any, cursor: Any, limit: Any, rows: Any) -> int:
    """Add the messages of an entry of magic 0 or 1; return DONE, ROWS_FULL or BAD."""
    while True:
        if cursor["rows"] == rows.size:
            return ROWS_FULL
        row = rows[cursor["rows"]]
        outcome = next_row(data, entry, cursor, row)
        if outcome != READ:
            return outcome
        cursor["number"] += 1
        if (
            limit["first_offset"] <= row["offset"]
            and row["offset"] <= limit["last_offset"]
            and limit["first_timestamp"] <= row["timestamp"]
            and row["timestamp"] <= limit["last_timestamp"]
        ):
            cursor["rows"] += 1


def add_records(data: Bytes, entries: Any, cursors: Any, limits: Any, rows: Any) -> int:
    """Add a row for each record of the entries that is inside the limits; return why it stopped.

    `cursors` is an array of one CURSOR, `limits` of one RECORD_LIMITS. After ROWS_FULL the caller
    sets `cursor.rows` to 0 and calls again. After BAD it continues with the next entry.
    """
    cursor, limit = cursors[0], limits[0]
    while cursor["entry"] < entries.size:
        entry = entries[cursor["entry"]]
        if cursor["at"] < 0 and begin(data, entry, cursor) == BAD:
            return BAD
        if entry["kind"] == V2_RECORDS:
            outcome = add_batch(data, entry, cursor, limit, rows)
        else:
            outcome = add_messages(data, entry, cursor, limit, rows)
        if outcome != DONE:
            return outcome
        cursor["entry"] += 1
        cursor["at"] = -1
    return DONE


HEADER: Final = np.dtype(
    [
        ("key", np.int64),  # position in the array
        ("value", np.int64),
        ("key_bytes", np.int32),
        ("value_bytes", np.int32),  # -1: null
    ]
)
"""One row per record header."""

HEADER_PLACE: Final = np.dtype(
    [
        ("record", np.int64),  # number of the record with the next header
        ("number", np.int64),  # of that header in its record
        ("at", np.int64),  # position of it, -1: where the record's headers begin
    ]
)


def number_of(rows: np.dtype[Any], name: str) -> int:
    """Return which number of a row a field is, if the row is an array of numbers of its size."""
    assert rows.fields is not None
    field, at = rows.fields[name][:2]
    return at // field.itemsize


def add_fields(
    data: Bytes,
    places: Any,
    place: int,
    sizes: Any,
    size: int,
    offsets: Any,
    is_valid: Any,
    target: Any,
) -> tuple[int, int]:
    """Copy one field of each row side by side, as long as there is room in `target`.

    `places[i, place]` is the position of the field in `data`, `sizes[i, size]` its size in bytes,
    -1 for null. The first field begins at `offsets[0]`. Returns the number of fields that were
    added, and of nulls among them.
    """
    at = int(offsets[0])
    nulls = 0
    for i in range(len(places)):
        count = int(sizes[i, size])
        if count >= 0:
            if count > len(target) - at:
                return i, nulls
            if count > 0:
                copy_bytes(target, at, data, places[i, place], count)
            at += count
            is_valid[i] = 1
        else:
            nulls += 1
            is_valid[i] = 0
        offsets[i + 1] = at
    return len(places), nulls


def find_headers(data: Bytes, records: Any, places: Any, headers: Any) -> None:
    """Fill `headers`, one row per header of the records, in order.

    `places` is an array of one HEADER_PLACE: where to begin, and afterwards where to continue.
    There are as many headers, and they were validated when the records were read.
    """
    place, filled = places[0], 0
    i, number, at = int(place["record"]), int(place["number"]), int(place["at"])
    while filled < headers.size:
        if number == records[i]["headers_count"]:
            i, number, at = i + 1, 0, -1
            continue
        if at < 0:
            at = int(records[i]["headers"])
        header = headers[filled]
        header["key_bytes"], header["key"], at = sized_at(data, at, len(data))
        header["value_bytes"], header["value"], at = sized_at(data, at, len(data))
        number += 1
        filled += 1
    place["record"], place["number"], place["at"] = i, number, at
