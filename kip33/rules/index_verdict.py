"""The verdict on an index file, compared with its log.

    missing      there is no file
    malformed    its length is not a multiple of an entry's
    identical    it has the bytes that a dialect gives
    padded       zero or more true entries, then zeros. Stale entries are padding only after a true
                 entry, in a file that ends in zeros or has a preallocated file's size. A crash
                 leaves such files; before Kafka 4.4 also a machine that fails after a clean stop
                 (KAFKA-20979)
    wrong        an entry is not true of the log, or is out of order
    incomplete   every entry is true, but the closing one is missing: retention would misjudge
    sparse       every entry is true, but some are missing, so that lookups read much of the log:
                 `rules.index_truth` counts them, for the given interval
    consistent   every entry is true and the last stair is there; only the density differs

The entries of a `.timeindex` have two meanings (`rules.index_truth`). It is judged in the meaning
of the given dialect. One flipped bit may turn Kafka's meaning into the kip33 dialect's.

The first verdict that applies is returned, except that `padded` is tried only if an entry is wrong.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from kip33.errors import counted
from kip33.formats.batch import NO_TIMESTAMP
from kip33.formats.time_index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, IndexBytes
from kip33.rules.index_truth import IndexGaps, OffsetIndexTruth, TimeIndexTruth, Untrue


class IndexVerdict(StrEnum):
    """The verdict on a `.timeindex`, a `.index` or a `.txnindex`; each member is its own text.

    The order is that of summaries.

    >>> IndexVerdict.SPARSE == "sparse"
    True
    """

    IDENTICAL = "identical"
    CONSISTENT = "consistent"
    SPARSE = "sparse"
    INCOMPLETE = "incomplete"
    PADDED = "padded"
    WRONG = "wrong"
    MALFORMED = "malformed"
    MISSING = "missing"
    UNKNOWN = "unknown"  # of a .txnindex: what is open where the segment begins is not known
    UNREADABLE = "unreadable"  # the log or the index could not be read
    ARCHIVED = "archived"  # one of them is in S3 Glacier and was not restored


NOT_COMPARED: Final = (IndexVerdict.UNREADABLE, IndexVerdict.ARCHIVED)
GOOD: Final = (IndexVerdict.IDENTICAL, IndexVerdict.CONSISTENT)
TRUE: Final = (*GOOD, IndexVerdict.SPARSE, IndexVerdict.INCOMPLETE)  # every entry is


_FILE_TIME: Final = (
    "the log has no timestamps; is this a file of build --untimestamped, with the time of the log "
    "file? Then verify with the same option, or build again if the time has changed"
)


class Verdict(NamedTuple):
    """The verdict on one file; `dialect` says whose bytes or meaning it has, None: Kafka's."""

    verdict: IndexVerdict
    dialect: str | None = None
    problems: tuple[str, ...] = ()


def time_index_verdict(
    data: IndexBytes,
    truth: TimeIndexTruth,
    dialect_bytes: Mapping[str, bytes | None],
    *,
    next_offset: bool,
    unseen_append_bytes: int,
    preallocated_bytes: tuple[int, ...],
) -> Verdict:
    """Return the verdict on a `.timeindex` of complete entries, given each dialect's own bytes.

    `dialect_bytes` has the dialects of one meaning, and `next_offset` says which one.
    """
    for dialect, expected in dialect_bytes.items():
        if data == expected:
            return Verdict(IndexVerdict.IDENTICAL, dialect)
    faults = truth.untrue(next_offset=next_offset)
    if faults:
        verdict = _untrue(data, faults, TIME_ENTRY_BYTES, preallocated_bytes)
        if truth.max_timestamp == NO_TIMESTAMP and len(data) == TIME_ENTRY_BYTES:
            return verdict._replace(problems=(*verdict.problems, _FILE_TIME))
        is_wrong = verdict.verdict == IndexVerdict.WRONG
        if is_wrong and (hint := truth.other_dialect(next_offset=next_offset)):
            return verdict._replace(problems=(*verdict.problems, hint))
        return verdict
    dialect_of_truth = "kip33" if next_offset else None
    entries = len(data) // TIME_ENTRY_BYTES
    last = NO_TIMESTAMP
    if entries:
        last = int.from_bytes(bytes(data[-TIME_ENTRY_BYTES:][:8]), "big", signed=True)
    if last < truth.max_timestamp:
        problem = (
            f"the closing entry is missing: the log's max timestamp is {truth.max_timestamp}, "
        ) + (f"the last entry says {last}" if entries else "the index has no entry")
        return Verdict(IndexVerdict.INCOMPLETE, dialect_of_truth, (problem,))
    return _true(truth.gaps, unseen_append_bytes, dialect_of_truth)


def offset_index_verdict(
    data: IndexBytes,
    truth: OffsetIndexTruth,
    expected: bytes | None,
    *,
    preallocated_bytes: tuple[int, ...],
) -> Verdict:
    """Return the verdict on an `.index` of complete entries, given what recovery would write."""
    if data == expected:
        return Verdict(IndexVerdict.IDENTICAL)
    faults = truth.untrue()
    if faults:
        return _untrue(data, faults, OFFSET_ENTRY_BYTES, preallocated_bytes)
    return _true(truth.gaps, truth.gaps.largest_append_bytes)


def _true(gaps: IndexGaps, unseen_append_bytes: int, dialect: str | None = None) -> Verdict:
    gap = gaps.sparse(unseen_append_bytes)
    if gap:
        return Verdict(IndexVerdict.SPARSE, dialect, (str(gap),))
    return Verdict(IndexVerdict.CONSISTENT, dialect)


def _untrue(
    data: IndexBytes, faults: Untrue, entry_bytes: int, preallocated_bytes: tuple[int, ...]
) -> Verdict:
    true_entries = faults.first
    tail = data[true_entries * entry_bytes :]
    if tail.is_zeros:
        what = f"{counted(true_entries, 'correct entry')}, then {counted(len(tail), 'zero byte')}"
        return Verdict(IndexVerdict.PADDED, None, (what,))
    if true_entries and (data[-entry_bytes:].is_zeros or len(data) in preallocated_bytes):
        what = (
            f"{counted(true_entries, 'correct entry')}, then stale entries; the file ends with "
            f"{tail.zeros} zero bytes of {len(data)}"
        )
        return Verdict(IndexVerdict.PADDED, None, (what,))
    problems = faults.problems
    if faults.entries > len(problems):
        problems += (f"and {counted(faults.entries - len(problems), 'other wrong entry')}",)
    return Verdict(IndexVerdict.WRONG, None, problems)
