"""The leader epochs of a log from its batches, and batches with which the log fails to load.

`LogSegment.recover` assigns every new leader epoch the base offset of its first batch, and the
cache refuses a negative one (Kafka 4.1: `LeaderEpochFileCache.assign`). Only a crafted or damaged
batch has a negative base offset while its last offset is in range.

A running broker also notes an epoch when it becomes the leader. If the next leader took over before
a batch was written, the `leader-epoch-checkpoint` has an epoch that no batch has.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np

from kip33.formats.batch import BatchColumns
from kip33.formats.native import Speed, plain
from kip33.formats.partition_metadata import EpochStart

NO_EPOCH: Final = -1  # it is not known


def refused_epoch(batches: Any, latest_epoch: int) -> tuple[int, int]:
    """Return the row of the first batch whose epoch the cache refuses, or -1; and the latest."""
    for i in range(batches.size):
        epoch = batches[i]["leader_epoch"]
        if epoch > latest_epoch:
            if batches[i]["base_offset"] < 0:
                return i, latest_epoch
            latest_epoch = int(epoch)
    return -1, latest_epoch


class LeaderEpochs:
    """The leader epochs of the batches seen so far, as `leader_epochs_of` returns them."""

    def __init__(self) -> None:
        self.starts: tuple[EpochStart, ...] = ()
        self._latest = -1

    def append(self, batches: BatchColumns, speed: Speed = plain) -> tuple[int, str] | None:
        """Process `batches` in order; return (position, reason) of the first that Kafka refuses."""
        before = self._latest
        row, self._latest = speed(refused_epoch)(batches, before)
        if row < 0:
            if self._latest > before:
                first = batches[0]
                if not self.starts and first["leader_epoch"] == self._latest:  # as in most segments
                    self.starts = (EpochStart(self._latest, int(first["base_offset"])),)
                else:
                    self.starts = leader_epochs_of(batches, self.starts)
            return None
        batch = batches[row]
        return int(batch["position"]), (
            f"leader epoch {batch['leader_epoch']} begins at offset {batch['base_offset']}; "
            "Kafka fails to load"
        )


def leader_epochs_of(
    batches: BatchColumns, earlier: tuple[EpochStart, ...] = ()
) -> tuple[EpochStart, ...]:
    """Return the leader epochs after these batches, given those of the batches before.

    As recovery does: only an epoch above the latest begins, at its first batch's base offset. An
    earlier epoch that would begin there or later is removed.
    """
    latest = earlier[-1].epoch if earlier else -1
    epochs = batches["leader_epoch"]
    before = np.maximum.accumulate(np.concatenate((epochs[:0], [latest], epochs)))[: len(epochs)]
    rows = np.flatnonzero(epochs > before)
    columns = (epochs[rows].tolist(), batches["base_offset"][rows].tolist())
    return with_later_epochs(earlier, map(EpochStart, *columns))


def with_later_epochs(
    earlier: tuple[EpochStart, ...], found: Iterable[EpochStart]
) -> tuple[EpochStart, ...]:
    """Return the leader epochs of a log, given those of its first part and of its rest.

    Only an epoch above the latest begins; an earlier one that would begin there or later is
    removed.

    >>> with_later_epochs((EpochStart(3, 0),), [EpochStart(2, 10), EpochStart(4, 20)])
    (EpochStart(epoch=3, start_offset=0), EpochStart(epoch=4, start_offset=20))
    """
    starts = list(earlier)
    latest = starts[-1].epoch if starts else -1
    for start in found:
        if start.epoch > latest:
            while starts and starts[-1].start_offset >= start.start_offset:
                starts.pop()
            starts.append(start)
            latest = start.epoch
    return tuple(starts)


class EpochBounds(NamedTuple):
    """What a log shows of its leader epochs; compaction may have left few of its records."""

    since: list[EpochStart]  # from the offset on it has this epoch or later ones
    until: list[EpochStart]  # up to the offset, inclusive, it has this epoch or earlier ones


def other_log_from(log: EpochBounds, *, read_until: int, epoch: int) -> int | None:
    """The first offset at which a log shows other records than a reader had of it, or None.

    The last record before `read_until` had leader epoch `epoch`. Epochs never fall in a log, so a
    later one before that record, or an earlier one at it or behind it, is of another leader. A
    broker answers a consumer by the first (KIP-320, `LeaderEpochFileCache.endOffsetFor`).

    >>> log = EpochBounds([EpochStart(0, 0), EpochStart(2, 5)], [EpochStart(2, 14)])
    >>> other_log_from(log, read_until=10, epoch=0)
    5
    >>> other_log_from(log, read_until=10, epoch=3)  # epoch 3 is not in the log
    9
    """
    later = [one.start_offset for one in log.since if one.epoch > epoch]
    if (first := min(later, default=read_until)) < read_until:
        return first
    is_earlier = any(one.epoch < epoch and one.start_offset >= read_until - 1 for one in log.until)
    return read_until - 1 if is_earlier else None


class EpochFall(NamedTuple):
    """A batch with an earlier leader epoch than one before it: it is of another log.

    A leader appends with its own epoch, and a follower cuts off what its leader does not have.
    """

    offset: int
    epoch: int
    largest_before: int

    def __str__(self) -> str:
        """Return it as a part of a message."""
        return (
            f"the batch at offset {self.offset} has leader epoch {self.epoch}, and one before it "
            f"has {self.largest_before}: a later leader may never have had its records"
        )


def lowest_fall(batches: BatchColumns, largest_before: int) -> EpochFall | None:
    """Return the batch with the lowest epoch of those that have one below an earlier batch's.

    `largest_before` is the largest epoch of the batches before, -1 without any.
    """
    epochs = batches["leader_epoch"]
    largest = np.maximum.accumulate(np.concatenate((epochs[:0], [largest_before], epochs)))
    rows = np.flatnonzero((epochs >= 0) & (epochs < largest[:-1]))
    if not len(rows):
        return None
    row = rows[np.argmin(epochs[rows])]
    return EpochFall(int(batches["base_offset"][row]), int(epochs[row]), int(largest[row]))
