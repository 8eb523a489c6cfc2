"""Where the first record at or after a time may be: what segments and index entries promise.

A segment cannot contain a record later than its batches' largest timestamp. An entry (T, o) of its
time index says that no record later than T is before o (kip33), nor at o (recover, live). So a
search for a time later than T begins there, in the first segment that can contain it, and
continues.

Kafka searches only one segment, the first whose `largestTimestamp()` is not below the target, and
answers "unknown" if it has no such record: `UnifiedLog.searchOffsetInLocalLog` (4.1).
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from kip33.errors import CorruptIndexError
from kip33.formats.batch import NO_TIMESTAMP, BatchHeader
from kip33.formats.time_index import TimestampOffset

LATEST: Final = -1  # the offset after the last record
EARLIEST: Final = -2  # the log's start
MAX_TIMESTAMP: Final = -3  # the first record with the largest timestamp
EARLIEST_LOCAL: Final = -4  # the start of the local tier
LATEST_TIERED: Final = -5  # the last offset of the remote tier
TARGETS: Final = {
    "earliest": EARLIEST,
    "latest": LATEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
}
TIER_TARGETS: Final = {EARLIEST_LOCAL: "earliest-local", LATEST_TIERED: "latest-tiered"}
"""Targets that need the catalogs of both tiers."""


class SearchResult(StrEnum):
    """The result of a search for one target; each member is its own text."""

    FOUND = "found"
    BEFORE_START = "before_start"  # found: the partition's first record, later than the target
    AFTER_END = "after_end"
    NO_TIMESTAMPS = "no_timestamps"
    NO_SUCH_PARTITION = "no_such_partition"
    NOT_IN_TIER = "not_in_tier"  # the tier that the target names has no segment of the partition


class Exactness(StrEnum):
    """How exact the answer of a search is; each member is its own text."""

    RECORD = "record"  # the very record
    INDEX = "index"  # no log was opened: no record at or after the target is before the offset
    BATCH = "batch"  # the same promise, for a batch whose records cannot be decoded
    UNSURE = "unsure"  # a segment was skipped or is missing: an earlier record could be there


class Trap(StrEnum):
    """What hides later records from a broker that looks into one segment only."""

    FILE_TIME = "file_time"
    BELOW_LOG_START = "below_log_start"
    EMPTIED = "emptied"


TRAPS: Final = {
    Trap.FILE_TIME: "it has no timestamps, so its file's modification time is used",
    Trap.BELOW_LOG_START: "no record at or after the log start offset is late enough",
    Trap.EMPTIED: (
        "a batch header has a timestamp that is late enough, but no record has; compaction "
        "may have removed it"
    ),
}

# Versions for `--as kafka:VERSION`. Answers for times are the same since 3.0, but for a limit.
OLDEST_KAFKA: Final = (3, 0)  # the first that answers for the largest timestamp
NEWEST_KAFKA: Final = (4, 4)
LIMITS_RECORDS: Final = (4, 4)  # the first that has max.decompressed.message.bytes
READS_THE_MAX: Final = (3, 8)  # the first that finds its record in the log; before: the index entry

_NAMES_NEXT: Final = "kip33"  # the dialect whose entries name the offset after a batch
_NAME_THE_RECORD: Final = ("recover", "live")  # theirs names one with the timestamp, or a later one


class Claim(NamedTuple):
    """What an index entry says about the batches after a position, to be checked against them.

    The entry's batch has its timestamp, and no batch in between has a later one. `next_offset`: the
    entry names the offset after its batch. `tight`: the batches begin one index point before the
    entry's, so one of them must have its timestamp in every dialect. `within_ms`: the entry has the
    beginning of a period of this length (some index designs), and its batch is in this period.
    """

    entry: TimestampOffset
    next_offset: bool
    tight: bool
    within_ms: int | None = None


def require_target(target_ms: int) -> None:
    """Raise ValueError for a target that is neither a time nor one of TARGETS."""
    if target_ms < 0 and target_ms not in TARGETS.values():
        names = ", ".join(f"{target} ({name})" for name, target in TARGETS.items())
        raise ValueError(f"target {target_ms}: expected milliseconds since 1970, or {names}")


def require_tiers(targets_ms: Iterable[int]) -> None:
    """Raise ValueError for a target that one catalog cannot answer."""
    for target in targets_ms:
        if target in TIER_TARGETS:
            raise ValueError(
                f"{TIER_TARGETS[target]} needs both tiers: give the catalog of the brokers' log "
                "directories and that of the remote tier"
            )


def parse_kafka_version(text: str) -> tuple[int, int]:
    """Return the major and minor number of a release of Kafka.

    ValueError unless it is OLDEST_KAFKA or later.

    >>> parse_kafka_version("3.7.2")
    (3, 7)
    """
    numbers = text.split(".") if isinstance(text, str) else []
    if len(numbers) in (2, 3) and all(n.isascii() and n.isdigit() for n in numbers):
        version = int(numbers[0]), int(numbers[1])
        if version >= OLDEST_KAFKA:
            return version
    oldest = ".".join(map(str, OLDEST_KAFKA))
    raise ValueError(f"{text!r} is not a version of Kafka: expected {oldest} or later, such as 3.7")


def may_hold(max_timestamp: int | None, target_ms: int) -> bool:
    """Return whether a segment may have a record at or after a time; None: its max is unknown."""
    return max_timestamp is None or max_timestamp >= target_ms


def may_lack_timestamps(max_timestamp: int | None, smallest_timestamp: int | None) -> bool | None:
    """Return whether a segment has a record without a timestamp; None: its figures do not tell.

    Such a record is not older than a time: it is not known when it was sent.

    >>> may_lack_timestamps(-1, None), may_lack_timestamps(9, -1), may_lack_timestamps(9, 5)
    (True, True, False)
    """
    if NO_TIMESTAMP in (max_timestamp, smallest_timestamp):
        return True
    return None if max_timestamp is None or smallest_timestamp is None else False


def kafkas_choice(largest_timestamps: Sequence[int | None], target_ms: int) -> int | None:
    """Return the number of the one segment that a broker searches for a time; None: it has none.

    >>> kafkas_choice([1000, None, 2000, 3000], 1001)
    2
    """
    for place, largest in enumerate(largest_timestamps):
        if largest is not None and largest >= target_ms:
            return place
    return None


def trap(*, max_timestamp: int | None, target_ms: int, begins_below_start: bool) -> Trap:
    """Return the trap: why the segment that a broker chose gives no record."""
    if not may_hold(max_timestamp, target_ms):
        return Trap.FILE_TIME
    return Trap.BELOW_LOG_START if begins_below_start else Trap.EMPTIED


def largest_of(max_timestamps: Sequence[int | None]) -> int:
    """Return the largest known timestamp of a partition, else NO_TIMESTAMP."""
    return max((known for known in max_timestamps if known is not None), default=NO_TIMESTAMP)


def choice_for_max(max_timestamps: Sequence[int | None]) -> int | None:
    """Return the number of the segment in which a broker finds the largest timestamp: the first.

    If no record has a timestamp, this is the first segment, and the largest is -1.
    """
    largest = largest_of(max_timestamps)
    return max_timestamps.index(largest) if largest in max_timestamps else None


def first_offset_after(entry: TimestampOffset, dialect: str | None) -> int:
    """Return the first offset at which a record later than the entry's time may be.

    With `recover` and `live` the entry's record, or a later one of its batch, has the largest
    timestamp so far, so it and all records before it are not later. `kip33` names the offset after
    that. For an unknown writer the smaller of the two is returned.

    >>> first_offset_after(TimestampOffset(1000, 41), "recover")
    42
    >>> first_offset_after(TimestampOffset(1000, 42), "kip33")
    42
    """
    return entry.offset + (dialect in _NAME_THE_RECORD)


def names_next_offset(dialect: str | None) -> bool:
    """Return whether an entry's offset is the one after its batch."""
    return dialect == _NAMES_NEXT


