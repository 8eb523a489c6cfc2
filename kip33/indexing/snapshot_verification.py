"""Verdicts on `.snapshot` files, possible after all segments of a partition were read."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from kip33.archive.segment_paths import beside, is_tiered
from kip33.errors import CorruptSnapshotError, FileReadError
from kip33.formats.producer_snapshot import ProducerSnapshot, ProducerState
from kip33.indexing.producer_chains import ProducerLink, states_at_bases
from kip33.indexing.segment import BuiltIndexes
from kip33.indexing.transaction_chains import MOST_SNAPSHOT_BYTES, Key
from kip33.indexing.verification import SegmentVerdict
from kip33.rules.index_verdict import IndexVerdict, Verdict
from kip33.rules.producer_state import changes_as_json, producer_snapshot_verdict
from kip33.stores.files import one_line, read_whole, size_of
from kip33.stores.locations import Location


class SeenSnapshot(NamedTuple):
    """The data from a scan that a verdict on a `.snapshot` needs, and the file itself."""

    partition: Key
    link: ProducerLink
    data: bytes | None = None  # None: there is no file
    failure: str | None = None  # why it cannot be read


def seen_snapshot(
    partition: Key, log: Location, time_index: Location, index: BuiltIndexes, *, base_offset: int
) -> SeenSnapshot | None:
    """Return the data from the scan that gave `index`; the `.snapshot` is beside the time index.

    None for a file inside another one, and beside a log of tiered storage, where a `.snapshot` has
    the states at the segment's end.
    """
    is_beside_log = beside(log, "timeindex") == time_index
    if time_index.inside or (is_beside_log and is_tiered(log)):
        return None
    changes = index.producer_changes
    text = None if changes is None else changes_as_json(changes)
    link = ProducerLink(base_offset, log.uri, text, True)
    place = beside(time_index, "snapshot")
    try:
        there = size_of(place) is not None
        data = read_whole(place, most_bytes=MOST_SNAPSHOT_BYTES) if there else None
    except FileReadError as error:
        return SeenSnapshot(partition, link, None, one_line(error))
    return SeenSnapshot(partition, link, data)


def with_snapshot_verdicts(
    verdicts: Iterable[SegmentVerdict], seen: Iterable[SeenSnapshot]
) -> list[SegmentVerdict]:
    """Return the verdicts with those on `.snapshot` files."""
    by_partition: dict[Key, list[SeenSnapshot]] = defaultdict(list)
    for snapshot in seen:
        by_partition[snapshot.partition].append(snapshot)
    by_log: dict[str, Verdict | None] = {}
    for of_partition in by_partition.values():
        by_log |= _verdicts(of_partition)
    return [_with(verdict, by_log.get(verdict.log_uri)) for verdict in verdicts]


def _verdicts(seen: Sequence[SeenSnapshot]) -> dict[str, Verdict | None]:
    by_log = {snapshot.link.log_uri: snapshot for snapshot in seen}
    first = min(seen, key=lambda snapshot: snapshot.link)
    begins_at_zero = first.link.base_offset == 0
    start = None if begins_at_zero else _producers(first.data)
    verdicts: dict[str, Verdict | None] = {}
    for states in states_at_bases([snapshot.link for snapshot in seen], start):
        snapshot = by_log[states.log_uri]
        if snapshot.failure:
            verdicts[states.log_uri] = Verdict(IndexVerdict.UNREADABLE, None, (snapshot.failure,))
            continue
        verdicts[states.log_uri] = producer_snapshot_verdict(
            snapshot.data, states.data, problem=states.problem, begins_at_zero=begins_at_zero
        )
    return verdicts


def _producers(data: bytes | None) -> tuple[ProducerState, ...] | None:
    try:
        return None if data is None else ProducerSnapshot.from_bytes(data).producers
    except CorruptSnapshotError:
        return None


def _with(verdict: SegmentVerdict, found: Verdict | None) -> SegmentVerdict:
    if found is None:
        return verdict
    problems = tuple(f".snapshot: {problem}" for problem in found.problems)
    return replace(
        verdict,
        producer_snapshot_verdict=found.verdict,
        problems=verdict.problems + problems,
    )
