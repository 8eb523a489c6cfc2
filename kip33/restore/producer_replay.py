"""The producers' state at the end of a cut log, from its snapshots and batches.

Kafka writes such a snapshot after a truncation. Without any, a broker that was shut down cleanly
takes an empty one when it starts, and forgets open transactions and producers' sequences.
"""

from typing import NamedTuple

from kip33.errors import CorruptSnapshotError
from kip33.formats.producer_snapshot import ProducerSnapshot
from kip33.indexing.partition_replay import KnownProducers, LogToReplay, replay_partition
from kip33.indexing.transaction_chains import MOST_SNAPSHOT_BYTES
from kip33.restore.partition_state import PartitionState
from kip33.stores.files import read_whole


class KeptLog(NamedTuple):
    """A segment of the log as it will be: its base offset and the bytes that are kept."""

    base_offset: int
    size_bytes: int


class ReplayError(Exception):
    """The state cannot be determined; the text says why."""


def snapshot_at(state: PartitionState, kept: list[KeptLog], end_offset: int) -> bytes | None:
    """Return the bytes of the `.snapshot` at the new end of the log, None if it needs none.

    It needs none if the directory has no snapshot at all, if there is a good one at the end, or if
    no record is left. Raises ReplayError for a log that cannot be read.
    """
    if not state.snapshots or end_offset <= state.base_offsets[0]:
        return None
    known = _newest_snapshot(state, end_offset)
    if known.offset == end_offset:
        return None
    logs = [
        LogToReplay(log.base_offset, state.log(log.base_offset), log.size_bytes)
        for log, later in zip(kept, [*kept[1:], None], strict=True)
        if later is None or later.base_offset > known.offset
    ]
    replay = replay_partition(logs, known=known, wanted=(), check_crc=False)
    if replay.damage:
        place = state.log(replay.segments[-1].base_offset)
        raise ReplayError(f"{place.uri}: {replay.damage}")
    return replay.snapshot_at_end


def _newest_snapshot(state: PartitionState, end_offset: int) -> KnownProducers:
    """Return the newest good snapshot up to the end; damaged ones are skipped, as in Kafka."""
    for offset in sorted(state.snapshots, reverse=True):
        if offset > end_offset:
            continue
        place = state.place(offset, "snapshot")
        try:
            data = read_whole(place, most_bytes=MOST_SNAPSHOT_BYTES)
            return KnownProducers(offset, ProducerSnapshot.from_bytes(data).producers)
        except (CorruptSnapshotError, FileNotFoundError):
            continue
    return KnownProducers(state.base_offsets[0], ())
