"""What a comparison of dialects asks, and what it answers: values that travel to tasks and back."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from kip33.rules.draft_entries import DRAFTS, MINUTE_MS
from kip33.rules.index_builder import TopicSettings
from kip33.rules.index_entries import DIALECTS

COMPARED = (*DIALECTS, *DRAFTS)


class DialectQuestion(NamedTuple):
    """The settings of one comparison; sent to every task."""

    settings: TopicSettings = TopicSettings()
    dialects: tuple[str, ...] = COMPARED
    interval_ms: int = MINUTE_MS  # `time.index.interval` of the dialect `bucket`
    targets: int = 16  # times that are searched in each segment
    seed: int = 0  # from which these times are drawn

    def require_valid(self) -> None:
        """Raise ValueError for an unknown dialect, or a setting that Kafka would refuse."""
        for name in self.dialects:
            if name not in COMPARED:
                raise ValueError(f"dialect {name!r}: expected one of {', '.join(COMPARED)}")
        self.settings.default.require_valid()


class Counterexample(NamedTuple):
    """A search that begins after the first record at or after its time."""

    log_uri: str
    target_ms: int
    start_position: int  # where the search begins
    missed_position: int  # of the batch with the record
    missed_offset: int  # of that batch: v0 and v1: the last offset
    missed_timestamp: int  # its max timestamp


class DialectFigures(NamedTuple):
    """The figures of one dialect in some segments."""

    entries: int = 0
    file_bytes: int = 0
    scanned_bytes: tuple[int, ...] = ()  # of log, for each time that is found
    missed: int = 0  # times whose first record is not found
    counterexample: Counterexample | None = None

    @classmethod
    def summed(cls, parts: "Sequence[DialectFigures]") -> "DialectFigures":
        """Return the figures of all parts together, with the first counterexample."""
        return cls(
            sum(part.entries for part in parts),
            sum(part.file_bytes for part in parts),
            tuple(chain.from_iterable(part.scanned_bytes for part in parts)),
            sum(part.missed for part in parts),
            next((part.counterexample for part in parts if part.counterexample), None),
        )


class ComparedPartition(NamedTuple):
    """The figures of one partition, and what was read for them."""

    path: str  # of its first log
    segments: int
    log_bytes: int  # valid ones
    bytes_read: int
    offset_index_bytes: int
    skipped: tuple[str, ...]  # a line for each log without an index
    unreadable: tuple[str, ...]  # a line for each of them that could not be read
    by_dialect: dict[str, DialectFigures]
