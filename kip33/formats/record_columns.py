"""The records of many batches, written straight into the columns of an Arrow table.

`add_records` reads the bodies of the batches in one array and copies each key and value once. Which
records can be read is decided as in `kip33.formats.records.iterate_records`.

The functions run uncompiled and compiled, as `kip33.formats.walk` does. So they use only integers,
fields of arrays and the functions of `kip33.formats.crc`.
"""

from typing import Any, Final, TypeAlias

import numpy as np

from kip33.formats.batch import (
    CODEC_MASK,
    LEGACY_MIN_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAX_INT32,
    NO_TIMESTAMP,
)
from kip33.formats.crc import Bytes, copy_bytes, int8_at, int32_at, int64_at, java_sum
from kip33.formats.held_batches import MESSAGE, UNREADABLE, V2_RECORDS, WRAPPED
from kip33.formats.records import (
    APPEND_TYPE,
    CREATE_TYPE,
    NO_FIELD,
    NO_HEADERS,
    NO_TYPE,
    Headers,
    Place,
    headers_at,
    read_record,
    short_at,
    sized_at,
)

Column: TypeAlias = tuple[Any, Any, Any]
"""Ends of the fields after a 0, whether each is not null, and their bytes side by side."""
Row: TypeAlias = tuple[int, int, int, Place, Place, Headers]
"""Offset, timestamp and its type, key, value, headers."""
Columns: TypeAlias = tuple[Column, Column, Column, Column]
Numbers: TypeAlias = tuple[Any, Any, Any, Any]
"""Offsets, timestamps, their types, and the ends of each record's headers after a 0."""

CURSOR: Final = np.dtype(
    [
        ("entry", np.int64),  # the row of the current batch
        ("at", np.int64),  # of its next record; -1: the batch is not begun
        ("number", np.int64),  # records of it that were read
        ("base", np.int64),  # what a wrapper adds to the offsets inside it
    ]
)
RECORD_LIMITS: Final = np.dtype(
    [
        ("first_offset", np.int64),  # all four are inclusive
        ("last_offset", np.int64),
        ("first_timestamp", np.int64),
        ("last_timestamp", np.int64),
        ("only_with_timestamp", np.int64),
    ]
)
"""Records outside are read and validated, but get no row."""

RECORD_TABLE: Final = np.dtype(
    [
        ("rows", np.int64),  # so far
        ("headers", np.int64),
        ("needed_headers", np.int64),  # after NEEDS_ROOM: with those of the next record
        ("most_rows", np.int64),
        ("most_bytes", np.int64),  # of all fields, unless one record has more
    ]
)
FIELD: Final = np.dtype(
    [
        ("is_wanted", np.int64),
        ("size_bytes", np.int64),  # so far
        ("needed_bytes", np.int64),  # after NEEDS_ROOM: with the next record's
        ("nulls", np.int64),
        ("whole", np.int64),  # position of the only one, which is not copied; -1: all are copied
    ]
)
KEY, VALUE, HEADER_KEY, HEADER_VALUE = range(4)
"""The rows of the array of FIELD."""
_HEADER_BYTES: Final = 8  # in Arrow's columns, beside its key and value

# Why `add_records` returned.
DONE: Final = 0  # all entries were read
TABLE_FULL: Final = 1  # the table has as many rows or bytes as it may have
BAD: Final = 2  # the next record of entry `cursor.entry` cannot be read
NEEDS_ROOM: Final = 3  # an array has no room for the next record
READ: Final = 4  # of `begin` and `next_message`


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


def read_message(data: Bytes, at: int, stop: int) -> tuple[int, int, int, Place, Place]:
    """Return what the message is whose CRC is at `at`.

    That is its end (-1: damage), its own timestamp and type, its key and its value.
    """
    if stop - at < 6:
        return -1, 0, 0, NO_FIELD, NO_FIELD
    magic, attributes = int8_at(data, at + 4), int8_at(data, at + 5)
    timestamp, stamp_type = NO_TIMESTAMP, NO_TYPE
    at += 6
    if magic != 0:
        if stop - at < 8:
            return -1, 0, 0, NO_FIELD, NO_FIELD
        timestamp = int64_at(data, at)
        stamp_type = APPEND_TYPE if attributes & LOG_APPEND_TIME else CREATE_TYPE
        at += 8
    key_bytes, key, at = legacy_field(data, at, stop)
    if at < 0:
        return -1, 0, 0, NO_FIELD, NO_FIELD
    value_bytes, value, at = legacy_field(data, at, stop)
    return at, timestamp, stamp_type, (key, key_bytes), (value, value_bytes)


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