def require_order(
    neighbours: Sequence[TimestampOffset], *, base_offset: int, last_offset: int | None
) -> None:
    """Raise CorruptIndexError unless neighbouring entries increase and are in their segment."""
    for low, high in pairwise(neighbours):
        if low.timestamp >= high.timestamp or low.offset > high.offset:
            raise CorruptIndexError(f"entries out of order: {tuple(low)}, {tuple(high)}")
    for entry in neighbours:
        if entry.timestamp < 0 or entry.offset < base_offset:
            raise CorruptIndexError(
                f"entry {tuple(entry)} does not belong to base offset {base_offset}"
            )
        if last_offset is not None and entry.offset > last_offset + 1:
            raise CorruptIndexError(f"entry {tuple(entry)} is after the last offset {last_offset}")


def bears_out(headers: Sequence[BatchHeader], claim: Claim, target_ms: int) -> bool:
    """Return whether the batches match an entry's claim; the last of them is the entry's.

    `headers` are from the position where a search for `target_ms` would begin to the first batch
    whose last offset reaches the entry's (kip33: the offset before).
    """
    timestamp, offset = claim.entry
    if not headers:
        return False
    last = headers[-1]
    if claim.within_ms is not None:
        earlier = all(header.max_timestamp <= timestamp for header in headers[:-1])
        is_in_period = 0 <= last.max_timestamp - timestamp < claim.within_ms
        return earlier and is_in_period and (last.magic < 2 or last.base_offset <= offset)
    largest = max(header.max_timestamp for header in headers)
    if largest > timestamp:
        return False
    if claim.tight and (largest != timestamp or headers[0].max_timestamp >= target_ms):
        return False
    if claim.next_offset:
        return last.last_offset == offset - 1
    # For a wrapper both are its last offset, the one that every writer records.
    return last.max_timestamp == timestamp and last.base_offset <= offset <= last.last_offset


def reach_of(claim: Claim) -> int:
    """Return the offset that the entry's batch must reach."""
    return claim.entry.offset - claim.next_offset
