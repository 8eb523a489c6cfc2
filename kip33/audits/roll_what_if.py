"""What if: the segments, indexes and retention points that other settings would have given.

The batches of each partition are replayed as appends to an empty log, one batch each
(`rules.roll_replay`). Only headers are read. The work is shared by partition: a segment's bounds
depend on all batches before it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.archive.bins import Engine
from kip33.audits.audited_logs import AuditedLog, read_partitions
from kip33.audits.roll_audit import SettingsOf
from kip33.audits.roll_logs import first_batch_of
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.segment_order import PARTITION
from kip33.errors import CorruptSegmentError, FileReadError, counted
from kip33.formats.batch import BatchColumns
from kip33.formats.byte_sources import ReadInto
from kip33.formats.native import Speed, compiled, plain
from kip33.formats.scan import SMALL_BYTES, BatchScan, read_header_at
from kip33.formats.time_index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kip33.rules.retention import NEVER_MS
from kip33.rules.roll_replay import (
    REPLAY_ENDS,
    REPLAYED_SEGMENT,
    close_segment,
    new_replay,
    replay_batches,
)
from kip33.rules.roll_verdicts import RollDoubt
from kip33.rules.rolling import RollReading, RollSettings
from kip33.stores.files import one_line, scanned

_REPLAYED_FIELDS: list["pa.Field[Any]"] = [
    *(SEGMENTS.field(name) for name in PARTITION),
    pa.field("reading", pa.string(), nullable=False),
    pa.field("base_offset", pa.int64(), nullable=False),
    pa.field("last_offset", pa.int64()),
    pa.field("batches", pa.int64(), nullable=False),
    pa.field("size_bytes", pa.int64(), nullable=False),
    pa.field("start_timestamp", pa.int64(), nullable=False),
    pa.field("max_timestamp", pa.int64(), nullable=False),
    pa.field("ended_by", pa.string(), nullable=False),
    pa.field("offset_index_bytes", pa.int64(), nullable=False),
    pa.field("time_index_bytes", pa.int64(), nullable=False),
    pa.field("deletable_at_ms", pa.int64()),
]
REPLAYED: Final = pa.schema(_REPLAYED_FIELDS)
"""One row per partition, reading and segment that would have come out."""
_FIGURES: Final = ("base_offset", "batches", "size_bytes", "start_timestamp", "max_timestamp")
Segments = npt.NDArray[np.void]
_NEVER_BY_TIME: Final = -2  # as `start_timestamp`: the first message's timestamp is not known

_ROWS_OF_PIECE: Final = 256
"""Rows of REPLAYED_SEGMENT."""


class _ReplayedLog(NamedTuple):
    """The segments of one partition by one reading."""

    reading: RollReading
    segments: Segments
    unknown_starts: int  # segments whose first message's timestamp no header tells
    oversized_batches: int  # larger than segment.bytes: Kafka would have refused them

    @property
    def untimed(self) -> int:
        """Return how many segments begin without a timestamp and so never ended by time."""
        return int(np.count_nonzero(self.segments["first_timestamp"] < 0))


class ReplayedPartition(NamedTuple):
    """What a replay of one partition gives."""

    log_dir: str | None
    topic: str | None
    partition: int | None
    settings: RollSettings
    archived_segments: int
    archived_bytes: int
    batches: int
    bytes_read: int
    replays: tuple[_ReplayedLog, ...]
    doubts: tuple[str, ...]  # what was seen of its logs, one line each
    unreadable: tuple[str, ...]  # those of the doubts that are logs that could not be read


def replay_partitions(
    logs: pa.Table, settings_of: SettingsOf, engine: Engine
) -> list[ReplayedPartition]:
    """Return each partition's replays, by log directory, topic and number."""
    found = read_partitions(logs, partial(_replay_partition, settings_of), engine)
    return sorted(found, key=lambda one: (one.log_dir or "", one.topic or "", one.partition or -1))


