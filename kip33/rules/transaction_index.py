"""The `.txnindex` of a segment, computed when the transactions open at its start are known.

`complete_transactions` gives the result of Kafka's recovery with these transactions, without
reading the log again. A transaction that was open at the start is ended by its producer's first
marker in the segment, and until then no transaction of the segment itself is older.
`indexing.partition_state` finds the transactions open at the start of each segment.

The catalog's column `open_transactions` has the transactions open at a segment's end, as JSON:

    {"5": 1000}    only one: producer 5's, which began at offset 1000
    {}             no transaction is open
    "unchanged"    the segment has no transactions: the same are open at its start and at its end
    null           unknown

The verdict on a `.txnindex`:

    identical    the bytes that recovery gives; or no file or an empty one, if nothing was aborted
    consistent   every aborted transaction is covered, and every entry has its ABORT marker; for
                 example after a broker's cleaner
    incomplete   every entry is true, but an aborted transaction has no entry: `read_committed`
                 consumers would read its records
    wrong        an entry has no ABORT marker of its producer, begins after the transaction does, or
                 has a last stable offset that is too high; or entries are out of order
    malformed    its length is not a multiple of an entry's, or an entry's version is not 0
    missing      there is an `.index` but no `.txnindex`: a broker does not rebuild it
    unknown      the transactions that are open at the segment's start are unknown
"""

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from kip33.errors import CorruptIndexError, counted
from kip33.formats.transaction_index import AbortedTransaction, TransactionIndex
from kip33.rules.index_verdict import IndexVerdict, Verdict
from kip33.rules.transactions import (
    BEGAN_HERE,
    FIRST_END,
    LAST_OFFSET,
    PRODUCER_ID,
    TransactionSummary,
)

UNCHANGED: Final = '"unchanged"'
Open = Mapping[int, int]
"""The first offset of each producer's open transaction."""

_MOST_PROBLEMS: Final = 3
START_UNKNOWN: Final = "the open transactions at the segment's start are not known"


class CompletedTransactions(NamedTuple):
    """The entries of a segment's `.txnindex`, and the transactions open at its end, by producer.

    `aborted` and `open_at_end` are None if unknown; `problem` says why the entries are unknown.
    """

    aborted: tuple[AbortedTransaction, ...] | None
    open_at_end: Mapping[int, int] | None
    problem: str | None = None


def complete_transactions(
    summary: TransactionSummary, open_at_start: Mapping[int, int] | None, *, base_offset: int
) -> CompletedTransactions:
    """Return a segment's aborted and open transactions, given those open at its start.

    `open_at_start` has the first offset of each producer's open transaction; None: unknown. Then
    the entries are known only if the segment has no ABORT marker that could need them.
    """
    problem = None if open_at_start is None else _doubt(summary, open_at_start, base_offset)
    if open_at_start is None or problem:
        if not len(summary.aborts):
            return CompletedTransactions((), None)
        return CompletedTransactions(None, None, problem or START_UNKNOWN)
    aborted = tuple(_aborted(summary, open_at_start))
    offsets = [entry.last_offset for entry in aborted]
    for before, after in pairwise(offsets):
        if after <= before:
            why = f"the abort marker at offset {after} is not above the last one, {before}"
            return CompletedTransactions(None, None, f"{why}: Kafka fails to load")
    still_open = {p: f for p, f in open_at_start.items() if p not in summary.first_ends}
    return CompletedTransactions(aborted, {**summary.open_at_end, **still_open})


def _doubt(
    summary: TransactionSummary, open_at_start: Mapping[int, int], base_offset: int
) -> str | None:
    """Return why these transactions cannot have been open at the start, or None."""
    firsts = open_at_start.values()
    if not firsts:
        return None
    if len(set(firsts)) < len(firsts):
        return "two of the open transactions at the segment's start begin at the same offset"
    latest = max(firsts)
    if latest >= base_offset:
        return f"an open transaction at the segment's start, {base_offset}, begins at {latest}"
    if summary.lowest is not None and summary.lowest <= latest:
        return f"a transaction of the segment begins at {summary.lowest}, before its start"
    return None


def _aborted(
    summary: TransactionSummary, open_at_start: Mapping[int, int]
) -> list[AbortedTransaction]:
    """Return the entries; transactions open at the start have their first offset from there."""
    oldest_first = sorted((first, producer) for producer, first in open_at_start.items())
    oldest = 0
    entries = []
    for producer, first, last, stable, known_by in summary.aborts.tolist():
        while oldest < len(oldest_first):
            ends_at = summary.first_ends.get(oldest_first[oldest][1])
            if ends_at is None or ends_at > last:
                stable = oldest_first[oldest][0]
                break
            oldest += 1
        if known_by & FIRST_END and producer in open_at_start:
            first = open_at_start[producer]
        elif not known_by & BEGAN_HERE:
            continue
        entries.append(AbortedTransaction(producer, first, last, stable))
    return entries