def next_message(
    data: Bytes, entry: Any, cursor: Any
) -> tuple[int, int, int, int, int, Place, Place]:
    """Return what the next message of an entry of magic 0 or 1 is.

    That is READ, DONE or BAD, its end, offset, timestamp and type, its key and its value.
    """
    at, stop = int(cursor["at"]), int(entry["stop"])
    body, end, offset = at, stop, int(entry["offset"])
    if entry["kind"] == WRAPPED:
        size = int32_at(data, at + 8) if stop - at >= LOG_OVERHEAD else stop
        body, end = at + LOG_OVERHEAD, at + LOG_OVERHEAD + size
        if end > stop:  # truncated: Kafka skips it
            return DONE, 0, 0, 0, 0, NO_FIELD, NO_FIELD
        offset = java_sum(cursor["base"], int64_at(data, at))
    elif cursor["number"] > 0:
        return DONE, 0, 0, 0, 0, NO_FIELD, NO_FIELD
    after, timestamp, stamp_type, key, value = read_message(data, body, end)
    if after < 0:
        return BAD, 0, 0, 0, 0, NO_FIELD, NO_FIELD
    if entry["kind"] == WRAPPED:
        if int8_at(data, body + 5) & CODEC_MASK:
            return BAD, 0, 0, 0, 0, NO_FIELD, NO_FIELD
        if entry["magic"] == 0:
            stamp_type = NO_TYPE
        elif entry["attributes"] & LOG_APPEND_TIME:
            stamp_type = APPEND_TYPE
            if int8_at(data, body + 4) == 1:
                timestamp = int(entry["max_timestamp"])
        else:
            stamp_type = CREATE_TYPE
    return READ, end, offset, timestamp, stamp_type, key, value


def has_room(field: Any, place: Place, more: int, most: int, room: int) -> bool:
    """Return whether a column has room for `more` bytes of a field; note how many are needed.

    A field with more than a whole table may have is alone in its column. It is not copied: its
    place is noted.
    """
    if more > most:
        field["whole"] = place[0]
        return True
    field["needed_bytes"] = field["size_bytes"] + more
    return bool(field["needed_bytes"] <= room)


def put_field(data: Bytes, place: Place, field: Any, number: int, column: Column) -> None:
    """Add a field as the one with this number of its column."""
    ends, is_valid, content = column
    start, size = place
    used = int(field["size_bytes"])
    if size >= 0:
        if field["whole"] < 0:
            copy_bytes(content, used, data, start, size)
        used += size
        field["size_bytes"] = used
        is_valid[number] = 1
    else:
        field["nulls"] += 1
        is_valid[number] = 0
    ends[number + 1] = used


def put_row(
    data: Bytes, row: Row, table: Any, fields: Any, numbers: Numbers, columns: Columns
) -> int:
    """Add a row; return READ, or TABLE_FULL or NEEDS_ROOM."""
    offset, timestamp, stamp_type, key, value, headers = row
    rows, most_bytes = int(table["rows"]), int(table["most_bytes"])
    at, count, more_keys, more_values = headers
    if fields[HEADER_KEY]["is_wanted"] == 0:
        count = more_keys = more_values = 0
    more_key = max(key[1], 0) if fields[KEY]["is_wanted"] else 0
    more_value = max(value[1], 0) if fields[VALUE]["is_wanted"] else 0
    used = more_key + more_value + more_keys + more_values
    for number in range(4):
        used += int(fields[number]["size_bytes"])
    used += _HEADER_BYTES * (int(table["headers"]) + count)
    if rows == table["most_rows"] or (rows > 0 and used > most_bytes):
        return TABLE_FULL
    is_room = rows < len(numbers[0])
    is_room &= has_room(fields[KEY], key, more_key, most_bytes, len(columns[KEY][2]))
    is_room &= has_room(fields[VALUE], value, more_value, most_bytes, len(columns[VALUE][2]))
    number = int(table["headers"])
    if count:
        table["needed_headers"] = number + count
        is_room &= number + count <= len(columns[HEADER_KEY][1])
        alone = most_bytes if count == 1 else MAX_INT32
        size, start, place = sized_at(data, at, len(data))
        room = len(columns[HEADER_KEY][2])
        is_room &= has_room(fields[HEADER_KEY], (start, size), more_keys, alone, room)
        size, start, place = sized_at(data, place, len(data))
        room = len(columns[HEADER_VALUE][2])
        is_room &= has_room(fields[HEADER_VALUE], (start, size), more_values, alone, room)
    if not is_room:
        return NEEDS_ROOM
    numbers[0][rows], numbers[1][rows], numbers[2][rows] = offset, timestamp, stamp_type
    if fields[KEY]["is_wanted"]:
        put_field(data, key, fields[KEY], rows, columns[KEY])
    if fields[VALUE]["is_wanted"]:
        put_field(data, value, fields[VALUE], rows, columns[VALUE])
    for _ in range(count):
        size, start, at = sized_at(data, at, len(data))
        put_field(data, (start, size), fields[HEADER_KEY], number, columns[HEADER_KEY])
        size, start, at = sized_at(data, at, len(data))
        put_field(data, (start, size), fields[HEADER_VALUE], number, columns[HEADER_VALUE])
        number += 1
    table["headers"], table["rows"] = number, rows + 1
    if fields[HEADER_KEY]["is_wanted"]:
        numbers[3][rows + 1] = number
    return READ


