"""What goes from segment to segment of a partition: open transactions, producers, leader epochs.

Segments are read independently. What a segment needs from those before it is in `PartitionState`:
it begins with the `.snapshot` beside a log, and goes on by what a scan tells of a segment, or by
the headers of a log. It is the state that Kafka's recovery has, which loads the newest snapshot and
reads the segments after it.

A catalog has only the open transactions at the end of each segment. So the fold of a build and of a
verification has no producers. The open transactions at a segment's start are known:

    at offset 0                               none are open
    if the previous segment ends there        those open at its end
    if compaction left a hole before it       the same, if the segments before show their records:
                                              then the cleaner has kept their markers
    if a `.snapshot` is beside the log        those it lists; a corrupt one is ignored
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, Self, TypeAlias

from kip33.archive.log_slice import LogSlice
from kip33.archive.segment_paths import beside, is_tiered
from kip33.errors import CorruptSegmentError, CorruptSnapshotError, FileReadError
from kip33.formats.partition_metadata import EpochStart
from kip33.formats.producer_snapshot import ProducerSnapshot, in_kafkas_order
from kip33.formats.scan import BatchScan
from kip33.indexing.segment_producers import read_changes
from kip33.rules.leader_epochs import leader_epochs_of, with_later_epochs
from kip33.rules.producer_state import ProducerChange, SeenProducers, after_changes
from kip33.rules.transaction_index import (
    UNCHANGED,
    CompletedTransactions,
    Open,
    complete_transactions,
    open_from_json,
)
from kip33.rules.transactions import TransactionSummary
from kip33.stores.files import read_whole, scanned
from kip33.stores.locations import Location

Key: TypeAlias = tuple[Any, ...]
"""The key of a partition, shared by its segments."""

_MOST_SNAPSHOT_BYTES: Final = 1 << 28


class PartitionState(NamedTuple):
    """The state at the start of a segment."""

    producers: ProducerSnapshot = ProducerSnapshot(())  # and their open transactions
    epochs: tuple[EpochStart, ...] = ()
    snapshot_offset: int = -1  # of the `.snapshot` it began with: it has the batches before

    @classmethod
    def read(cls, place: Location, offset: int) -> Self:
        """Return the state that a `.snapshot` has.

        Raises CorruptSnapshotError for one that Kafka would not load, and FileReadError.
        """
        data = read_whole(place, most_bytes=_MOST_SNAPSHOT_BYTES)
        return cls(ProducerSnapshot.from_bytes(data), snapshot_offset=offset)

    @classmethod
    def beside(cls, log: Location, base_offset: int) -> Self | None:
        """Return the state that the `.snapshot` beside a log has.

        None for a missing file or one that Kafka would not load. Beside a log of tiered storage the
        `.snapshot` has the states at the segment's end, so it is not used.
        """
        if log.inside or is_tiered(log):
            return None
        try:
            return cls.read(beside(log, "snapshot"), base_offset)
        except (FileReadError, CorruptSnapshotError):
            return None

    def after(self, changes: Iterable[ProducerChange], epochs: Iterable[EpochStart]) -> Self:
        """Return the state at the segment's end.

        The producers are in the order of the snapshot that a recovery takes there.
        """
        producers = in_kafkas_order(after_changes(self.producers.producers, changes))
        return self._replace(
            producers=ProducerSnapshot(producers), epochs=with_later_epochs(self.epochs, epochs)
        )

    def after_log(
        self, log: Location, *, size_bytes: int | None = None, until_offset: int | None = None
    ) -> tuple[Self, str | None]:
        """Return the state at a log's end, and why the log is damaged there, None if it is not.

        Only headers are read, of `size_bytes` (None: all), up to `until_offset`, where another
        segment goes on. A damaged log ends before the damage, as in Kafka's recovery. FileReadError
        is passed on, and so is CorruptSegmentError for a file that shrinks while it is read.
        """
        seen, epochs, of_log = (
            SeenProducers(),
            self.epochs,
            LogSlice(log, until_offset=until_offset),
        )
        with scanned(log) as (read_into, size, view_at):
            if size_bytes is not None:
                size, view_at = size_bytes, None
            scan = BatchScan(read_into, size, check_crc=False, view_at=view_at)
            for batches in scan:
                batches = of_log.inside(batches)
                if not len(batches):
                    break
                seen.append(batches[batches["last_offset"] >= self.snapshot_offset])
                epochs = leader_epochs_of(batches, epochs)
            damage = scan.damage or scan.load_failure
            try:
                changes = read_changes(seen, read_into)
            except CorruptSegmentError as error:
                changes, damage = (), str(error)
        return self.after(changes, epochs), damage


class SegmentLink(NamedTuple):
    """One segment of a partition, as the fold needs it."""

    base_offset: int
    log_uri: str
    last_offset: int | None
    open_transactions: str | None  # as in the catalog; not used with `transactions`
    transactions: str | None = None  # the TransactionSummary, if its entries are wanted
    record_count: int | None = None  # None: not known
    is_damaged: bool = False  # it may have had more records

    @property
    def is_compacted(self) -> bool:
        """Return whether it has fewer records than offsets."""
        if self.record_count is None or self.last_offset is None:
            return False
        return self.record_count < self.last_offset + 1 - self.base_offset

    def leaves_hole(self, next_base_offset: int) -> bool:
        """Return whether offsets are missing between its end, which is known, and the next one."""
        if self.last_offset is None or self.is_damaged:
            return False
        return self.last_offset + 1 < next_base_offset


def fold_partition(links: Iterable[SegmentLink]) -> Iterator[tuple[str, CompletedTransactions]]:
    """Yield the log URI and the transactions of each segment of one partition that wants them.

    After two segments with one base offset, which may differ, the open transactions are unknown.
    Whether a hole is of compaction is decided by the segments up to it: later ones may come.
    """
    before: SegmentLink | None = None
    open_now: Open | None = None
    known_from = 0  # from this offset on segments have shown what is open
    is_compacted = False
    unchanged: list[SegmentLink] = []  # without transactions and without a gap, up to here
    for link in sorted(links):
        is_compacted |= link.is_compacted
        if not before or before.last_offset is None or before.last_offset + 1 != link.base_offset:
            unchanged = []
            is_hole = is_compacted and before and before.leaves_hole(link.base_offset)
            if not is_hole or min((open_now or {}).values(), default=known_from) < known_from:
                open_now = None
        if link.base_offset == 0:
            open_now = {}
        if open_now is None:
            known_from = link.base_offset
        if link.transactions is None:
            open_now = open_from_json(link.open_transactions, open_now)
        else:
            if open_now is None:
                open_now = _open_beside([*unchanged, link])
            summary = TransactionSummary.from_json(link.transactions)
            completed = complete_transactions(summary, open_now, base_offset=link.base_offset)
            open_now = completed.open_at_end
            yield link.log_uri, completed
        if before and before.base_offset == link.base_offset:
            open_now = None
        if link.open_transactions == UNCHANGED:
            unchanged.append(link)
        else:
            unchanged = []
        before = link


def _open_beside(links: list[SegmentLink]) -> Open | None:
    """Return the transactions open at the start of the last segment; the others have none."""
    for link in reversed(links):
        if state := PartitionState.beside(Location.of(link.log_uri), link.base_offset):
            return state.producers.open_transactions
    return None
