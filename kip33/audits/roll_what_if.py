"""What if: the segments, indexes and retention points that other settings would have given.

The batches of each partition are replayed as appends to an empty log, one batch each
(`rules.roll_replay`). Only headers are read. The work is shared by partition: a segment's bounds
depend on all batches before it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.bins import Engine, Progress
from kip33.audits.roll_audit import SettingsOf
from kip33.audits.roll_log_headers import LogToRead
from kip33.audits.roll_replayed_log import Replay, ReplayedLog
from kip33.errors import CorruptSegmentError, FileReadError
from kip33.formats.batch import BatchColumns
from kip33.formats.byte_sources import ReadInto
from kip33.formats.native import compiled, plain
from kip33.formats.scan import SMALL_BYTES, BatchScan
from kip33.rules.roll_verdicts import RollDoubt
from kip33.rules.rolling import RollReading, RollSettings
from kip33.stores.files import one_line, scanned
from kip33.stores.locations import Location

_PARTITION: Final = ("log_dir", "topic", "partition")


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
    replays: tuple[ReplayedLog, ...]
    doubts: tuple[str, ...]  # what was seen of its logs, one line each
    unreadable: tuple[str, ...]  # those of the doubts that are logs that could not be read


@dataclass(frozen=True)
class WhatIfRequest:
    """What is replayed; sent to every task."""

    settings_of: SettingsOf
    readings: tuple[RollReading, ...] = tuple(RollReading)


def partitions_to_replay(logs: pa.Table) -> pa.Table:
    """Return a table with one row per partition: its logs as a list, and their size together."""
    if not logs.num_rows:
        return pa.table({"size_bytes": pa.array([], pa.int64())})
    sorted_logs = logs.sort_by([(name, "ascending") for name in _PARTITION]).combine_chunks()
    is_same = np.ones(logs.num_rows, bool)
    for name in _PARTITION:
        codes = sorted_logs[name].combine_chunks().dictionary_encode().indices
        is_same[1:] &= np.diff(pc.fill_null(codes, -1).to_numpy()) == 0
    is_same[0] = False
    starts = np.flatnonzero(~is_same)
    sizes = pc.fill_null(sorted_logs["size_bytes"], 0).to_numpy()
    offsets = pa.array(np.append(starts, logs.num_rows), pa.int32())
    [struct] = sorted_logs.to_struct_array().chunks
    return pa.table(
        {
            "size_bytes": pa.array(np.add.reduceat(sizes, starts)),
            "logs": pa.ListArray.from_arrays(offsets, struct),
        }
    )


def replay_partitions(
    logs: pa.Table,
    request: WhatIfRequest,
    engine: Engine,
    *,
    parallelism: int | None = None,
    on_progress: Progress | None = None,
) -> list[ReplayedPartition]:
    """Return each partition's replays, by log directory, topic and number."""
    found = engine.run_on_bins(
        partitions_to_replay(logs),
        partial(_replay_bin, request),
        parallelism=parallelism,
        on_progress=on_progress,
    )
    return sorted(found, key=lambda one: (one.log_dir or "", one.topic or "", one.partition or -1))


def _replay_bin(
    request: WhatIfRequest, number: int, partitions: pa.Table
) -> Iterator[ReplayedPartition]:
    for row in partitions.to_pylist():
        yield replay_partition(request, [LogToRead(**log) for log in row["logs"]])


def replay_partition(request: WhatIfRequest, logs: Sequence[LogToRead]) -> ReplayedPartition:
    """Return the replays of one partition's logs."""
    ordered = sorted(
        (log for log in logs if log.base_offset is not None and not log.error),
        key=lambda log: (log.base_offset or 0, log.log_uri),
    )
    one = logs[0]
    settings = request.settings_of(one.topic)
    base_offset = ordered[0].base_offset or 0 if ordered else 0
    total_bytes = sum(log.size_bytes or 0 for log in logs)
    speed = compiled if total_bytes > SMALL_BYTES else plain
    replays = [Replay(reading, settings, base_offset, speed) for reading in request.readings]
    walk = _Partition(base_offset, [f"{log.log_uri}: {log.error}" for log in logs if log.error])
    for log in ordered:
        walk.append(log, replays)
    return ReplayedPartition(
        one.log_dir,
        one.topic,
        one.partition,
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

    def append(self, log: LogToRead, replays: "Sequence[Replay]") -> None:
        """Append a log's batches to the replays; what cannot be read is a doubt."""
        base_offset = log.base_offset or 0
        if base_offset > self._end_offset:
            count = base_offset - self._end_offset
            self._doubt(log, f"{RollDoubt.HOLE}: {count:,} offsets are missing before it")
        elif base_offset < self._end_offset:
            self._doubt(log, f"{RollDoubt.OVERLAP}: it begins below the end of the log before it")
        try:
            with scanned(Location.of(log.log_uri)) as (read_into, size_bytes, view_at):
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

    def _doubt(self, log: LogToRead, what: str) -> None:
        self.doubts.append(f"{log.log_uri}: {what}")
