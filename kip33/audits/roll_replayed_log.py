"""One partition as one log under other settings: batches appended, segments that come out."""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kip33.audits.roll_log_headers import first_batch_of
from kip33.formats.batch import BatchColumns
from kip33.formats.byte_sources import ReadInto
from kip33.formats.native import Speed, plain
from kip33.formats.scan import read_header_at
from kip33.rules.roll_replay import (
    REPLAYED_SEGMENT,
    close_segment,
    new_replay,
    replay_batches,
)
from kip33.rules.rolling import RollReading, RollSettings

NEVER_BY_TIME: Final = -2  # as `start_timestamp`: the first message's timestamp is not known


_ROWS_OF_PIECE: Final = 256


Segments = npt.NDArray[np.void]
"""Rows of REPLAYED_SEGMENT."""


class ReplayedLog(NamedTuple):
    """The segments of one partition by one reading."""

    reading: RollReading
    segments: Segments
    unknown_starts: int  # segments whose first message's timestamp no header tells
    oversized_batches: int  # larger than segment.bytes: Kafka would have refused them

    @property
    def untimed(self) -> int:
        """Return how many segments begin without a timestamp and so never ended by time."""
        return int(np.count_nonzero(self.segments["first_timestamp"] < 0))


class Replay:
    """Appends batches to an empty log, by one reading."""

    def __init__(
        self, reading: RollReading, settings: RollSettings, base_offset: int, speed: Speed = plain
    ) -> None:
        """Begin the log at `base_offset`."""
        self._reading = reading
        self._state = new_replay(reading, settings, base_offset)
        self._replay = speed(replay_batches)
        self._piece = np.zeros(_ROWS_OF_PIECE, REPLAYED_SEGMENT)
        self._pieces: list[Segments] = []
        self._unknown = 0

    def append(self, batches: BatchColumns, read_into: ReadInto) -> None:
        """Append batches; `read_into` reads the log that they are in."""
        at = 0
        while at < batches.size:
            at, count = self._replay(batches, at, self._state, self._piece)
            if count:
                self._pieces.append(self._piece[:count].copy())
            if self._state[0]["wants_message"]:
                self._set_start(read_into, int(batches[at - 1]["position"]))

    def ended(self) -> ReplayedLog:
        """Return all segments; the last one is the active one."""
        last = np.zeros(1, REPLAYED_SEGMENT)
        close_segment(self._state[0], 0, last[0])
        segments = np.concatenate([*self._pieces, last])
        return ReplayedLog(self._reading, segments, self._unknown, int(self._state[0]["oversized"]))

    def _set_start(self, read_into: ReadInto, position: int) -> None:
        found = first_batch_of(read_header_at(read_into, position)).first_message_timestamp
        self._unknown += found is None
        self._state["start_timestamp"] = NEVER_BY_TIME if found is None else found
        self._state["wants_message"] = 0
