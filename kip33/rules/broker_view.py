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

from typing import Final, NamedTuple

from kip33.formats.time_index import TIME_ENTRY, TIME_ENTRY_BYTES
from kip33.rules.segment_summary import largest_timestamp

FROM_TIME_INDEX: Final = "time_index"
LAST_MODIFIED: Final = "last_modified"
RECOVERED: Final = "recovered"
SOURCES: Final = (FROM_TIME_INDEX, LAST_MODIFIED, RECOVERED)

# What is wrong with a time index that is believed.
MISSING_INDEX: Final = "missing"
EMPTY_INDEX: Final = "empty"  # or shorter than one entry
ZERO_TIMESTAMP: Final = "zero_timestamp"  # padding, most likely: such a segment expires at once
NEGATIVE_TIMESTAMP: Final = "negative_timestamp"
OTHER_TIMESTAMP: Final = "other_timestamp"
FAULTS: Final = (MISSING_INDEX, EMPTY_INDEX, ZERO_TIMESTAMP, NEGATIVE_TIMESTAMP, OTHER_TIMESTAMP)


class BrokerView(NamedTuple):
    """The largest timestamp that a broker uses for a segment."""

    largest_timestamp: int
    source: str  # one of SOURCES
    fault: str | None  # one of FAULTS; None if the log itself says the same


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
    ... )
    BrokerView(largest_timestamp=0, source='time_index', fault='zero_timestamp')
    """
    true_time, true_source = largest_timestamp(max_timestamp, last_modified_ms)
    recorded = max_timestamp >= 0
    if not has_offset_index:
        return BrokerView(true_time, RECOVERED if recorded else true_source, None)
    if time_index_bytes is None or last_entry_at(time_index_bytes) is None:
        fault = MISSING_INDEX if time_index_bytes is None else EMPTY_INDEX
        return BrokerView(last_modified_ms, LAST_MODIFIED, fault if recorded else None)
    if len(last_entry) != TIME_ENTRY_BYTES:
        raise ValueError(f"the last entry has {len(last_entry)} bytes, expected {TIME_ENTRY_BYTES}")
    timestamp = int.from_bytes(last_entry[: TIME_ENTRY["timestamp"].itemsize], "big", signed=True)
    if timestamp < 0:
        return BrokerView(last_modified_ms, LAST_MODIFIED, NEGATIVE_TIMESTAMP if recorded else None)
    fault = ZERO_TIMESTAMP if timestamp == 0 else OTHER_TIMESTAMP
    return BrokerView(timestamp, FROM_TIME_INDEX, None if timestamp == max_timestamp else fault)