def _replay_partition(settings_of: SettingsOf, logs: Sequence[AuditedLog]) -> ReplayedPartition:
    ordered = sorted(
        (log for log in logs if log.base_offset is not None and not log.error),
        key=lambda log: (log.base_offset or 0, log.log_uri),
    )
    first_log = logs[0]
    settings = settings_of(first_log.topic)
    base_offset = ordered[0].base_offset or 0 if ordered else 0
    total_bytes = sum(log.size_bytes or 0 for log in logs)
    speed = compiled if total_bytes > SMALL_BYTES else plain
    replays = [Replay(reading, settings, base_offset, speed) for reading in RollReading]
    walk = _Partition(base_offset, [f"{log.log_uri}: {log.error}" for log in logs if log.error])
    for log in ordered:
        walk.append(log, replays)
    return ReplayedPartition(
        first_log.log_dir,
        first_log.topic,
        first_log.partition,
        settings,
        len(logs),
        total_bytes,
        walk.batches,
        walk.bytes_read,
        tuple(replay.ended() for replay in replays) if ordered else (),
        tuple(walk.doubts),
        tuple(walk.unreadable),
    )


class _Partition:
    """Reads the batches of a partition's logs, one log after the other."""

    def __init__(self, base_offset: int, doubts: list[str]) -> None:
        self.batches = self.bytes_read = 0
        self.doubts, self.unreadable = doubts, list(doubts)
        self._end_offset = base_offset

    def append(self, log: AuditedLog, replays: "Sequence[Replay]") -> None:
        """Append a log's batches to the replays; what cannot be read is a doubt."""
        base_offset = log.base_offset or 0
        if base_offset > self._end_offset:
            count = base_offset - self._end_offset
            self._doubt(log, f"{RollDoubt.HOLE}: {counted(count, 'offset')} missing before it")
        elif base_offset < self._end_offset:
            self._doubt(log, f"{RollDoubt.OVERLAP}: it begins below the end of the log before it")
        try:
            with scanned(log.location) as (read_into, size_bytes, view_at):
                scan = BatchScan(read_into, size_bytes, check_crc=False, view_at=view_at)
                for batches in scan:
                    self._append(batches, read_into, replays)
                self.bytes_read += scan.bytes_read
            if scan.damage or scan.load_failure:
                self._doubt(log, f"{RollDoubt.TRUNCATED}: {scan.damage or scan.load_failure}")
        except (FileReadError, CorruptSegmentError) as error:
            self._doubt(log, f"{RollDoubt.UNREADABLE}: {one_line(error)}")
            self.unreadable.append(f"{log.log_uri}: {one_line(error)}")
        self._end_offset = max(self._end_offset, base_offset)

    def _append(
        self, batches: BatchColumns, read_into: ReadInto, replays: "Sequence[Replay]"
    ) -> None:
        batches = batches[batches["last_offset"] >= self._end_offset]  # not those of an overlap
        if not batches.size:
            return
        self.batches += batches.size
        self._end_offset = int(batches["last_offset"].max()) + 1
        for replay in replays:
            replay.append(batches, read_into)

    def _doubt(self, log: AuditedLog, what: str) -> None:
        self.doubts.append(f"{log.log_uri}: {what}")


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

    def ended(self) -> _ReplayedLog:
        """Return all segments; the last one is the active one."""
        last = np.zeros(1, REPLAYED_SEGMENT)
        close_segment(self._state[0], 0, last[0])
        segments = np.concatenate([*self._pieces, last])
        return _ReplayedLog(
            self._reading, segments, self._unknown, int(self._state[0]["oversized"])
        )

    def _set_start(self, read_into: ReadInto, position: int) -> None:
        found = first_batch_of(read_header_at(read_into, position)).first_message_timestamp
        self._unknown += found is None
        self._state["start_timestamp"] = _NEVER_BY_TIME if found is None else found
        self._state["wants_message"] = 0


