"""Verdicts on `.txnindex` and `.snapshot` files, after all segments of a partition were read."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kip33.archive.segment_paths import beside, is_tiered
from kip33.errors import CorruptSnapshotError, FileReadError
from kip33.formats.index_kinds import FOLDED, IndexKind
from kip33.formats.producer_snapshot import ProducerSnapshot
from kip33.indexing.partition_fold import (
    MOST_SNAPSHOT_BYTES,
    FoldedSegment,
    Key,
    SegmentLink,
    fold_partition,
)
from kip33.indexing.partition_replay import KnownProducers
from kip33.indexing.segment import BuiltIndexes
from kip33.indexing.verification import SegmentVerdict
from kip33.rules.index_verdict import IndexVerdict, Verdict
from kip33.rules.producer_state import changes_as_json, producer_snapshot_verdict
from kip33.rules.transaction_index import UNCHANGED, transaction_index_verdict
from kip33.rules.transactions import NO_TRANSACTIONS, TransactionSummary
from kip33.stores.files import MOST_INDEX_BYTES, one_line, read_whole, size_of
from kip33.stores.locations import Location


class SeenFile(NamedTuple):
    """An index file that was read: its bytes, None if there is no file."""

    data: bytes | None = None
    failure: str | None = None  # why it cannot be read


class VerifiedSegment(NamedTuple):
    """A verdict without those on the files that need the fold."""

    verdict: SegmentVerdict
    partition: Key = ()
    link: SegmentLink | None = None  # None: the segment is not part of a fold
    files: Mapping[IndexKind, SeenFile] = {}  # that get a verdict

    @property
    def needs_fold(self) -> bool:
        """Return whether its verdict may change when all segments of its partition are known."""
        has_transactions = self.link is not None and self.link.transactions is not None
        is_told = any(file.failure for file in self.files.values())
        return has_transactions or is_told or IndexKind.PRODUCERS in self.files


def seen_segment(
    verdict: SegmentVerdict,
    index: BuiltIndexes,
    *,
    partition: Key,
    base_offset: int,
    places: tuple[Location, Location, Location],
    with_producers: bool = False,
) -> VerifiedSegment:
    """Return a verdict with what the scan that gave `index` tells the fold.

    `places` are those of the log, its time index and its `.index`. The `.txnindex` is beside the
    `.index`, the `.snapshot` beside the time index. A file inside another one gets no verdict, nor
    a `.snapshot` beside a log of tiered storage: it has the states at the segment's end.
    """
    log, time_index, offset_index = places
    files: dict[IndexKind, SeenFile] = {}
    summary = index.transactions
    open_transactions = transactions = changes = last_offset = None
    if summary is not None and not offset_index.inside:
        place = offset_index._replace(path=offset_index.path.removesuffix("index") + "txnindex")
        file = files[IndexKind.TRANSACTION] = _seen(place, MOST_INDEX_BYTES)
        if index.summary["batch_count"]:
            last_offset = int(index.summary["last_offset"])
        open_transactions = UNCHANGED if summary.changes_nothing else None
        # A segment with a file but no transactions is judged as well.
        if not summary.changes_nothing or file.data is not None:
            transactions = summary.to_json()
    is_beside_log = beside(log, "timeindex") == time_index
    if with_producers and not (time_index.inside or (is_beside_log and is_tiered(log))):
        files[IndexKind.PRODUCERS] = _seen(beside(time_index, "snapshot"), MOST_SNAPSHOT_BYTES)
    if index.producer_changes is not None:
        changes = changes_as_json(index.producer_changes)
    link = SegmentLink(
        base_offset,
        log.uri,
        last_offset,
        open_transactions,
        transactions,
        changes,
        IndexKind.PRODUCERS in files,
    )
    return VerifiedSegment(verdict, partition, link, files)


def _seen(place: Location, most_bytes: int) -> SeenFile:
    try:
        there = size_of(place) is not None
        return SeenFile(read_whole(place, most_bytes=most_bytes) if there else None)
    except FileReadError as error:
        return SeenFile(None, one_line(error))


def with_folded_verdicts(segments: Iterable[VerifiedSegment]) -> list[SegmentVerdict]:
    """Return the verdicts with those on the files that need the fold.

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
    first = min(links)
    known = None if first.base_offset == 0 else _known(first.base_offset, links[first])
    folded = {each.log_uri: each for each in fold_partition(links, known)}
    for link, segment in links.items():
        verdict = segment.verdict
        for kind in FOLDED:
            found = _verdict(kind, segment, link, folded, begins_at_zero=first.base_offset == 0)
            if found:
                problems = tuple(f"{kind.suffix}: {problem}" for problem in found.problems)
                changes: dict[str, Any] = {kind.verdict_field: found.verdict}
                verdict = replace(verdict, problems=verdict.problems + problems, **changes)
        yield verdict.log_uri, verdict


def _known(base_offset: int, segment: VerifiedSegment) -> KnownProducers | None:
    data = segment.files.get(IndexKind.PRODUCERS, SeenFile()).data
    try:
        known = None if data is None else ProducerSnapshot.from_bytes(data)
    except CorruptSnapshotError:
        return None
    return KnownProducers(base_offset, known.producers) if known else None


def _verdict(
    kind: IndexKind,
    segment: VerifiedSegment,
    link: SegmentLink,
    folded: Mapping[str, FoldedSegment],
    *,
    begins_at_zero: bool,
) -> Verdict | None:
    file, results = segment.files.get(kind), folded.get(link.log_uri)
    if file is None:
        return None
    if file.failure:
        return Verdict(IndexVerdict.UNREADABLE, None, (file.failure,))
    if kind is IndexKind.PRODUCERS and results and results.producers:
        expected, problem = results.producers
        return producer_snapshot_verdict(
            file.data, expected, problem=problem, begins_at_zero=begins_at_zero
        )
    if kind is IndexKind.TRANSACTION and results and results.transactions:
        return transaction_index_verdict(
            file.data,
            TransactionSummary.from_json(link.transactions or NO_TRANSACTIONS.to_json()),
            results.transactions,
            base_offset=link.base_offset,
            is_expected=segment.verdict.offset_index_verdict not in (None, IndexVerdict.MISSING),
        )
    return None
