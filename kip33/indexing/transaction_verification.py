"""Verdicts on `.txnindex` files, possible after all segments of a partition were read."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from kip33.errors import FileReadError
from kip33.indexing.segment import BuiltIndexes
from kip33.indexing.snapshot_verification import SeenSnapshot, with_snapshot_verdicts
from kip33.indexing.transaction_chains import ChainLink, Key, completed_by_log
from kip33.indexing.verification import SegmentVerdict
from kip33.rules.index_verdict import IndexVerdict, Verdict
from kip33.rules.transaction_index import UNCHANGED, transaction_index_verdict
from kip33.rules.transactions import NO_TRANSACTIONS, TransactionSummary
from kip33.stores.files import MOST_INDEX_BYTES, one_line, read_whole, size_of
from kip33.stores.locations import Location


class SeenTransactions(NamedTuple):
    """The data from a scan that a verdict on a `.txnindex` needs, and the file itself."""

    partition: Key
    link: ChainLink
    data: bytes | None = None  # None: there is no file
    failure: str | None = None  # why it cannot be read


class VerifiedSegment(NamedTuple):
    """A verdict without the one on the `.txnindex`."""

    verdict: SegmentVerdict
    seen: SeenTransactions | None = None  # None: no verdict is possible
    snapshot: SeenSnapshot | None = None  # None: no verdict is possible, or not asked for


def seen_transactions(
    partition: Key,
    log: Location,
    offset_index: Location,
    index: BuiltIndexes,
    *,
    base_offset: int,
) -> SeenTransactions | None:
    """Return the data from the scan that gave `index`; the `.txnindex` is beside the `.index`."""
    summary = index.transactions
    if summary is None or offset_index.inside:
        return None
    is_unchanged = summary.changes_nothing
    link = ChainLink(
        base_offset,
        log.uri,
        int(index.summary["last_offset"]) if index.summary["batch_count"] else None,
        UNCHANGED if is_unchanged else None,
        None if is_unchanged else summary.to_json(),
    )
    place = offset_index._replace(path=offset_index.path.removesuffix("index") + "txnindex")
    try:
        there = size_of(place) is not None
        data = read_whole(place, most_bytes=MOST_INDEX_BYTES) if there else None
    except FileReadError as error:
        return SeenTransactions(partition, link, None, one_line(error))
    return SeenTransactions(partition, link, data)


def with_transaction_verdicts(segments: Iterable[VerifiedSegment]) -> list[SegmentVerdict]:
    """Return the verdicts with those on `.txnindex` files, and on `.snapshot` files if asked for.

    A file is expected if there is an `.index`: without an `.index`, a broker writes both.
    """
    segments = list(segments)
    links: dict[Key, list[ChainLink]] = defaultdict(list)
    for segment in segments:
        if segment.seen:
            # A segment with a file but no transactions is judged as well.
            text = segment.seen.link.transactions
            if text is None and segment.seen.data is not None:
                text = NO_TRANSACTIONS.to_json()
            links[segment.seen.partition].append(segment.seen.link._replace(transactions=text))
    completed = completed_by_log(links)
    verdicts = []
    for verdict, seen, _ in segments:
        done = seen and completed.get(seen.link.log_uri)
        if seen and seen.failure:
            judged: Verdict | None = Verdict(IndexVerdict.UNREADABLE, None, (seen.failure,))
        elif seen and done:
            judged = transaction_index_verdict(
                seen.data,
                TransactionSummary.from_json(seen.link.transactions)
                if seen.link.transactions
                else NO_TRANSACTIONS,
                done,
                base_offset=seen.link.base_offset,
                is_expected=verdict.offset_index_verdict not in (None, IndexVerdict.MISSING),
            )
        else:
            judged = None
        if judged:
            problems = tuple(f".txnindex: {problem}" for problem in judged.problems)
            verdict = replace(
                verdict,
                transaction_index_verdict=judged.verdict,
                problems=verdict.problems + problems,
            )
        verdicts.append(verdict)
    return with_snapshot_verdicts(
        verdicts, [segment.snapshot for segment in segments if segment.snapshot]
    )
