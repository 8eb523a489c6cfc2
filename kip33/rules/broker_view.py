"""The largest timestamp that a broker uses for a segment, given the indexes beside the log.

Kafka 2.3 and later (KAFKA-7283), after a clean shutdown, for every segment including the last one:

    .index    .timeindex                   largest timestamp
    missing   anything                     the log's: the segment is recovered
    there     missing, or under 12 bytes   the log file's modification time
    there     12 bytes or more             the last entry's timestamp, without any check; if it is
                                           negative, the log file's modification time

Zeros left by preallocation are read as a timestamp of 0 (KAFKA-10207); bytes after the last
complete entry are ignored. A recovered log without a timestamp also gets its modification time.
After an unclean shutdown the segment with the recovery point and all later ones are recovered, and
their index files do not matter. In the last segment, entries beyond segment.index.bytes keep the
log from loading.
"""

from enum import StrEnum
from typing import NamedTuple

from kip33.formats.time_index import TIME_ENTRY, TIME_ENTRY_BYTES


class BrokerTimestampSource(StrEnum):
    """Where a broker takes a segment's largest timestamp from; each member is its own text."""

    TIME_INDEX = "time_index"
    LAST_MODIFIED = "last_modified"
    RECOVERED = "recovered"


class IndexFault(StrEnum):
    """What is wrong with a time index that a broker believes; each member is its own text."""

    MISSING = "missing"
    EMPTY = "empty"  # or shorter than one entry
    ZERO_TIMESTAMP = "zero_timestamp"  # padding, most likely: such a segment expires at once
    NEGATIVE_TIMESTAMP = "negative_timestamp"
    OTHER_TIMESTAMP = "other_timestamp"
    UNREADABLE = "unreadable"  # nothing can be said


class BrokerView(NamedTuple):
    """The largest timestamp that a broker uses for a segment."""

    largest_timestamp: int
    source: BrokerTimestampSource
    fault: IndexFault | None  # None if the log itself says the same


def last_entry_at(time_index_bytes: int) -> int | None:
    """Return the position of the last complete entry of a `.timeindex` of this size, None without.

    >>> last_entry_at(30)
    12
    """
    entries = time_index_bytes // TIME_ENTRY_BYTES
    return (entries - 1) * TIME_ENTRY_BYTES if entries else None


def broker_view(
    *,
    time_index_bytes: int | None,
    last_entry: bytes,
    has_offset_index: bool,
    max_timestamp: int,
    last_modified_ms: int,
) -> BrokerView:
    """Return the largest timestamp that a broker uses for a segment, and the fault if it is wrong.

    `time_index_bytes` is None for a missing file; `last_entry` has the 12 bytes at `last_entry_at`.
    `max_timestamp` is the log's, -1 without a timestamp.

    >>> broker_view(
    ...     time_index_bytes=10485756,
    ...     last_entry=bytes(12),
    ...     has_offset_index=True,
    ...     max_timestamp=1700000000250,
    ...     last_modified_ms=1700000009000,
    ... ).fault
    <IndexFault.ZERO_TIMESTAMP: 'zero_timestamp'>
    """
    recorded = max_timestamp >= 0
    if not has_offset_index and recorded:
        return BrokerView(max_timestamp, BrokerTimestampSource.RECOVERED, None)
    if not has_offset_index:
        return _by_file(last_modified_ms, None)
    if time_index_bytes is None or last_entry_at(time_index_bytes) is None:
        fault = IndexFault.MISSING if time_index_bytes is None else IndexFault.EMPTY
        return _by_file(last_modified_ms, fault if recorded else None)
    if len(last_entry) != TIME_ENTRY_BYTES:
        raise ValueError(f"the last entry has {len(last_entry)} bytes, expected {TIME_ENTRY_BYTES}")
    timestamp = int.from_bytes(last_entry[: TIME_ENTRY["timestamp"].itemsize], "big", signed=True)
    if timestamp < 0:
        return _by_file(last_modified_ms, IndexFault.NEGATIVE_TIMESTAMP if recorded else None)
    fault = IndexFault.ZERO_TIMESTAMP if timestamp == 0 else IndexFault.OTHER_TIMESTAMP
    is_right = timestamp == max_timestamp
    return BrokerView(timestamp, BrokerTimestampSource.TIME_INDEX, None if is_right else fault)


def _by_file(last_modified_ms: int, fault: IndexFault | None) -> BrokerView:
    return BrokerView(last_modified_ms, BrokerTimestampSource.LAST_MODIFIED, fault)
