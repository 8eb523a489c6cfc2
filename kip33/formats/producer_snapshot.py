"""The `.snapshot` file: a broker's producer state at the offset in the file's name.

    bytes    field             type     meaning
    0..1     version           int16    1
    2..5     crc               uint32   CRC-32C of all bytes after this field
    6..9     entries           int32    number of producers; a PRODUCER_ENTRY follows for each

A broker writes a snapshot when it rolls a segment, named by the new segment's base offset, and one
at the log's end when it stops. It deletes a corrupt snapshot and uses the previous one. The order
of the entries is that of a hash table (`in_kafkas_order`) and has no meaning.
Kafka: `ProducerStateManager.readSnapshot` and `writeSnapshot` (0.11 to 4.x).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from kip33.errors import CorruptSnapshotError
from kip33.formats.crc import crc32c

SNAPSHOT_VERSION: Final = 1
SNAPSHOT_HEADER_BYTES: Final = 10
CRC_END: Final = 6
PRODUCER_ENTRY: Final = np.dtype(
    [
        ("producer_id", ">i8"),
        ("epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),  # of the last data batch; -1: unknown
        ("offset_delta", ">i4"),  # last offset minus first offset of that batch
        ("timestamp", ">i8"),  # of the last batch or marker
        ("coordinator_epoch", ">i4"),  # of the last marker
        ("first_offset", ">i8"),  # of the open transaction; negative: not open
    ]
)
PRODUCER_ENTRY_BYTES: Final = 46
NONE_OPEN: Final = -1
_TABLE_SIZE: Final = 16  # of a new `java.util.HashMap`; it doubles above three quarters
_MOST_IN_BUCKET: Final = 8  # in a table of less than 64 buckets
_SMALL_TABLE: Final = 64


class ProducerState(NamedTuple):
    """One producer; `first_offset` is of its open transaction, -1 without one."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    first_offset: int


@dataclass(frozen=True)
class ProducerSnapshot:
    """The producers of one `.snapshot`, in the file's order."""

    producers: tuple[ProducerState, ...]

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the snapshot; bytes after the last entry are ignored, as Kafka ignores them.

        Raises `CorruptSnapshotError` for what Kafka treats as corrupt: a version that is not 1, a
        CRC that does not match, or fewer bytes than the entries need.

        >>> ProducerSnapshot.from_bytes(ProducerSnapshot(()).to_bytes())
        ProducerSnapshot(producers=())
        """
        if len(data) < SNAPSHOT_HEADER_BYTES:
            raise CorruptSnapshotError(
                f"{len(data)} bytes, at least {SNAPSHOT_HEADER_BYTES} expected"
            )
        version = int.from_bytes(data[:2], signed=True)
        if version != SNAPSHOT_VERSION:
            raise CorruptSnapshotError(f"version {version}, {SNAPSHOT_VERSION} expected")
        stored, computed = int.from_bytes(data[2:CRC_END]), _crc(data)
        if stored != computed:
            raise CorruptSnapshotError(f"CRC {computed:#010x} found, expected {stored:#010x}")
        count = int.from_bytes(data[CRC_END:SNAPSHOT_HEADER_BYTES], signed=True)
        if count < 0 or count * PRODUCER_ENTRY_BYTES > len(data) - SNAPSHOT_HEADER_BYTES:
            raise CorruptSnapshotError(f"{len(data)} bytes are too few for {count} producers")
        rows = np.frombuffer(data, PRODUCER_ENTRY, count, SNAPSHOT_HEADER_BYTES)
        return cls(tuple(ProducerState(*row) for row in rows.tolist()))

    def to_bytes(self) -> bytes:
        """Return the bytes of the file; `OverflowError` for a number that does not fit."""
        rows = np.array(list(self.producers), PRODUCER_ENTRY)
        data = len(rows).to_bytes(4) + rows.tobytes()
        head = SNAPSHOT_VERSION.to_bytes(2)
        return head + _crc(bytes(CRC_END) + data).to_bytes(4) + data

    @property
    def open_transactions(self) -> dict[int, int]:
        """Return the first offset of each producer's open transaction, by producer id."""
        return {p.producer_id: p.first_offset for p in self.producers if p.first_offset >= 0}

    def for_a_new_cluster(self) -> Self:
        """The producers with an open transaction, without their last batch.

        A new cluster gives producer ids from 0 again. It would take the first batch of a new
        producer for a repeat of the last batch that an old one with this id has here.
        """
        return type(self)(
            tuple(
                p._replace(last_sequence=-1, last_offset=-1, offset_delta=0)
                for p in self.producers
                if p.first_offset >= 0
            )
        )


def in_kafkas_order(states: Iterable[ProducerState]) -> tuple[ProducerState, ...]:
    """Return states, in the order in which a broker learned of them, in the order of its file.

    This is the order of a `java.util.HashMap` (Kafka 3.5 and later; a Scala map before). If more
    than eight ids of a large table have one bucket, a broker may write these in another order.

    >>> ids = [1000, 31, 5]
    >>> states = (ProducerState(producer_id, 0, 0, 0, 0, 0, -1, -1) for producer_id in ids)
    >>> [state.producer_id for state in in_kafkas_order(states)]
    [5, 1000, 31]
    """
    states = tuple(states)
    ids = np.fromiter((state.producer_id for state in states), np.uint64, len(states))
    hashes = (ids ^ (ids >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
    hashes ^= hashes >> np.uint64(16)
    buckets = hashes & np.uint64(_table_size(hashes) - 1)
    return tuple(states[number] for number in np.argsort(buckets, kind="stable").tolist())


def _table_size(hashes: npt.NDArray[np.uint64]) -> int:
    """Return the size of a hash table after these hashes were put into it, one by one."""
    size = _TABLE_SIZE
    first = hashes[:_SMALL_TABLE].tolist()
    for count in range(1, len(first) + 1):
        if size < _SMALL_TABLE:  # a full bucket doubles a small table, too
            same = sum((other ^ first[count - 1]) & (size - 1) == 0 for other in first[:count])
            size *= 2 if same > _MOST_IN_BUCKET else 1
        while count * 4 > size * 3:
            size *= 2
    while len(hashes) * 4 > size * 3:
        size *= 2
    return size


def _crc(data: bytes) -> int:
    return crc32c(0, data, CRC_END, len(data), None)
