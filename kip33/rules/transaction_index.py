"""The `.txnindex` of a segment, computed when the transactions open at its start are known.

`complete_transactions` gives the result of Kafka's recovery with these transactions, without
reading the log again. A transaction that was open at the start is ended by its producer's first
marker in the segment, and until then no transaction of the segment itself is older.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from kip33.formats.transaction_index import AbortedTransaction
from kip33.rules.transaction_summary import TransactionSummary
from kip33.rules.transactions import BEGAN_HERE, FIRST_END

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
    offsets = [one.last_offset for one in aborted]
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
