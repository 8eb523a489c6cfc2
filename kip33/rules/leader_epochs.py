"""Detect batches for which recovery's leader epoch cache makes a log fail to load.

`LogSegment.recover` assigns every new leader epoch the base offset of its first batch, and the
cache refuses a negative one (Kafka 4.1: `LeaderEpochFileCache.assign`). Only a crafted or damaged
batch has a negative base offset while its last offset is in range.
"""

from typing import Any

from kip33.formats.batch import BatchColumns
from kip33.formats.native import Speed, plain


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
    """The latest leader epoch of the batches seen so far."""

    def __init__(self) -> None:
        """Start with an empty cache."""
        self._latest = -1

    def append(self, batches: BatchColumns, speed: Speed = plain) -> tuple[int, str] | None:
        """Process `batches` in order; return (position, reason) of the first that Kafka refuses."""
        row, self._latest = speed(refused_epoch)(batches, self._latest)
        if row < 0:
            return None
        batch = batches[row]
        return int(batch["position"]), (
            f"leader epoch {batch['leader_epoch']} begins at offset {batch['base_offset']}; "
            "Kafka fails to load"
        )