def open_as_json(open_at_end: Open | None) -> str | None:
    """Return the column's value, producers in order."""
    if open_at_end is None:
        return None
    return json.dumps({str(producer): open_at_end[producer] for producer in sorted(open_at_end)})


def open_from_json(text: str | None, open_at_start: Open | None) -> Open | None:
    """Return the transactions open at the segment's end from the column's value; None: unknown.

    >>> open_from_json('{"5": 1000}', None), open_from_json(UNCHANGED, {6: 7})
    ({5: 1000}, {6: 7})
    """
    if text is None:
        return None
    if text == UNCHANGED:
        return open_at_start
    return {int(producer): first_offset for producer, first_offset in json.loads(text).items()}


def transaction_index_verdict(
    data: bytes | None,
    summary: TransactionSummary,
    completed: CompletedTransactions,
    *,
    base_offset: int,
    is_expected: bool,
) -> Verdict | None:
    """Return the verdict on a `.txnindex`, None if there is no file and none is expected.

    `data` is None if there is no file; `is_expected`: there is an `.index` beside it.
    """
    if data is None and not is_expected:
        return None
    aborted = completed.aborted
    if data is None and aborted is not None:
        count = len(aborted)
        if not count:
            return None
        what = (
            f"the .txnindex is missing, and {count} "
            f"transaction{'s were' if count > 1 else ' was'} aborted"
        )
        return Verdict(IndexVerdict.MISSING, None, (what,))
    if aborted is not None:
        expected = TransactionIndex.from_entries(aborted, base_offset=base_offset)
        if data == expected.to_bytes():
            return Verdict(IndexVerdict.IDENTICAL)
    try:
        entries = list(TransactionIndex.from_bytes(data or b"", base_offset=base_offset))
    except CorruptIndexError as error:
        return Verdict(IndexVerdict.MALFORMED, None, (str(error),))
    wrong = [*_untrue(entries, summary), *_other(entries, aborted or ())]
    if wrong:
        return Verdict(IndexVerdict.WRONG, None, tuple(wrong[:_MOST_PROBLEMS]))
    if aborted is None:
        what = "the .txnindex is missing; " if data is None else ""
        return Verdict(IndexVerdict.UNKNOWN, None, (f"{what}{completed.problem}",))
    found = {(entry.producer_id, entry.last_offset) for entry in entries}
    lost = [entry for entry in aborted if (entry.producer_id, entry.last_offset) not in found]
    if lost:
        every = counted(len(aborted), "aborted transaction")
        what = f"{len(lost)} of {every} without an entry"
        return Verdict(IndexVerdict.INCOMPLETE, None, (f"{what}; the first is {_named(lost[0])}",))
    return Verdict(IndexVerdict.CONSISTENT)


def _untrue(entries: list[AbortedTransaction], summary: TransactionSummary) -> Iterator[str]:
    """Yield the contradictions between entries and the segment."""
    markers = {(row[PRODUCER_ID], row[LAST_OFFSET]) for row in summary.aborts.tolist()}
    for number, entry in enumerate(entries):
        if (entry.producer_id, entry.last_offset) not in markers:
            where = (
                f"offset {entry.last_offset} has no ABORT marker of producer {entry.producer_id}"
            )
            yield f"entry {number}: {where}"
    for number, (before, after) in enumerate(pairwise(entries), start=1):
        if after.last_offset <= before.last_offset:
            what = f"last offset {after.last_offset} is not above {before.last_offset}"
            yield f"entry {number}: {what}, the one before"


def _other(
    entries: list[AbortedTransaction], aborted: tuple[AbortedTransaction, ...]
) -> Iterator[str]:
    """Yield the entries that do not cover all records of their aborted transaction."""
    expected = {(entry.producer_id, entry.last_offset): entry for entry in aborted}
    for number, entry in enumerate(entries):
        true = expected.get((entry.producer_id, entry.last_offset))
        if true and entry.first_offset > true.first_offset:
            what = f"first offset {entry.first_offset} found, expected {true.first_offset}"
            yield f"entry {number}: {what}"
        elif true and entry.last_stable_offset > true.last_stable_offset:
            found, right = entry.last_stable_offset, true.last_stable_offset
            yield f"entry {number}: last stable offset {found} found, expected {right}"


def _named(entry: AbortedTransaction) -> str:
    return f"producer {entry.producer_id}'s from offset {entry.first_offset} to {entry.last_offset}"
