"""The verdict on a `.txnindex`.

identical    the bytes that recovery gives; or no file or an empty one, if nothing was aborted
consistent   every aborted transaction is covered, and every entry has its ABORT marker; for
             example after a broker's cleaner
incomplete   every entry is true, but an aborted transaction has no entry: `read_committed`
             consumers would read its records
wrong        an entry has no ABORT marker of its producer, begins after the transaction does, or has
             a last stable offset that is too high; or entries are out of order
malformed    its length is not a multiple of an entry's, or an entry's version is not 0
missing      there is an `.index` but no `.txnindex`: a broker does not rebuild it
unknown      the transactions that are open at the segment's start are unknown
"""

from collections.abc import Iterator
from itertools import pairwise

from kip33.errors import CorruptIndexError
from kip33.formats.transaction_index import AbortedTransaction, TransactionIndex
from kip33.rules.index_verdict import IndexVerdict, Verdict
from kip33.rules.transaction_index import CompletedTransactions
from kip33.rules.transaction_summary import TransactionSummary
from kip33.rules.transactions import LAST_OFFSET, PRODUCER_ID

MOST_PROBLEMS = 3


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
    if completed.aborted is None:
        return _of_unknown(data, summary, completed, base_offset)
    if data is None:
        count = len(completed.aborted)
        if not count:
            return None
        what = (
            f"the .txnindex is missing, and {count} "
            f"transaction{'s were' if count > 1 else ' was'} aborted"
        )
        return Verdict(IndexVerdict.MISSING, None, (what,))
    expected = TransactionIndex.from_entries(completed.aborted, base_offset=base_offset)
    if data == expected.to_bytes():
        return Verdict(IndexVerdict.IDENTICAL)
    try:
        entries = list(TransactionIndex.from_bytes(data, base_offset=base_offset))
    except CorruptIndexError as error:
        return Verdict(IndexVerdict.MALFORMED, None, (str(error),))
    wrong = [*_untrue(entries, summary), *_other(entries, completed.aborted)]
    if wrong:
        return Verdict(IndexVerdict.WRONG, None, tuple(wrong[:MOST_PROBLEMS]))
    found = {(one.producer_id, one.last_offset) for one in entries}
    lost = [one for one in completed.aborted if (one.producer_id, one.last_offset) not in found]
    if lost:
        what = f"{len(lost)} of {len(completed.aborted)} aborted transactions have no entry"
        return Verdict(IndexVerdict.INCOMPLETE, None, (f"{what}; the first is {_named(lost[0])}",))
    return Verdict(IndexVerdict.CONSISTENT)


def _of_unknown(
    data: bytes | None,
    summary: TransactionSummary,
    completed: CompletedTransactions,
    base_offset: int,
) -> Verdict:
    try:
        entries = list(TransactionIndex.from_bytes(data or b"", base_offset=base_offset))
    except CorruptIndexError as error:
        return Verdict(IndexVerdict.MALFORMED, None, (str(error),))
    wrong = list(_untrue(entries, summary))
    if wrong:
        return Verdict(IndexVerdict.WRONG, None, tuple(wrong[:MOST_PROBLEMS]))
    what = "the .txnindex is missing; " if data is None else ""
    return Verdict(IndexVerdict.UNKNOWN, None, (f"{what}{completed.problem}",))


def _untrue(entries: list[AbortedTransaction], summary: TransactionSummary) -> Iterator[str]:
    """Yield the contradictions between entries and the segment."""
    markers = {(row[PRODUCER_ID], row[LAST_OFFSET]) for row in summary.aborts.tolist()}
    for number, one in enumerate(entries):
        if (one.producer_id, one.last_offset) not in markers:
            where = f"offset {one.last_offset} has no ABORT marker of producer {one.producer_id}"
            yield f"entry {number}: {where}"
    for number, (before, after) in enumerate(pairwise(entries), start=1):
        if after.last_offset <= before.last_offset:
            what = f"last offset {after.last_offset} is not above {before.last_offset}"
            yield f"entry {number}: {what}, the one before"


def _other(
    entries: list[AbortedTransaction], aborted: tuple[AbortedTransaction, ...]
) -> Iterator[str]:
    """Yield the entries that do not cover all records of their aborted transaction."""
    expected = {(one.producer_id, one.last_offset): one for one in aborted}
    for number, one in enumerate(entries):
        true = expected.get((one.producer_id, one.last_offset))
        if true and one.first_offset > true.first_offset:
            what = f"first offset {one.first_offset} found, expected {true.first_offset}"
            yield f"entry {number}: {what}"
        elif true and one.last_stable_offset > true.last_stable_offset:
            found, right = one.last_stable_offset, true.last_stable_offset
            yield f"entry {number}: last stable offset {found} found, expected {right}"


def _named(one: AbortedTransaction) -> str:
    return f"producer {one.producer_id}'s from offset {one.first_offset} to {one.last_offset}"
