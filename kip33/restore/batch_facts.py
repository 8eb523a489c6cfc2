"""What a restore learns from the batches of a log besides its indexes, and changes in them."""

import os
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from kip33.formats.batch import BatchColumns
from kip33.formats.partition_metadata import EpochStart
from kip33.restore.restore_request import SourceSegment
from kip33.restore.staged_files import target_errors
from kip33.rules.leader_epochs import leader_epochs_of
from kip33.rules.producer_state import SeenProducers
from kip33.stores.locations import Location

LEADER_EPOCH_POSITION: Final = 12  # in a batch


class BatchFacts:
    """What the batches of one segment show besides its indexes."""

    def __init__(self, segment: SourceSegment, leader_epoch: int | None) -> None:
        """Begin without batches; leader epochs above `leader_epoch` count as that one."""
        self.epochs: tuple[EpochStart, ...] = ()
        self.largest_epoch = -1
        self.producers = SeenProducers()
        self.cut_at: int | None = None  # the first batch to cut off
        self._later_epochs: list[npt.NDArray[np.int64]] = []
        self._cut_offset, self._leader_epoch = segment.cut_offset, leader_epoch

    def append(self, batches: BatchColumns) -> None:
        """Take the next batches of the log, as they are in the source."""
        if not len(batches):
            return
        if self._cut_offset is not None and self.cut_at is None:
            reached = np.flatnonzero(batches["last_offset"] >= self._cut_offset)
            self.cut_at = int(batches["position"][reached[0]]) if len(reached) else None
        self.largest_epoch = max(self.largest_epoch, int(batches["leader_epoch"].max()))
        if self._leader_epoch is not None and self.largest_epoch > self._leader_epoch:
            batches = batches.copy()
            is_later = batches["leader_epoch"] > self._leader_epoch
            self._later_epochs.append(batches["position"][is_later])
            batches["leader_epoch"][is_later] = self._leader_epoch
        self.epochs = leader_epochs_of(batches, self.epochs)
        self.producers.append(batches)

    @property
    def changes_epochs(self) -> bool:
        """Return whether a batch has a later leader epoch than the largest that is asked for."""
        return bool(self._later_epochs)

    def write_epochs(self, target: Location, size_bytes: int) -> None:
        """Write the asked leader epoch into batches with a later one. No CRC covers the field."""
        assert self._leader_epoch is not None
        data = self._leader_epoch.to_bytes(4)
        positions = np.concatenate(self._later_epochs)
        with target_errors(target), Path(target.path).open("r+b", buffering=0) as file:
            for position in positions[positions < size_bytes].tolist():
                os.pwrite(file.fileno(), data, position + LEADER_EPOCH_POSITION)
