"""One segment end to end: read, scan, apply the rules, and say what Kafka would make of it.

The status, and what it means for the index (D2):

    ok          every byte is a valid batch
    empty       a file of 0 bytes; its index has none either
    truncated   a valid prefix, as recovery leaves it; `valid_bytes` long, `error` says why
    invalid     Kafka would leave no index (log not loaded, split or emptied): neither do we
    unreadable  the bytes could not be had
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kip33.errors import CorruptSegmentError
from kip33.formats.batch import MAX_SEGMENT_BYTES, BatchColumns
from kip33.formats.scan import CHUNK_BYTES, ROWS, BatchScan, ReadInto
from kip33.formats.time_index import ENTRY as TIME_ENTRY
from kip33.rules import entries as rule
from kip33.rules.entries import (
    DEFAULT_INDEX_INTERVAL_BYTES,
    DEFAULT_SEGMENT_INDEX_BYTES,
    DIALECTS,
    Dialect,
)
from kip33.rules.leader_epochs import LeaderEpochs
from kip33.rules.speed import Speed, compiled, plain
from kip33.rules.summary import new_summary, summarize
from kip33.rules.transactions import OpenTransactions
from kip33.storage.files import opened, reason
from kip33.storage.locations import Location

OFFSET_ENTRY: Final = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])


class IndexSettings(NamedTuple):
    """What decides an index's bytes besides the log: Kafka's settings and the dialect."""

    dialect: str = "recover"
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES
    segment_index_bytes: int = DEFAULT_SEGMENT_INDEX_BYTES
    check_crc: bool = True

    def require_valid(self) -> None:
        """Raise ValueError for a setting that Kafka would refuse."""
        if self.dialect not in DIALECTS:
            raise ValueError(f"dialect {self.dialect!r}: one of {', '.join(DIALECTS)} expected")
        self.entry_state(DIALECTS[self.dialect], 0)

    def entry_state(self, dialect: Dialect, base_offset: int) -> BatchColumns:
        """Return the rule's state for an empty segment."""
        return rule.new_state(
            dialect,
            base_offset=base_offset,
            interval_bytes=self.index_interval_bytes,
            segment_index_bytes=self.segment_index_bytes,
        )


@dataclass(frozen=True)
class SegmentIndex:
    """The two indexes of one segment and what was seen on the way.

    `time_index` and `offset_index` are the files' bytes, None where Kafka leaves none. `summary`
    is a record of `rules.summary.SUMMARY` with the magics seen beside it.
    """

    status: str
    error: str | None
    size_bytes: int
    valid_bytes: int
    time_index: bytes | None
    offset_index: bytes | None
    summary: np.void
    magics: tuple[int, ...]
    bytes_read: int


class IndexBuilder:
    """Turns columns of batches into the two indexes' entries, a piece at a time."""

    def __init__(
        self, dialect: Dialect, settings: IndexSettings, *, base_offset: int, topic: str
    ) -> None:
        """Start with an empty segment."""
        self._dialect = dialect
        self._topic = topic
        self._state = settings.entry_state(dialect, base_offset)
        self._times = np.empty((ROWS, 2), np.int64)
        self._offsets = np.empty((ROWS, 2), np.int64)
        self._time_pieces: list[npt.NDArray[np.void]] = []
        self._offset_pieces: list[npt.NDArray[np.void]] = []

    def append(self, batches: BatchColumns, append_batches: Callable[..., Any]) -> None:
        """Take the next batches through the rule, plain or compiled."""
        if self.refusal:
            return
        recorded = self._dialect.recorded_offsets(batches, self._topic)
        time_count, offset_count = append_batches(
            batches, recorded, self._state, self._times, self._offsets
        )
        self._keep(self._time_pieces, self._times, time_count, TIME_ENTRY)
        self._keep(self._offset_pieces, self._offsets, offset_count, OFFSET_ENTRY)

    def close(self, valid_bytes: int) -> None:
        """Add the closing entry."""
        if not self.refusal:
            count = rule.close_index(self._state, valid_bytes, self._times)
            self._keep(self._time_pieces, self._times, count, TIME_ENTRY)

    @property
    def refusal(self) -> str | None:
        """Return why Kafka leaves no index, one line, or None."""
        state = self._state[0]
        if not state["refusal"]:
            return None
        return f"at byte {state['refused_position']}: {rule.REFUSALS[int(state['refusal'])]}"

    @property
    def refused_position(self) -> int:
        """Return the position of the batch that was refused."""
        return int(self._state[0]["refused_position"])

    @property
    def time_index(self) -> bytes:
        """Return the `.timeindex` file's bytes."""
        return b"".join(piece.tobytes() for piece in self._time_pieces)

    @property
    def offset_index(self) -> bytes:
        """Return the `.index` file's bytes."""
        return b"".join(piece.tobytes() for piece in self._offset_pieces)

    @staticmethod
    def _keep(
        pieces: list[npt.NDArray[np.void]],
        rows: npt.NDArray[np.int64],
        count: int,
        kind: np.dtype[np.void],
    ) -> None:
        if count:
            piece = np.empty(count, kind)
            for column, name in enumerate(kind.names or ()):
                piece[name] = rows[:count, column]
            pieces.append(piece)


