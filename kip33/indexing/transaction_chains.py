"""Follow the transactions of a partition from segment to segment: which are open at each start.

The open transactions are known:

    at offset 0                               none are open
    if the previous segment ends there        those open at its end (`rules.transaction_index`)
    if a `.snapshot` is beside the log        those it lists; a corrupt one is ignored

Kafka's recovery does the same: it loads the newest snapshot and reads the segments after it.
"""

from collections.abc import Mapping, Sequence
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


class ChainLink(NamedTuple):
    """One segment of a partition, as the chain needs it."""

    base_offset: int
    log_uri: str
    last_offset: int | None
    open_transactions: str | None
    transactions: str | None = None  # the TransactionSummary, if entries are needed


def completed_by_log(links: Mapping[Key, Sequence[ChainLink]]) -> dict[str, CompletedTransactions]:
    """Return the completed transactions of each pending segment, by the URI of its log."""
    done = {}
    for of_partition in links.values():
        chain = TransactionChain()
        unchanged: list[ChainLink] = []  # without a gap, up to here
        for link in sorted(of_partition):
            start = chain.open_at(link.base_offset)
            if not chain.goes_on_at(link.base_offset):
                unchanged = []
            if link.transactions is None:
                end = open_from_json(link.open_transactions, start)
            else:
                if start is None:
                    start = _from_snapshots([*unchanged, link])
                summary = TransactionSummary.from_json(link.transactions)
                completed = complete_transactions(summary, start, base_offset=link.base_offset)
                done[link.log_uri], end = completed, completed.open_at_end
            if link.open_transactions == UNCHANGED:
                unchanged.append(link)
            else:
                unchanged = []
            chain.pass_segment(link.base_offset, link.last_offset, end)
    return done


def _from_snapshots(segments: Sequence[ChainLink]) -> Open | None:
    """Return the transactions open at the start of the last of `segments`; others have none."""
    for one in reversed(segments):
        start = snapshot_beside(Location.of(one.log_uri))
        if start is not None:
            return start
    return None


def snapshot_beside(log: Location) -> Open | None:
    """Return the transactions that the `.snapshot` beside a log lists as open at its start.

    None if there is no snapshot, or Kafka would not load it. Beside a log of tiered storage the
    `.snapshot` lists those at the segment's end, so it is not used.
    """
    if log.inside or is_tiered(log):
        return None
    try:
        data = read_whole(beside(log, "snapshot"), most_bytes=MOST_SNAPSHOT_BYTES)
        return ProducerSnapshot.from_bytes(data).open_transactions
    except (FileReadError, CorruptSnapshotError):
        return None
