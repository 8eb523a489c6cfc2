"""The producers and leader epochs of a partition before its first restored segment.

They come from the `.snapshot` beside the log of that segment, or else from the segments before it,
whose headers are read from the newest `.snapshot` on. A partition without earlier segments and
snapshots begins without producers, as in a broker.
"""

from collections.abc import Sequence

from kip33.archive.log_start_offsets import MOST_CHECKPOINT_BYTES
from kip33.archive.segment_paths import beside
from kip33.errors import CorruptSegmentError, CorruptSnapshotError, FileReadError
from kip33.formats.partition_metadata import (
    LEADER_EPOCH_CHECKPOINT,
    EpochStart,
    parse_epoch_checkpoint,
)
from kip33.formats.producer_snapshot import ProducerSnapshot
from kip33.indexing.partition_replay import KnownProducers, LogToReplay, replay_partition
from kip33.indexing.transaction_chains import MOST_SNAPSHOT_BYTES
from kip33.restore.finished_partition import KnownBefore
from kip33.restore.restore_plan import PartitionPlan
from kip33.restore.restore_request import SourceSegment
from kip33.stores.files import read_whole


def known_before(plan: PartitionPlan) -> KnownBefore:
    """Return what is known before the first segment; what cannot be read is not known."""
    segments = (*plan.earlier, plan.segments[0])
    first = len(segments) - 1
    known = None
    while known is None and first >= 0:
        known = _snapshot(segments[first])
        first -= known is None
    first = max(first, 0)
    epochs = _checkpoint(plan.segments[0])
    if segments[first:-1]:
        known, epochs = _replayed(segments[first:-1], known, epochs)
    return KnownBefore(
        known.producers if known else (),
        epochs,
        plan.asked_start,
        plan.starts_at_end,
    )


def _snapshot(segment: SourceSegment) -> KnownProducers | None:
    if segment.base_offset == 0 or segment.log.inside:
        return None
    try:
        data = read_whole(beside(segment.log, "snapshot"), most_bytes=MOST_SNAPSHOT_BYTES)
        producers = ProducerSnapshot.from_bytes(data).producers
    except (FileReadError, ValueError, CorruptSnapshotError):
        return None
    return KnownProducers(segment.base_offset, producers)


def _checkpoint(segment: SourceSegment) -> tuple[EpochStart, ...]:
    place = segment.log.parent.child(LEADER_EPOCH_CHECKPOINT)
    try:
        text = read_whole(place, most_bytes=MOST_CHECKPOINT_BYTES).decode()
        return parse_epoch_checkpoint(text)
    except (FileReadError, ValueError):
        return ()


def _replayed(
    segments: Sequence[SourceSegment],
    known: KnownProducers | None,
    epochs: tuple[EpochStart, ...],
) -> tuple[KnownProducers | None, tuple[EpochStart, ...]]:
    logs = [LogToReplay(one.base_offset, one.log) for one in segments]
    try:
        replay = replay_partition(logs, known=known, epochs=epochs, wanted=(), check_crc=False)
    except (FileReadError, CorruptSegmentError):
        return known, epochs
    return KnownProducers(replay.end_offset, replay.producers), replay.epochs
