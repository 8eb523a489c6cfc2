"""The `.txnindex` file: one 34-byte big-endian entry for each aborted transaction.

Offsets are absolute. An entry belongs to the segment with the marker; the transaction may begin in
an earlier one. Last offsets grow strictly. No header, no checksum, no preallocation; a segment
without an aborted transaction has no file, or an empty one.
Kafka: `TransactionIndex`, `AbortedTxn` (0.11 to 4.x).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, Self

import numpy as np

from kip33.errors import CorruptIndexError
from kip33.formats.time_index import IndexEntries

TRANSACTION_ENTRY_VERSION: Final = 0
TRANSACTION_ENTRY: Final = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),  # base offset of the transaction's first batch
        ("last_offset", ">i8"),  # base offset of the batch with its ABORT marker
        # The first offset of the oldest transaction that is still open after the marker, else last
        # offset + 1.
        ("last_stable_offset", ">i8"),
    ]
)
TRANSACTION_ENTRY_BYTES: Final = 34


class AbortedTransaction(NamedTuple):
    """One entry; offsets are absolute."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex(IndexEntries[AbortedTransaction]):
    """The entries of one `.txnindex`."""

    form = TRANSACTION_ENTRY

    @classmethod
    def from_bytes(cls, data: bytes, *, base_offset: int) -> Self:
        """Return the entries of the file unchanged, in any order and without checks.

        Raises `CorruptIndexError` if `data` ends inside an entry (Kafka ignores that), and for a
        version that is not 0 (for a higher one Kafka does not load the log).

        >>> wire = "0000 0000000000000005 0000000000000000 0000000000000004 0000000000000002"
        >>> index = TransactionIndex.from_bytes(bytes.fromhex(wire), base_offset=0)
        >>> list(index)
        [AbortedTransaction(producer_id=5, first_offset=0, last_offset=4, last_stable_offset=2)]
        """
        index = super().from_bytes(data, base_offset=base_offset)
        others = np.flatnonzero(index.entries["version"] != TRANSACTION_ENTRY_VERSION)
        if len(others):
            version = index.entries["version"][others[0]]
            raise CorruptIndexError(f"entry {others[0]}: version {version} found, expected 0")
        return index

    @classmethod
    def from_entries(
        cls, entries: Iterable[tuple[int, int, int, int]], *, base_offset: int
    ) -> Self:
        """Return the index of (producer id, first, last, last stable offset), in the order given.

        Raises `OverflowError` for a number that is not an int64.
        """
        rows = np.array(
            [(TRANSACTION_ENTRY_VERSION, *entry) for entry in entries], TRANSACTION_ENTRY
        )
        rows.setflags(write=False)
        return cls(base_offset, rows)

    def truncate_to(self, offset: int) -> Self:
        """Return the entries before the first with a last offset >= `offset`: Kafka's truncateTo.

        >>> TransactionIndex.from_entries([(5, 0, 4, 2)], base_offset=0).truncate_to(4)
        <TransactionIndex base_offset=0 entries=0>
        """
        cut = np.flatnonzero(self.entries["last_offset"] >= offset)
        return self._first(int(cut[0]) if len(cut) else len(self))

    def _entry_of(self, *numbers: int) -> AbortedTransaction:
        return AbortedTransaction(*numbers[1:])
