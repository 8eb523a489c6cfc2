"""Where recovery's leader epoch cache makes a log fail to load.

`LogSegment.recover` assigns every new leader epoch the base offset of its first batch, and the
cache refuses a negative one (Kafka 4.1: `LeaderEpochFileCache.assign`). Only a hand-made or damaged
batch has one while its last offset is still in range.
"""

import numpy as np

from kip33.formats.batch import BatchColumns


class LeaderEpochs:
    """The latest leader epoch of the batches seen so far."""

    def __init__(self) -> None:
        """Start with an empty cache."""
        self._latest = -1

    def append(self, batches: BatchColumns) -> tuple[int, str] | None:
        """Take `batches` in order; return (position, why) of the first that Kafka fails on."""
        epochs = batches["leader_epoch"]
        before = np.maximum.accumulate(np.concatenate(([self._latest], epochs[:-1])))
        refused = (epochs > before) & (batches["base_offset"] < 0)
        self._latest = max(int(before[-1]), int(epochs[-1]))
        if not refused.any():
            return None
        batch = batches[int(refused.argmax())]
        position = int(batch["position"])
        return position, (
            f"leader epoch {batch['leader_epoch']} begins at offset {batch['base_offset']}; "
            "Kafka fails to load"
        )
