"""Build the two indexes of a segment from its batches."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from kip33.formats.batch import BatchColumns
from kip33.formats.native import Speed, plain
from kip33.formats.offset_index import OFFSET_ENTRY
from kip33.formats.scan import ROWS
from kip33.formats.time_index import TIME_ENTRY
from kip33.rules import index_entries
from kip33.rules.index_entries import (
    DEFAULT_INDEX_INTERVAL_BYTES,
    DEFAULT_SEGMENT_INDEX_BYTES,
    DIALECTS,
    Dialect,
)

BYTES_VERSION: Final = 1
"""Increased when a release gives other bytes for the same log and settings: logs of older rows are
then read again."""


class IndexSettings(NamedTuple):
    """The settings that determine an index's bytes: Kafka's settings and the dialect."""

    dialect: str = "recover"
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES
    segment_index_bytes: int = DEFAULT_SEGMENT_INDEX_BYTES
    check_crc: bool = True

    def require_valid(self) -> None:
        """Raise ValueError for a setting that Kafka would refuse."""
        if self.dialect not in DIALECTS:
            raise ValueError(f"dialect {self.dialect!r}: expected one of {', '.join(DIALECTS)}")
        self.entry_state(DIALECTS[self.dialect], 0)

    def entry_state(self, dialect: Dialect, base_offset: int) -> BatchColumns:
        """Return the rule's state for an empty segment."""
        return index_entries.new_state(
            dialect,
            base_offset=base_offset,
            interval_bytes=self.index_interval_bytes,
            segment_index_bytes=self.segment_index_bytes,
        )


class TopicSettings(NamedTuple):
    """The index settings of every topic: its own if known, else the default."""

    default: IndexSettings = IndexSettings()
    by_topic: tuple[tuple[str, IndexSettings], ...] = ()  # only those that differ, by name

    @classmethod
    def of_topics(cls, default: IndexSettings, by_topic: Mapping[str, IndexSettings]) -> Self:
        """Return the settings of some topics and the default of all others."""
        return cls(default, tuple(sorted(one for one in by_topic.items() if one[1] != default)))

    def of(self, topic: str | None) -> IndexSettings:
        """Return the settings of a topic; the default for an unknown topic."""
        return _by_topic(self.by_topic).get(topic, self.default)


@lru_cache(maxsize=8)
def _by_topic(
    settings: tuple[tuple[str, IndexSettings], ...],
) -> dict[str | None, IndexSettings]:
    return dict(settings)


class IndexBuilder:
    """Turns columns of batches into the entries of the two indexes, piece by piece."""

    def __init__(
        self,
        dialect: Dialect,
        settings: IndexSettings,
        *,
        base_offset: int,
        topic: str,
        most_rows: int = ROWS,
    ) -> None:
        """Start with an empty segment; each piece has at most `most_rows` batches."""
        self.base_offset = base_offset
        self._dialect = dialect
        self._topic = topic
        self._state = settings.entry_state(dialect, base_offset)
        self._times = np.empty((most_rows, 2), np.int64)
        self._offsets = np.empty((most_rows, 2), np.int64)
        self._time_pieces: list[npt.NDArray[np.int64]] = []
        self._offset_pieces: list[npt.NDArray[np.int64]] = []

    def append(self, batches: BatchColumns, speed: Speed = plain) -> None:
        """Apply the rule to the next batches; after a refusal all batches are ignored."""
        if self.refusal:
            return
        recorded = self._dialect.recorded_offsets(batches, self._topic)
        time_count, offset_count = speed(index_entries.append_batches)(
            batches, recorded, self._state, self._times, self._offsets
        )
        self._time_pieces.append(self._times[:time_count].copy())
        self._offset_pieces.append(self._offsets[:offset_count].copy())

    def close(self, valid_bytes: int) -> None:
        """Add the closing entry."""
        if not self.refusal:
            count = index_entries.close_index(self._state, valid_bytes, self._times)
            self._time_pieces.append(self._times[:count].copy())

    @property
    def refusal(self) -> tuple[int, str] | None:
        """Return (position, reason) of the batch at which Kafka refuses the segment, or None."""
        state = self._state[0]
        if not state["refusal"]:
            return None
        return int(state["refused_position"]), index_entries.REFUSALS[int(state["refusal"])]

    @property
    def time_index(self) -> bytes:
        """Return the `.timeindex` file's bytes."""
        return _wire(self._time_pieces, TIME_ENTRY)

    @property
    def offset_index(self) -> bytes:
        """Return the `.index` file's bytes."""
        return _wire(self._offset_pieces, OFFSET_ENTRY)


def _wire(pieces: list[npt.NDArray[np.int64]], entry: np.dtype[np.void]) -> bytes:
    """Return rows of numbers as the bytes of a file's entries."""
    rows = np.concatenate(pieces) if pieces else np.empty((0, 2), np.int64)
    file = np.empty(len(rows), entry)
    for column, name in enumerate(entry.names or ()):
        file[name] = rows[:, column]
    return file.tobytes()
