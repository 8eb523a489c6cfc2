"""One fold over a partition's segments, in order: what a segment needs from those before it.

A build and a verification read segments independently and summarize each one as a `SegmentLink`.
The fold then gives each segment the results that depend on earlier ones: its aborted and open
transactions (`.txnindex`), and the producers at its base offset (`.snapshot`).

The open transactions are known:

    at offset 0                               none are open
    if the previous segment ends there        those open at its end (`rules.transaction_index`)
    if a `.snapshot` is beside the log        those it lists; a corrupt one is ignored

Kafka's recovery does the same: it loads the newest snapshot and reads the segments after it.

The producers at the first segment are those of a `.snapshot` beside its index files or its log.
Without one there are none, as in Kafka's recovery, which also carries the states over gaps. A
segment whose changes are unknown, such as an unreadable one, makes all later states unknown.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kip33.archive.segment_paths import beside, is_tiered
from kip33.errors import CorruptSnapshotError, FileReadError
from kip33.formats.producer_snapshot import ProducerSnapshot
from kip33.formats.time_index import index_crc32c
from kip33.indexing.partition_replay import KnownProducers, snapshot_bytes
from kip33.rules.producer_state import after_changes, changes_from_json
from kip33.rules.transaction_index import (
    UNCHANGED,
    CompletedTransactions,
    Open,
    TransactionChain,
    complete_transactions,
    open_from_json,
)
from kip33.rules.transactions import TransactionSummary
from kip33.stores.files import read_whole
from kip33.stores.locations import Location

MOST_SNAPSHOT_BYTES: Final = 1 << 28
Key: TypeAlias = tuple[Any, ...]
"""The key of a partition, shared by its segments."""


class SegmentLink(NamedTuple):
    """One segment of a partition, as the fold needs it."""

    base_offset: int
    log_uri: str
    last_offset: int | None
    open_transactions: str | None  # as in the catalog; not used with `transactions`
    transactions: str | None = None  # the TransactionSummary, if its entries are wanted
    producer_changes: str | None = None  # `changes_as_json`; None: unknown
    wants_producers: bool = False  # at its base offset


class ProducersAtBase(NamedTuple):
    """The states at a segment's base offset, as the bytes of a `.snapshot`.

    `data` is None for the first segment of a log, which has no `.snapshot`, and if the states are
    unknown: then `problem` says why.
    """

    data: bytes | None
    problem: str | None = None


class FoldedSegment(NamedTuple):
    """What a segment wants to know of the segments before it."""

    log_uri: str
    transactions: CompletedTransactions | None
    producers: ProducersAtBase | None


def fold_partition(
    links: Iterable[SegmentLink], known: KnownProducers | None
) -> Iterator[FoldedSegment]:
    """Yield the results for the segments of one partition that want some.

    `known` are the producers at a base offset; earlier segments do not change them. None: no
    `.snapshot` is at the first base offset.
    """
    transactions, producers = _Transactions(), _Producers(known)
    for link in sorted(links):
        completed, at_base = transactions.after(link), producers.after(link)
        if completed or at_base:
            yield FoldedSegment(link.log_uri, completed, at_base)


class _Transactions:
    """The open transactions, from segment to segment."""

    def __init__(self) -> None:
        self._chain = TransactionChain()
        self._unchanged: list[SegmentLink] = []  # without a gap, up to here

    def after(self, link: SegmentLink) -> CompletedTransactions | None:
        """Go on to the end of a segment; return its transactions if they are wanted."""
        start = self._chain.open_at(link.base_offset)
        if not self._chain.goes_on_at(link.base_offset):
            self._unchanged = []
        completed: CompletedTransactions | None = None
        if link.transactions is None:
            end = open_from_json(link.open_transactions, start)
        else:
            if start is None:
                start = _open_at_start([*self._unchanged, link])
            summary = TransactionSummary.from_json(link.transactions)
            completed = complete_transactions(summary, start, base_offset=link.base_offset)
            end = completed.open_at_end
        if link.open_transactions == UNCHANGED:
            self._unchanged.append(link)
        else:
            self._unchanged = []
        self._chain.pass_segment(link.base_offset, link.last_offset, end)
        return completed


def _open_at_start(links: Sequence[SegmentLink]) -> Open | None:
    """Return the transactions open at the start of the last segment; the others have none."""
    for link in reversed(links):
        snapshot = snapshot_beside(Location.of(link.log_uri))
        if snapshot is not None:
            return snapshot.open_transactions
    return None


class _Producers:
    """The producers' states, from segment to segment."""

    def __init__(self, known: KnownProducers | None) -> None:
        self._states = known.producers if known else ()
        self._from_offset = known.offset if known else 0
        self._is_first = known is None
        self._problem: str | None = None  # why the states are unknown
        self._before: int | None = None

    def after(self, link: SegmentLink) -> ProducersAtBase | None:
        """Go on to the end of a segment; return the states at its start if they are wanted."""
        if link.base_offset < self._from_offset:
            return None
        if link.base_offset == self._before:
            self._problem = f"two segments begin at {self._before}"
        self._before = link.base_offset
        at_base: ProducersAtBase | None = None
        if link.wants_producers:
            has_no_file = self._is_first or self._problem
            data = None if has_no_file else snapshot_bytes(self._states)
            at_base = ProducersAtBase(data, self._problem)
        self._is_first = False
        if self._problem is None and link.producer_changes is None:
            self._problem = f"the producers of {link.log_uri} are not known"
        elif self._problem is None:
            changes = changes_from_json(link.producer_changes or "[]")
            self._states = after_changes(self._states, changes)
        return at_base


def snapshot_beside(place: Location, *, crc32c: int | None = None) -> ProducerSnapshot | None:
    """Return the `.snapshot` beside a log or a time index.

    None if there is none, Kafka would not load it, or its CRC-32C differs. Beside a log of tiered
    storage the `.snapshot` has the states at the segment's end, so it is not used.
    """
    if place.inside or is_tiered(place):
        return None
    try:
        data = read_whole(beside(place, "snapshot"), most_bytes=MOST_SNAPSHOT_BYTES)
        if crc32c is not None and index_crc32c(data) != crc32c:
            return None
        return ProducerSnapshot.from_bytes(data)
    except (FileReadError, CorruptSnapshotError):
        return None