def add_plain(
    data: Bytes,
    entry: Any,
    cursor: Any,
    limit: Any,
    table: Any,
    fields: Any,
    numbers: Numbers,
    columns: Columns,
) -> None:
    """Add rows for the next records of magic 2, up to one that is not like nearly all.

    That is one with headers that are wanted, the last one, and one that has no room or no row, or
    is damaged. This is where the time goes, so the record is read here and all that the loop needs
    is in locals.
    """
    offsets, timestamps, timestamp_types, header_ends = numbers
    key_ends, key_is_valid, keys = columns[KEY]
    value_ends, value_is_valid, values = columns[VALUE]
    wants_keys, wants_values = fields[KEY]["is_wanted"] != 0, fields[VALUE]["is_wanted"] != 0
    wants_headers, headers = fields[HEADER_KEY]["is_wanted"] != 0, int(table["headers"])
    key_end, value_end = int(fields[KEY]["size_bytes"]), int(fields[VALUE]["size_bytes"])
    key_nulls, value_nulls = int(fields[KEY]["nulls"]), int(fields[VALUE]["nulls"])
    most_bytes = int(table["most_bytes"] - fields[HEADER_KEY]["size_bytes"])
    most_bytes -= int(fields[HEADER_VALUE]["size_bytes"])
    stop, first_offset = int(entry["stop"]), int(entry["offset"])
    stamp, stamp_type = int(entry["base_timestamp"]), CREATE_TYPE
    is_stamped = entry["attributes"] & LOG_APPEND_TIME != 0
    if is_stamped:
        stamp, stamp_type = int(entry["max_timestamp"]), APPEND_TYPE
    least_offset, most_offset = int(limit["first_offset"]), int(limit["last_offset"])
    least_time, most_time = int(limit["first_timestamp"]), int(limit["last_timestamp"])
    at, rows, first = int(cursor["at"]), int(table["rows"]), int(table["rows"])
    last = rows + int(entry["count"] - cursor["number"]) - 1
    last = min(last, int(table["most_rows"]), len(offsets))
    while rows < last:
        length, place = short_at(data, at, stop, 5)
        if place < 0 or length < 0 or length > stop - place:
            break
        end = place + length
        delta, place = short_at(data, place + 1, end, 10)
        if place < 0:
            break
        timestamp = stamp if is_stamped else java_sum(stamp, delta)
        delta, place = short_at(data, place, end, 5)
        if place < 0:
            break
        offset = java_sum(first_offset, delta)
        key_bytes, key = short_at(data, place, end, 5)
        if key < 0 or key_bytes > end - key:
            break
        value_bytes, value = short_at(data, key + max(key_bytes, 0), end, 5)
        if value < 0 or value_bytes > end - value:
            break
        count, place = short_at(data, value + max(value_bytes, 0), end, 5)
        if count != 0 and place >= 0:
            if wants_headers or count < 0 or count > end - place:
                break
            place = headers_at(data, place, end, count)[0]
        if place != end:
            break
        if offset < least_offset or offset > most_offset:
            break
        if timestamp < least_time or timestamp > most_time or timestamp == NO_TIMESTAMP:
            break
        new_key_end = key_end + (max(key_bytes, 0) if wants_keys else 0)
        new_value_end = value_end + (max(value_bytes, 0) if wants_values else 0)
        if new_key_end > len(keys) or new_value_end > len(values):
            break
        if new_key_end + new_value_end > most_bytes:
            break
        offsets[rows], timestamps[rows], timestamp_types[rows] = offset, timestamp, stamp_type
        if wants_keys:
            copy_bytes(keys, key_end, data, key, new_key_end - key_end)
            key_is_valid[rows] = key_bytes >= 0
            key_nulls += key_bytes < 0
            key_end = new_key_end
            key_ends[rows + 1] = key_end
        if wants_values:
            copy_bytes(values, value_end, data, value, new_value_end - value_end)
            value_is_valid[rows] = value_bytes >= 0
            value_nulls += value_bytes < 0
            value_end = new_value_end
            value_ends[rows + 1] = value_end
        if wants_headers:
            header_ends[rows + 1] = headers
        rows += 1
        at = end
    cursor["at"], table["rows"] = at, rows
    cursor["number"] += rows - first
    fields[KEY]["size_bytes"], fields[VALUE]["size_bytes"] = key_end, value_end
    fields[KEY]["nulls"], fields[VALUE]["nulls"] = key_nulls, value_nulls


