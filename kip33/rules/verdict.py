"""What to call an index file that lies beside its log.

    missing      there is none
    malformed    its length is no multiple of an entry's
    identical    the bytes a dialect gives
    padded       zero or more true entries, then zeros. Stale entries count as padding only behind
                 a true entry, in a file that ends in zeros or has a preallocated file's size
    wrong        an entry is not true of the log, order included
    incomplete   every entry is true, but the closing one is absent: retention would misjudge
    consistent   every entry is true and the last stair is there; only the density differs

The first that applies, except that `padded` is looked for where an entry is untrue.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kip33.formats.batch import NO_TIMESTAMP
from kip33.formats.index_bytes import IndexBytes
from kip33.rules.entries import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kip33.rules.truth import OffsetIndexTruth, TimeIndexTruth, Untrue

MISSING: Final = "missing"
MALFORMED: Final = "malformed"
IDENTICAL: Final = "identical"
PADDED: Final = "padded"
WRONG: Final = "wrong"
INCOMPLETE: Final = "incomplete"
CONSISTENT: Final = "consistent"
UNREADABLE: Final = "unreadable"  # the log or the index could not be read: nothing is held
VERDICTS: Final = (
    *(IDENTICAL, CONSISTENT, INCOMPLETE, PADDED, WRONG, MALFORMED, MISSING, UNREADABLE),
)
GOOD: Final = (IDENTICAL, CONSISTENT)


class Verdict(NamedTuple):
    """The verdict on one file; `dialect` says whose bytes or meaning it has, None: Kafka's."""

    verdict: str
    dialect: str | None = None
    problems: tuple[str, ...] = ()


def time_index_verdict(
    data: IndexBytes,
    truth: TimeIndexTruth,
    dialect_bytes: Mapping[str, bytes | None],
    *,
    preallocated_bytes: tuple[int, ...],
) -> Verdict:
    """Return the verdict on a `.timeindex` of whole entries, given each dialect's own bytes."""
    for dialect, expected in dialect_bytes.items():
        if data == expected:
            return Verdict(IDENTICAL, dialect)
    dialect_of_truth = None
    faults = truth.untrue(next_offset=False)
    if faults and not truth.untrue(next_offset=True):
        faults, dialect_of_truth = None, "kip33"
    if faults:
        return _untrue(data, faults, TIME_ENTRY_BYTES, preallocated_bytes)
    entries = len(data) // TIME_ENTRY_BYTES
    last = NO_TIMESTAMP
    if entries:
        last = int.from_bytes(bytes(data[-TIME_ENTRY_BYTES:][:8]), "big", signed=True)
    if last < truth.max_timestamp:
        problem = (
            f"the closing entry is absent: the log's max timestamp is {truth.max_timestamp}, "
            + (f"the last entry says {last}" if entries else "there is no entry")
        )
        return Verdict(INCOMPLETE, dialect_of_truth, (problem,))
    return Verdict(CONSISTENT, dialect_of_truth)


def offset_index_verdict(
    data: IndexBytes,
    truth: OffsetIndexTruth,
    expected: bytes | None,
    *,
    preallocated_bytes: tuple[int, ...],
) -> Verdict:
    """Return the verdict on an `.index` of whole entries, given what recovery would write."""
    if data == expected:
        return Verdict(IDENTICAL)
    faults = truth.untrue()
    if faults:
        return _untrue(data, faults, OFFSET_ENTRY_BYTES, preallocated_bytes)
    return Verdict(CONSISTENT)


def _untrue(
    data: IndexBytes, faults: Untrue, entry_bytes: int, preallocated_bytes: tuple[int, ...]
) -> Verdict:
    true_entries = faults.first
    tail = data[true_entries * entry_bytes :]
    if tail.is_zeros:
        what = f"{true_entries} true entries, then {len(tail)} zero bytes"
        return Verdict(PADDED, None, (what,))
    if true_entries and (data[-entry_bytes:].is_zeros or len(data) in preallocated_bytes):
        what = (
            f"{true_entries} true entries, then stale ones, "
            f"the file ends in {tail.zeros} zero bytes of {len(data)}"
        )
        return Verdict(PADDED, None, (what,))
    problems = faults.problems
    if faults.entries > len(problems):
        problems += (f"and {faults.entries - len(problems)} more untrue entries",)
    return Verdict(WRONG, None, problems)