class Watcher(NamedTuple):
    """Something else that wants to see every batch of the same pass: verification."""

    append: Callable[[BatchColumns, Speed], None]
    seek_max_record: bool = False


def index_segment(
    read_into: ReadInto,
    size_bytes: int,
    *,
    base_offset: int,
    topic: str,
    settings: IndexSettings,
    native: bool | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    watcher: Watcher | None = None,
) -> SegmentIndex:
    """Return the indexes of the segment that `read_into` reads, `size_bytes` long.

    Damage, refusals and load failures are a status, not an exception; OSError and a file that
    shrinks while it is read (CorruptSegmentError) are left to the caller.
    """
    dialect = DIALECTS[settings.dialect]
    summary = new_summary()
    seen_magics = np.zeros(256, np.uint8)
    builder = IndexBuilder(dialect, settings, base_offset=base_offset, topic=topic)
    if size_bytes > MAX_SEGMENT_BYTES:
        too_long = (
            f"{size_bytes} bytes: a segment has at most {MAX_SEGMENT_BYTES}; Kafka opens no more"
        )
        return _result("invalid", too_long, size_bytes, 0, None, summary, seen_magics, 0)
    scan = BatchScan(
        read_into,
        size_bytes,
        check_crc=settings.check_crc,
        seek_max_record=dialect.first_record or bool(watcher and watcher.seek_max_record),
        native=native,
        chunk_bytes=chunk_bytes,
    )
    speed = compiled if scan.native else plain
    transactions, epochs = OpenTransactions(), LeaderEpochs()
    failure: tuple[int, str] | None = None  # position and why
    for batches in scan:
        builder.append(batches, speed(rule.append_batches))
        speed(summarize)(batches, summary, seen_magics)
        failure = failure or epochs.append(batches, speed) or transactions.append(batches, speed)
        if watcher:
            watcher.append(batches, speed)
        if (failure or builder.refusal) and not watcher:
            break
    builder.close(scan.valid_bytes)
    refusals = [] if failure is None else [(failure[0], f"at byte {failure[0]}: {failure[1]}")]
    if builder.refusal:
        refusals.append((builder.refused_position, builder.refusal))
    if refusals:
        position, refusal = min(refusals)
        return _result(
            "invalid", refusal, size_bytes, position, None, summary, seen_magics, scan.bytes_read
        )
    error: str | None = scan.load_failure
    if error:
        status = "invalid"
    elif scan.valid_bytes < size_bytes:
        status, error = "truncated", scan.damage
    else:
        status = "ok" if size_bytes else "empty"
    return _result(
        status,
        error,
        size_bytes,
        scan.valid_bytes,
        None if status == "invalid" else builder,
        summary,
        seen_magics,
        scan.bytes_read,
    )


def _result(
    status: str,
    error: str | None,
    size_bytes: int,
    valid_bytes: int,
    builder: IndexBuilder | None,
    summary: npt.NDArray[np.void],
    seen_magics: npt.NDArray[np.uint8],
    bytes_read: int,
) -> SegmentIndex:
    return SegmentIndex(
        status,
        error,
        size_bytes,
        valid_bytes,
        builder.time_index if builder else None,
        builder.offset_index if builder else None,
        summary[0],
        tuple((np.flatnonzero(seen_magics) - 128).tolist()),
        bytes_read,
    )


def unreadable(error: str, size_bytes: int = 0) -> SegmentIndex:
    """Return what is known of a segment whose bytes could not be had."""
    summary, seen = new_summary(), np.zeros(256, np.uint8)
    return _result("unreadable", error, size_bytes, 0, None, summary, seen, 0)


def index_file(
    log: Location,
    *,
    base_offset: int,
    topic: str,
    settings: IndexSettings,
    native: bool | None = None,
    watcher: Watcher | None = None,
) -> SegmentIndex:
    """Return the indexes of the segment file `log`; whatever happens to it is a status."""
    size_bytes = 0
    try:
        with opened(log) as (read_into, size_bytes):
            return index_segment(
                read_into,
                size_bytes,
                base_offset=base_offset,
                topic=topic,
                settings=settings,
                native=native,
                watcher=watcher,
            )
    except CorruptSegmentError as error:
        return unreadable(str(error), size_bytes)
    except (OSError, ValueError) as error:  # pyarrow's ArrowInvalid is a ValueError
        return unreadable(reason(error), size_bytes)