def add_entry(
    data: Bytes,
    entry: Any,
    cursor: Any,
    limit: Any,
    table: Any,
    fields: Any,
    numbers: Numbers,
    columns: Columns,
) -> int:
    """Add a row for each next record of an entry inside the limits; return why it stopped."""
    is_v2, stop, count = entry["kind"] == V2_RECORDS, int(entry["stop"]), int(entry["count"])
    while not is_v2 or cursor["number"] != count:
        if is_v2:
            add_plain(data, entry, cursor, limit, table, fields, numbers, columns)
            is_last = cursor["number"] == count - 1
            after, delta, offset_delta, key, value, headers = read_record(data, cursor["at"], stop)
            if after < 0 or (is_last and (after != stop or not entry["is_complete"])):
                return BAD
            offset = java_sum(entry["offset"], offset_delta)
            timestamp, stamp_type = java_sum(entry["base_timestamp"], delta), CREATE_TYPE
            if entry["attributes"] & LOG_APPEND_TIME:
                timestamp, stamp_type = int(entry["max_timestamp"]), APPEND_TYPE
        else:
            outcome, after, offset, timestamp, stamp_type, key, value = next_message(
                data, entry, cursor
            )
            headers = NO_HEADERS
            if outcome != READ:
                return outcome
        if (
            limit["first_offset"] <= offset
            and offset <= limit["last_offset"]
            and limit["first_timestamp"] <= timestamp
            and timestamp <= limit["last_timestamp"]
            and (timestamp != NO_TIMESTAMP or not limit["only_with_timestamp"])
        ):
            row = (offset, timestamp, stamp_type, key, value, headers)
            outcome = put_row(data, row, table, fields, numbers, columns)
            if outcome != READ:
                return outcome
        cursor["at"] = after
        cursor["number"] += 1
    return DONE


def add_records(  # parameters: compiled code takes each array of a table alone
    data: Bytes,
    entries: Any,
    cursors: Any,
    limits: Any,
    tables: Any,
    fields: Any,
    offsets: Any,
    timestamps: Any,
    timestamp_types: Any,
    header_ends: Any,
    key_ends: Any,
    key_is_valid: Any,
    keys: Any,
    value_ends: Any,
    value_is_valid: Any,
    values: Any,
    header_key_ends: Any,
    header_key_is_valid: Any,
    header_keys: Any,
    header_value_ends: Any,
    header_value_is_valid: Any,
    header_values: Any,
) -> int:
    """Add a row for each record of the entries that is inside the limits; return why it stopped.

    `cursors`, `limits` and `tables` are arrays of one CURSOR, RECORD_LIMITS and RECORD_TABLE,
    `fields` of four FIELD. After BAD the caller continues with the next entry.
    """
    cursor, limit, table = cursors[0], limits[0], tables[0]
    numbers = (offsets, timestamps, timestamp_types, header_ends)
    columns = (
        (key_ends, key_is_valid, keys),
        (value_ends, value_is_valid, values),
        (header_key_ends, header_key_is_valid, header_keys),
        (header_value_ends, header_value_is_valid, header_values),
    )
    while cursor["entry"] < len(entries):
        entry = entries[cursor["entry"]]
        if cursor["at"] < 0 and begin(data, entry, cursor) == BAD:
            return BAD
        outcome = add_entry(data, entry, cursor, limit, table, fields, numbers, columns)
        if outcome != DONE:
            return outcome
        cursor["entry"] += 1
        cursor["at"] = -1
    return DONE
