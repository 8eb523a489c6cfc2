"""Build the two indexes of a segment from its batches."""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from kip33.formats.batch import BatchColumns
from kip33.formats.native import Speed, plain
from kip33.formats.scan import ROWS
from kip33.formats.time_index import OFFSET_ENTRY, TIME_ENTRY, entries_of
from kip33.rules import index_entries
from kip33.rules.index_entries import (
    DEFAULT_INDEX_INTERVAL_BYTES,
    DEFAULT_SEGMENT_INDEX_BYTES,
    DIALECTS,
    RECOVER,
    Dialect,
)
from kip33.rules.untimestamped import Untimestamped

BYTES_VERSION: Final = 1
"""Increased when a release gives other bytes for the same log and settings: logs of older rows are
then read again."""


class IndexSettings(NamedTuple):
    """The settings that determine an index's bytes: Kafka's settings and the dialect."""

    dialect: str = "recover"
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES
    segment_index_bytes: int = DEFAULT_SEGMENT_INDEX_BYTES
    check_crc: bool = True
    untimestamped: str = Untimestamped.NONE.value  # a member of `Untimestamped`

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return the settings among a capability's options; those that it has not stay default."""
        given = {name: options[name] for name in cls._fields if name in options}
        return cls(**given)

    def require_valid(self, dialects: Collection[str] = DIALECTS) -> None:
        """Raise ValueError for a setting that Kafka would refuse, or another dialect than these."""
        if self.dialect not in dialects:
            raise ValueError(f"dialect {self.dialect!r}: expected one of {', '.join(dialects)}")
        if self.untimestamped not in list(Untimestamped):
            raise ValueError(
                f"untimestamped {self.untimestamped!r}: expected one of {', '.join(Untimestamped)}"
            )
        if self.untimestamped != Untimestamped.NONE and self.dialect not in DIALECTS:
            raise ValueError(
                f"--untimestamped: the dialect {self.dialect!r} has no such entry; choose "
                f"--dialect {' or '.join(DIALECTS)}"
            )
        self.entry_state(self.kafka_dialect, 0)

    @property
    def kafka_dialect(self) -> Dialect:
        """Return the dialect for the log and its `.index`: `recover` for those that Kafka lacks."""
        return DIALECTS.get(self.dialect, RECOVER)

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
        return cls(default, tuple(sorted(item for item in by_topic.items() if item[1] != default)))

    def of(self, topic: str | None) -> IndexSettings:
        """Return the settings of a topic; the default for an unknown topic."""
        return _by_topic(self.by_topic).get(topic, self.default)


@lru_cache(maxsize=8)
def _by_topic(
    settings: tuple[tuple[str, IndexSettings], ...],
) -> dict[str | None, IndexSettings]:
    return dict(settings)


class OtherEntries(Protocol):
    """Collects the entries of an index file that Kafka does not write, from the same batches."""

    def append(self, batches: BatchColumns, is_point: npt.NDArray[np.bool_]) -> None:
        """Take the next batches; `is_point`: which of them get an entry in the `.index`."""

    def close(self) -> None:
        """Add a closing entry if the file has one."""

    @property
    def data(self) -> bytes:
        """Return the file's bytes."""


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
        others: Sequence[OtherEntries] = (),
    ) -> None:
        """Start with an empty segment; each piece has at most `most_rows` batches.

        `others` get the same batches. If the settings have a dialect that Kafka lacks, the file of
        the first is the time index.
        """
        self.base_offset = base_offset
        self._others = others
        self._is_kafkas = settings.dialect in DIALECTS
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
        if time_count:
            self._time_pieces.append(self._times[:time_count].copy())
        if offset_count:
            self._offset_pieces.append(self._offsets[:offset_count].copy())
        if self._others:
            is_point = np.isin(batches["position"], self._offsets[:offset_count, 1])
            for other in self._others:
                other.append(batches, is_point)

    def close(self, valid_bytes: int, speed: Speed = plain) -> None:
        """Add the closing entry."""
        if not self.refusal:
            count = speed(index_entries.close_index)(self._state, valid_bytes, self._times)
            if count:
                self._time_pieces.append(self._times[:count].copy())
            for other in self._others:
                other.close()

    @property
    def refusal(self) -> tuple[int, str] | None:
        """Return (position, reason) of the batch at which Kafka refuses the segment, or None."""
        if not self._state["refusal"][0]:
            return None
        state = self._state[0]
        return int(state["refused_position"]), index_entries.REFUSALS[int(state["refusal"])]

    @property
    def is_beyond_int32(self) -> bool:
        """Return whether offsets span 2^31 or more: Kafka splits such a segment."""
        return bool(self._state["refusal"][0] == index_entries.OFFSET_BEYOND_INT32)

    @property
    def time_index(self) -> bytes:
        """Return the bytes of the `.timeindex`, or of the settings' other file."""
        if self._is_kafkas:
            return _wire(self._time_pieces, TIME_ENTRY)
        return self._others[0].data

    @property
    def offset_index(self) -> bytes:
        """Return the `.index` file's bytes."""
        return _wire(self._offset_pieces, OFFSET_ENTRY)


def _wire(pieces: list[npt.NDArray[np.int64]], entry: np.dtype[np.void]) -> bytes:
    """Return rows of numbers as the bytes of a file's entries."""
    if not pieces:
        return b""
    numbers = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return entries_of(entry, *numbers.T).tobytes()