def _retention_points(segments: Segments, retention_ms: int) -> npt.NDArray[np.int64]:
    """Return when each segment becomes deletable by time, with all older ones; -1: never.

    A segment without a timestamp, and all after it, are never: retention uses its file's time.
    """
    largest = segments["max_timestamp"]
    if retention_ms < 0:
        return np.full(largest.size, -1, np.int64)
    is_late = largest > NEVER_MS - retention_ms - 1
    moments = np.where(is_late, NEVER_MS, largest + retention_ms + 1)
    running = np.maximum.accumulate(moments) if moments.size else moments
    is_known = np.logical_and.accumulate(largest >= 0)
    return np.where(is_known, running, -1)


def offset_index_bytes(segments: Segments) -> npt.NDArray[np.int64]:
    """Return the size of each segment's `.index`."""
    return np.asarray(segments["offset_entries"] * OFFSET_ENTRY_BYTES)


def time_index_bytes(segments: Segments) -> npt.NDArray[np.int64]:
    """Return the size of each segment's `.timeindex`, closed."""
    return np.asarray(segments["time_entries"] * TIME_ENTRY_BYTES)


def replayed_table(found: ReplayedPartition, replay: _ReplayedLog, retention_ms: int) -> pa.Table:
    """Return the segments of a replay as a table of REPLAYED."""
    segments = replay.segments
    moments = _retention_points(segments, retention_ms)
    of_all = (found.log_dir, found.topic, found.partition, replay.reading.value)
    columns: dict[str, Any] = {
        **{name: np.ascontiguousarray(segments[name]) for name in _FIGURES},
        "last_offset": pa.array(segments["last_offset"], mask=segments["batches"] == 0),
        "ended_by": pa.array(REPLAY_ENDS, pa.string()).take(pa.array(segments["reason"])),
        "offset_index_bytes": offset_index_bytes(segments),
        "time_index_bytes": time_index_bytes(segments),
        "deletable_at_ms": pa.array(moments, mask=moments < 0),
    }
    for field, value in zip(REPLAYED, of_all, strict=False):
        columns[field.name] = pa.repeat(pa.scalar(value, field.type), segments.size)
    return pa.table({name: columns[name] for name in REPLAYED.names}).cast(REPLAYED)


def replay_sums(
    found: ReplayedPartition, replay: _ReplayedLog, retention_ms: int
) -> dict[str, Any]:
    """Return one row for JSON about a replay: its number of segments, sizes and retention."""
    segments = replay.segments
    moments = _retention_points(segments, retention_ms)
    first = segments["first_timestamp"]
    timed = (moments >= 0) & (moments < NEVER_MS) & (first >= 0)
    kept = moments[timed] - first[timed]
    reasons = np.bincount(segments["reason"], minlength=len(REPLAY_ENDS)).tolist()
    counts = {f"{why}_segments": n for why, n in zip(REPLAY_ENDS, reasons, strict=True)}
    return {
        "log_dir": found.log_dir,
        "topic": found.topic,
        "partition": found.partition,
        "reading": replay.reading,
        "segments": int(segments.size),
        "archived_segments": found.archived_segments,
        **counts,
        "bytes": int(segments["size_bytes"].sum()),
        "largest_segment_bytes": int(segments["size_bytes"].max()),
        "offset_index_bytes": int(offset_index_bytes(segments).sum()),
        "time_index_bytes": int(time_index_bytes(segments).sum()),
        "retention_ms": retention_ms,
        "longest_kept_ms": int(kept.max()) if kept.size else None,
        "all_deletable_at_ms": int(moments[-1]) if moments[-1] >= 0 else None,
        "untimed_segments": replay.untimed,
        "unknown_starts": replay.unknown_starts,
        "oversized_batches": replay.oversized_batches,
        "doubts": list(found.doubts),
    }
