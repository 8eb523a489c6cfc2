"""One pass over the segments of a partition: its producers and leader epochs.

Only headers are needed, so no batch is decompressed, and without `check_crc` bodies are skipped.
The result is that of Kafka's recovery (`LogLoader.recoverLog`): a segment that is damaged ends the
log, and the segments after it are not read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kip33.errors import CorruptSegmentError
from kip33.formats.batch import NO_TIMESTAMP
from kip33.formats.partition_metadata import EpochStart
from kip33.formats.producer_snapshot import ProducerSnapshot, ProducerState, in_kafkas_order
from kip33.formats.scan import BatchScan
from kip33.formats.time_index import TimestampOffset
from kip33.indexing.segment_producers import read_changes
from kip33.rules.leader_epochs import leader_epochs_of
from kip33.rules.producer_state import Expiration, SeenProducers, after_changes, without_expired
from kip33.stores.files import scanned
from kip33.stores.locations import Location

_NO_OFFSET: Final = -1


class LogToReplay(NamedTuple):
    """A segment to read: its base offset, its log, and how much of it (None: all)."""

    base_offset: int
    place: Location
    size_bytes: int | None = None
    until_offset: int | None = None  # batches from here on belong to the next segment


class KnownProducers(NamedTuple):
    """The producers of a `.snapshot`, and the offset in its name."""

    offset: int
    producers: tuple[ProducerState, ...]


class ReplayedSegment(NamedTuple):
    """The facts of one segment, from its headers."""

    base_offset: int
    size_bytes: int
    valid_bytes: int  # complete, valid batches from the start
    end_offset: int  # after its last batch; the base offset without one
    batch_count: int
    largest: TimestampOffset  # max timestamp, and last offset of the first batch that has it
    damage: str | None  # why the bytes after `valid_bytes` are not valid
    loads: bool  # False: Kafka refuses to load a log with this segment


@dataclass(frozen=True)
class PartitionReplay:
    """The result of a pass; `segments` ends with the first damaged one."""

    segments: tuple[ReplayedSegment, ...]
    end_offset: int
    epochs: tuple[EpochStart, ...]
    largest_epoch: int  # of any batch, -1: none
    producers: tuple[ProducerState, ...]  # at the end
    snapshots: dict[int, bytes]  # of `.snapshot` files, by the offset in their names

    @property
    def damage(self) -> str | None:
        """Return why the log ends early, None if it does not."""
        return self.segments[-1].damage if self.segments else None

    @property
    def snapshot_at_end(self) -> bytes:
        """Return the `.snapshot` at the end, even for a log without records."""
        return snapshot_bytes(self.producers)


def replay_partition(
    logs: Sequence[LogToReplay],
    *,
    known: KnownProducers | None = None,
    wanted: Sequence[int] | None = None,
    epochs: tuple[EpochStart, ...] = (),
    expiration: Expiration | None = None,
    check_crc: bool = True,
) -> PartitionReplay:
    """Read the segments of a partition in order of their base offsets.

    `known` is the state at the start; without it the producers before the first segment are
    unknown. Batches before its offset do not change it. `wanted` are base offsets at which a
    `.snapshot` is made, by default that of the last segment; one at the log's end is made, too. As
    in Kafka the first base offset has no file. `epochs` are those before the first segment.
    With an `expiration` producers are forgotten as by a broker that recovers the log.

    OSError is passed on, and so is CorruptSegmentError for a file that shrinks while it is read.
    """
    state = _State(known, epochs, expiration)
    if wanted is None:
        wanted = [log.base_offset for log in logs[-1:]]
    snapshots: dict[int, bytes] = {}
    segments: list[ReplayedSegment] = []
    end_offset = first = logs[0].base_offset if logs else 0
    for log in logs:
        at_base = state.begin(log.base_offset)
        if log.base_offset in wanted and log.base_offset > max(first, state.known_to):
            snapshots[log.base_offset] = snapshot_bytes(at_base)
        segment = _read_segment(log, state, check_crc=check_crc)
        segments.append(segment)
        end_offset = segment.end_offset
        if segment.damage or not segment.loads:
            break
    if end_offset > first:
        is_empty = segments[-1].end_offset == segments[-1].base_offset
        snapshots[end_offset] = snapshot_bytes(at_base if is_empty else state.producers)
    return PartitionReplay(
        tuple(segments),
        end_offset,
        state.epochs,
        state.largest_epoch,
        state.producers,
        snapshots,
    )


def snapshot_bytes(producers: tuple[ProducerState, ...]) -> bytes:
    """Return the bytes of the `.snapshot` with these producers."""
    return ProducerSnapshot(in_kafkas_order(producers)).to_bytes()


class _State:
    """The state that is carried from segment to segment."""

    def __init__(
        self,
        known: KnownProducers | None,
        epochs: tuple[EpochStart, ...],
        expiration: Expiration | None,
    ) -> None:
        self.producers = known.producers if known else ()
        self.known_to = known.offset if known else _NO_OFFSET
        self.taken_at = self.known_to  # offset of the snapshot that recovery took last
        self.epochs = epochs
        self.largest_epoch = epochs[-1].epoch if epochs else -1
        self._expiration = expiration

    def begin(self, base_offset: int) -> tuple[ProducerState, ...]:
        """Begin a segment; return the producers of the snapshot at its base offset.

        Recovery loads the snapshot that it took after the segment before. Only then it forgets
        expired producers, so the snapshot has them. Where the segment begins later than the one
        before ends, recovery takes another snapshot.
        """
        before = self.producers
        self.producers = without_expired(in_kafkas_order(before), self._expiration)
        return before if self.taken_at == base_offset else self.producers


def _read_segment(log: LogToReplay, state: _State, *, check_crc: bool) -> ReplayedSegment:
    seen = SeenProducers()
    largest = TimestampOffset(NO_TIMESTAMP, log.base_offset)
    end_offset, batch_count = log.base_offset, 0
    with scanned(log.place) as (read_into, size_bytes, view_at):
        if log.size_bytes is not None:
            size_bytes, view_at = log.size_bytes, None
        scan = BatchScan(read_into, size_bytes, check_crc=check_crc, view_at=view_at)
        for batches in scan:
            if log.until_offset is not None:
                batches = batches[batches["base_offset"] < log.until_offset]
                if not len(batches):
                    break
            seen.append(batches[batches["last_offset"] >= state.known_to])
            state.epochs = leader_epochs_of(batches, state.epochs)
            state.largest_epoch = max(state.largest_epoch, int(batches["leader_epoch"].max()))
            first = int(batches["max_timestamp"].argmax())
            if batches["max_timestamp"][first] > largest.timestamp:
                largest = TimestampOffset(
                    int(batches["max_timestamp"][first]), int(batches["last_offset"][first])
                )
            batch_count += len(batches)
            end_offset = int(batches["last_offset"][-1]) + 1
            with_state = batches["last_offset"][batches["magic"] >= 2]
            if len(with_state):
                state.taken_at = int(with_state[-1]) + 1
        damage, loads = scan.damage or scan.load_failure, scan.load_failure is None
        try:
            changes = read_changes(seen, read_into)
        except CorruptSegmentError as error:
            changes, damage, loads = (), str(error), False
        state.producers = after_changes(state.producers, changes)
    return ReplayedSegment(
        log.base_offset,
        size_bytes,
        scan.valid_bytes,
        end_offset,
        batch_count,
        largest,
        damage,
        loads,
    )
