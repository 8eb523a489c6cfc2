"""Verdicts on `.txnindex` files, after all segments of a partition were read."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from kip33.errors import FileReadError
from kip33.indexing.partition_state import Key, SegmentLink, fold_partition
from kip33.indexing.segment import BuiltIndexes
from kip33.indexing.verification import SegmentVerdict, with_batches_behind
from kip33.rules.index_verdict import IndexVerdict, Verdict
from kip33.rules.segment_summary import SegmentStatus
from kip33.rules.transaction_index import (
    UNCHANGED,
    CompletedTransactions,
    transaction_index_verdict,
)
from kip33.rules.transactions import NO_TRANSACTIONS, TransactionSummary
from kip33.stores.files import MOST_INDEX_BYTES, one_line, read_whole, size_of
from kip33.stores.locations import Location


class SeenFile(NamedTuple):
    """A `.txnindex` that was read: its bytes, None if there is no file."""

    data: bytes | None = None
    failure: str | None = None  # why it cannot be read


class VerifiedSegment(NamedTuple):
    """A verdict without that on the `.txnindex`, which needs the fold."""

    verdict: SegmentVerdict
    partition: Key = ()
    link: SegmentLink | None = None  # None: the segment is not part of a fold
    transaction_index: SeenFile | None = None  # None: it gets no verdict

    @property
    def needs_fold(self) -> bool:
        """Return whether its verdict may change when all segments of its partition are known."""
        has_transactions = self.link is not None and self.link.transactions is not None
        return has_transactions or bool(self.transaction_index and self.transaction_index.failure)


def seen_segment(
    verdict: SegmentVerdict,
    index: BuiltIndexes,
    *,
    partition: Key,
    base_offset: int,
    log: Location,
    offset_index: Location,
) -> VerifiedSegment:
    """Return a verdict with what the scan that gave `index` tells the fold, and what is behind it.

    The `.txnindex` is beside the `.index`. One inside another file gets no verdict.
    """
    file: SeenFile | None = None
    summary = index.transactions
    open_transactions = transactions = last_offset = record_count = None
    if summary is not None and not offset_index.inside:
        place = offset_index._replace(path=offset_index.path.removesuffix("index") + "txnindex")
        file = _seen(place)
        if index.summary["batch_count"]:
            last_offset = int(index.summary["last_offset"])
        elif index.status == SegmentStatus.EMPTY:
            last_offset = base_offset - 1
        if not index.summary["wrappers"]:
            record_count = int(index.summary["record_count"])
        open_transactions = UNCHANGED if summary.changes_nothing else None
        # A segment with a file but no transactions is judged as well.
        if not summary.changes_nothing or file.data is not None:
            transactions = summary.to_json()
    link = SegmentLink(
        *(base_offset, log.uri, last_offset, open_transactions, transactions, record_count),
        is_damaged=index.status == SegmentStatus.TRUNCATED,
    )
    return VerifiedSegment(with_batches_behind(verdict, index, log), partition, link, file)


def _seen(place: Location) -> SeenFile:
    try:
        there = size_of(place) is not None
        return SeenFile(read_whole(place, most_bytes=MOST_INDEX_BYTES) if there else None)
    except FileReadError as error:
        return SeenFile(None, one_line(error))


def with_folded_verdicts(segments: Iterable[VerifiedSegment]) -> list[SegmentVerdict]:
    """Return the verdicts with those on the `.txnindex` files.

    A `.txnindex` is expected if there is an `.index`: without an `.index`, a broker writes both.
    """
    segments = list(segments)
    by_partition: dict[Key, list[VerifiedSegment]] = defaultdict(list)
    for segment in segments:
        if segment.link:
            by_partition[segment.partition].append(segment)
    judged = dict(pair for of_one in by_partition.values() for pair in _judged(of_one))
    return [judged.get(segment.verdict.log_uri, segment.verdict) for segment in segments]


def _judged(segments: Sequence[VerifiedSegment]) -> Iterator[tuple[str, SegmentVerdict]]:
    """Yield the complete verdicts on one partition's segments, by the URIs of their logs."""
    links = {segment.link: segment for segment in segments if segment.link}
    folded = dict(fold_partition(links))
    for link, segment in links.items():
        verdict = segment.verdict
        found = _verdict(segment, link, folded.get(link.log_uri))
        if found:
            problems = tuple(f".txnindex: {problem}" for problem in found.problems)
            verdict = replace(
                verdict,
                problems=verdict.problems + problems,
                transaction_index_verdict=found.verdict,
            )
        yield verdict.log_uri, verdict


def _verdict(
    segment: VerifiedSegment, link: SegmentLink, completed: CompletedTransactions | None
) -> Verdict | None:
    file = segment.transaction_index
    if file is None:
        return None
    if file.failure:
        return Verdict(IndexVerdict.UNREADABLE, None, (file.failure,))
    if completed is None:
        return None
    return transaction_index_verdict(
        file.data,
        TransactionSummary.from_json(link.transactions or NO_TRANSACTIONS.to_json()),
        completed,
        base_offset=link.base_offset,
        is_expected=segment.verdict.offset_index_verdict not in (None, IndexVerdict.MISSING),
    )
