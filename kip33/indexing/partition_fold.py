"""One fold over a partition's segments, in order: what a segment needs from those before it.

A build and a verification read segments independently and summarize each one as a `SegmentLink`.
The fold then gives each segment the results that depend on earlier ones: its aborted and open
transactions (`.txnindex`).

The open transactions are known:

    at offset 0                               none are open
    if the previous segment ends there        those open at its end (`rules.transaction_index`)
    if a `.snapshot` is beside the log        those it lists; a corrupt one is ignored

Kafka's recovery does the same: it loads the newest snapshot and reads the segments after it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kip33.archive.segment_paths import beside, is_tiered
from kip33.errors import CorruptSnapshotError, FileReadError
from kip33.formats.producer_snapshot import ProducerSnapshot
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


def fold_partition(links: Iterable[SegmentLink]) -> Iterator[tuple[str, CompletedTransactions]]:
    """Yield the log URI and the transactions of each segment of one partition that wants them."""
    transactions = _Transactions()
    for link in sorted(links):
        completed = transactions.after(link)
        if completed:
            yield link.log_uri, completed


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


def snapshot_beside(log: Location) -> ProducerSnapshot | None:
    """Return the `.snapshot` beside a log.

    None for a missing file or one that Kafka would not load. Beside a log of tiered storage the
    `.snapshot` has the states at the segment's end, so it is not used.
    """
    if log.inside or is_tiered(log):
        return None
    try:
        data = read_whole(beside(log, "snapshot"), most_bytes=MOST_SNAPSHOT_BYTES)
        return ProducerSnapshot.from_bytes(data)
    except (FileReadError, CorruptSnapshotError):
        return None
