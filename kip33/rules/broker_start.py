"""What a broker does with a segment when it starts, given the index files beside the log.

A broker recovers an old segment only if its `.index` is missing. Recovery cuts a damaged tail and
rewrites all index files. If there is an `.index`, whatever its content, the segment is loaded
unchanged: a damaged tail stays, and consumers fail on it. A log that recovery cannot process
(status `invalid`) keeps the broker from starting if its `.index` is missing (kafka-storage 4.1:
`LogLoader.loadSegmentFiles` does not handle this error). So kip33 never puts an `.index` beside a
damaged log, and what it does with an existing one depends on the log.

The largest timestamp that a broker uses for a segment, in Kafka 2.3 and later (KAFKA-7283), after a
clean shutdown, for every segment including the last one:

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

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from kip33.formats.names import SegmentFile
from kip33.formats.time_index import TIME_ENTRY, TIME_ENTRY_BYTES
from kip33.rules.index_entries import DIALECTS
from kip33.rules.index_verdict import GOOD, IndexVerdict
from kip33.rules.segment_summary import UNDAMAGED_STATUSES, SegmentStatus

# The meaning of a segment's status for a broker that recovers it.
CUT: Final = SegmentStatus.TRUNCATED  # recovery cuts the log to its valid bytes
REFUSED: Final = SegmentStatus.INVALID  # recovery fails, or empties or splits the segment
MAY_NOT_START: Final = "a broker may not start"
SPLITS: Final = "a broker that starts splits this segment, and nothing is lost"


def renamed_swaps(files: Iterable[SegmentFile]) -> set[int]:
    """The base offsets of the `.log.swap` files that a broker renames into place when it starts.

    Such a file is finished output of the cleaner. It replaces the logs whose offsets it covers. If
    a `.cleaned` file has the same offset or a smaller one, the output is unfinished, and the broker
    deletes both: the logs are still there (`LogLoader.load`).

    >>> swap = SegmentFile(0, "log", "swap")
    >>> renamed_swaps([swap]), renamed_swaps([swap, SegmentFile(0, "index", "cleaned")])
    ({0}, set())
    """
    named = list(files)
    cleaned = [one.base_offset for one in named if one.suffix == "cleaned"]
    swaps = {one.base_offset for one in named if (one.kind, one.suffix) == ("log", "swap")}
    return {
        base_offset for base_offset in swaps if base_offset < min(cleaned, default=base_offset + 1)
    }


def may_have_offset_index(status: str) -> bool:
    """Return whether an `.index` may be put beside a log of this status."""
    return status in UNDAMAGED_STATUSES


class RepairAction(StrEnum):
    """What a repair does with one index file; each member is its own text.

    The order is that of summaries.
    """

    WRITE = "write"
    REMOVE = "remove"
    BROKER = "broker"  # left to the broker, which writes it when it starts
    BY_HAND = "by hand"  # neither kip33 nor a broker can repair it
    KEEP = "keep"


class Repair(NamedTuple):
    """The repair of a segment's index files, and the reason."""

    time_index: RepairAction
    offset_index: RepairAction
    why: str | None = None

    @property
    def changes_files(self) -> bool:
        """Return whether the repair changes files."""
        return bool({RepairAction.WRITE, RepairAction.REMOVE} & set(self[:2]))


def repair_of(
    status: str,
    time_verdict: IndexVerdict,
    offset_verdict: IndexVerdict | None,
    *,
    time_dialect: str | None = None,
    error: str | None = None,
    cut_bytes: int = 0,
    aborts_lost: bool = False,
    is_split: bool = False,
) -> Repair:
    """Return the repair of a segment's index files after which a broker reads them correctly.

    The verdicts are those of `rules.index_verdict`; None: there is no `.index`. `time_dialect` is
    the dialect of the `.timeindex`, `error` says why the log has this status, `cut_bytes` is how
    much of it recovery would cut, `aborts_lost` whether aborted transactions are missing from the
    `.txnindex`, `is_split` whether recovery splits the segment.
    """
    has_offset_index = offset_verdict not in (None, IndexVerdict.MISSING)
    if status not in (*UNDAMAGED_STATUSES, CUT, REFUSED):
        return Repair(
            RepairAction.BY_HAND,
            RepairAction.BY_HAND,
            f"the log cannot be read: {error}; fix it and run the command again",
        )
    if IndexVerdict.UNREADABLE in (time_verdict, offset_verdict):
        return Repair(
            RepairAction.BY_HAND,
            RepairAction.BY_HAND,
            "an index file cannot be read; fix it and run the command again",
        )
    if is_split and not has_offset_index:
        return Repair(RepairAction.BROKER, RepairAction.BROKER, f"{SPLITS} ({error})")
    if is_split:
        return Repair(
            RepairAction.KEEP,
            RepairAction.KEEP,
            f"{error}; a broker that finds its .index loads it as it is",
        )
    if status == REFUSED:
        what = "leave the .index where it is" if has_offset_index else "the .index is missing"
        return Repair(
            RepairAction.KEEP,
            RepairAction.BY_HAND,
            f"{what}: {MAY_NOT_START} if it has to recover this log ({error}); restore "
            "the log from a replica or a backup",
        )
    if not has_offset_index:
        cut = f", and cuts {cut_bytes} damaged bytes of the log" if status == CUT else ""
        return Repair(
            RepairAction.BROKER,
            RepairAction.BROKER,
            f"a starting broker writes both, because the .index is missing{cut}",
        )
    if status == CUT:
        return Repair(
            RepairAction.BROKER,
            RepairAction.REMOVE,
            f"if the .index is missing, a starting broker cuts {cut_bytes} damaged "
            f"bytes of the log ({error}) and writes both",
        )
    if aborts_lost:
        return Repair(
            RepairAction.BROKER,
            RepairAction.REMOVE,
            "the .txnindex lacks aborted transactions, which read_committed consumers "
            "would read; if the .index is missing, a starting broker writes all three",
        )
    reasons = []
    time_index = offset_index = RepairAction.KEEP
    if time_dialect in DIALECTS and not DIALECTS[time_dialect].written_by_brokers:
        time_index = RepairAction.WRITE
        reasons.append(f"the .timeindex has dialect {time_dialect}, which brokers do not write")
    elif time_verdict not in GOOD:
        time_index = RepairAction.WRITE
        reasons.append(f"the .timeindex is {time_verdict}")
    if offset_verdict not in GOOD:
        offset_index = RepairAction.WRITE
        reasons.append(f"the .index is {offset_verdict}")
    return Repair(time_index, offset_index, "; ".join(reasons) or None)


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
