"""The files that a broker keeps beside the logs of a restored partition.

They follow from the facts of all its segments in order: `.txnindex`, `.snapshot`,
`leader-epoch-checkpoint`, `partition.metadata`.

The producers and leader epochs before the first restored segment come from the `.snapshot` beside
its log, or else from the segments before it, whose headers are read from the newest `.snapshot` on.
A partition without earlier segments and snapshots begins without producers, as in a broker.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from kip33.errors import CorruptSegmentError, FileReadError, Kip33Error, counted
from kip33.formats.names import segment_file_name
from kip33.formats.partition_metadata import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    EpochStart,
    PartitionMetadata,
    epochs_from,
    format_epoch_checkpoint,
    parse_epoch_checkpoint,
    truncate_epochs,
)
from kip33.formats.producer_snapshot import ProducerSnapshot
from kip33.formats.transaction_index import TransactionIndex
from kip33.indexing.partition_state import PartitionState
from kip33.restore.restore_request import RestoreRequest, SourceSegment
from kip33.restore.restore_source import PartitionPlan, missing_between, overlaps_between
from kip33.restore.restored_segment import SegmentFacts
from kip33.restore.source_logs import beyond_end, nothing_left
from kip33.rules.leader_epochs import EpochFall, with_later_epochs
from kip33.rules.offset_holes import OffsetSpan
from kip33.rules.segment_summary import SegmentStatus
from kip33.rules.transaction_index import Open, complete_transactions
from kip33.stores.files import read_whole
from kip33.stores.locations import Location

_MOST_CHECKPOINT_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class FinishedPartition:
    """A staged partition: its small files by name and its offsets, or a `problem`."""

    plan: PartitionPlan
    facts: Sequence[SegmentFacts]  # of its segments, in order
    problem: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    start_offset: int = -1  # of the log
    notes: tuple[str, ...] = ()
    producers_left_out: int = 0  # of its last `.snapshot`: they are of another cluster

    @property
    def first_base_offset(self) -> int:
        """Return the base offset of its first segment."""
        return self.facts[0].base_offset

    @property
    def end_offset(self) -> int:
        """Return the offset after its last record."""
        return max(segment.end_offset for segment in self.facts)

    @property
    def largest_epoch(self) -> int:
        """Return the largest leader epoch of batches in the source, -1 without one."""
        return max(segment.largest_epoch for segment in self.facts)

    @property
    def bytes_there(self) -> int:
        """Return the size of the logs that an earlier run staged."""
        return sum(one.kept_bytes for one in self.facts if one.was_there)

    @property
    def bytes_linked(self) -> int:
        """Return the size of the logs that became hard links."""
        return sum(one.kept_bytes for one in self.facts if one.is_linked and not one.was_there)

    @property
    def bytes_copied(self) -> int:
        """Return the size of the logs that were copied."""
        total = sum(one.kept_bytes for one in self.facts)
        return total - self.bytes_there - self.bytes_linked

    @property
    def unreadable(self) -> list[str]:
        """Return a line for each log that could not be read."""
        return [
            one.problem
            for one in self.facts
            if one.problem and one.status == SegmentStatus.UNREADABLE and not one.has_changed
        ]


def finish_partition(
    plan: PartitionPlan, facts: Sequence[SegmentFacts], request: RestoreRequest
) -> FinishedPartition:
    """Return the files of a partition whose segments, in order, have these facts.

    With a `leader_epoch` no later one is in the `leader-epoch-checkpoint`, and only producers with
    an open transaction are in the `.snapshot` files: the cluster is a new one.
    """
    notes = [segment.note for segment in facts if segment.note]
    spans = [_span(*one) for one in zip(plan.segments, facts, strict=True)]
    holes = list(missing_between(spans))
    problem = next((segment.problem for segment in facts if segment.problem), None)
    if problem is None and not request.allow_holes:
        problem = next((text for text, is_certain in holes if is_certain), None)
    problem = problem or next(overlaps_between(spans), None)
    valid_bytes = (segment.source_valid_bytes for segment in facts)
    nothing = nothing_left(zip(plan.segments, valid_bytes, strict=True))
    problem = problem or (nothing and "; ".join([nothing, *notes]))
    problem = problem or beyond_end(plan, max(span.end for span in spans))
    problem = problem or _epoch_problem(plan, facts, request)
    if problem is not None:
        return FinishedPartition(plan, facts, problem)
    notes += [text for text, _ in holes]
    files: dict[str, bytes] = {}
    state = _state_before(plan)
    known_epochs = _at_most(state.epochs, request.leader_epoch)
    state = state._replace(epochs=with_later_epochs((), known_epochs))
    for number, segment in enumerate(facts):
        if number:
            name = segment_file_name(segment.base_offset, "snapshot")
            files[name] = _snapshot(state, request).to_bytes()
        completed = complete_transactions(
            segment.transactions,
            state.producers.open_transactions,
            base_offset=segment.base_offset,
        )
        if completed.aborted is None or completed.open_at_end is None:
            why = completed.problem or "its transactions do not go on from the producers before it"
            problem = f"the segment at offset {segment.base_offset}: {why}"
            return FinishedPartition(plan, facts, problem)
        if completed.aborted:
            index = TransactionIndex.from_entries(
                completed.aborted, base_offset=segment.base_offset
            )
            files[segment_file_name(segment.base_offset, "txnindex")] = index.to_bytes()
        state = state.after(segment.producers, segment.epochs)
    first, end = facts[0].base_offset, max(segment.end_offset for segment in facts)
    last = _snapshot(state, request)
    if end > first:  # an empty last segment has this file already
        files.setdefault(segment_file_name(end, "snapshot"), last.to_bytes())
    start = end if plan.starts_at_end else min(max(first, plan.asked_start or 0), end)
    epochs = epochs_from(truncate_epochs(state.epochs, end), start)
    text = format_epoch_checkpoint(epochs) if epochs else ""  # the file of a new log is empty
    files[LEADER_EPOCH_CHECKPOINT] = text.encode()
    if plan.topic_id is not None:
        files[PARTITION_METADATA] = PartitionMetadata(plan.topic_id).to_bytes()
    if open_now := state.producers.open_transactions:
        notes.append(_left_open(open_now))
    left_out = len(state.producers.producers) - len(last.producers)
    return FinishedPartition(plan, facts, None, files, start, tuple(notes), left_out)


def _snapshot(state: PartitionState, request: RestoreRequest) -> ProducerSnapshot:
    is_new_cluster = request.leader_epoch is not None
    return state.producers.for_a_new_cluster() if is_new_cluster else state.producers


def _span(segment: SourceSegment, facts: SegmentFacts) -> OffsetSpan:
    """Return the offsets of a segment; no hole is inside of a log."""
    following = segment.part.next_base_offset if segment.part else None
    end = facts.end_offset if following is None else max(facts.end_offset, following)
    return OffsetSpan(facts.base_offset, end, facts.record_count)


def _epoch_problem(
    plan: PartitionPlan, facts: Sequence[SegmentFacts], request: RestoreRequest
) -> str | None:
    """Return why the batches are not of one log: their leader epochs fall.

    A log that was restored to a new cluster and went on there may have such epochs, too: then one
    epoch in all batches is right. Batches of two tiers are of several leaders.
    """
    falls: list[EpochFall] = []
    largest = -1
    for one in facts:
        if 0 <= one.first_epoch < largest:
            falls.append(EpochFall(one.base_offset, one.first_epoch, largest))
        falls += [one.epoch_fall] if one.epoch_fall else []
        largest = max(largest, one.largest_epoch)
    if not falls:
        return None
    lowest = min(fall.epoch for fall in falls)
    if plan.remote_segments:
        return f"{falls[0]}; build both catalogs again, and restore from them"
    if request.leader_epoch is not None and request.leader_epoch <= lowest:
        return None
    return (
        f"{falls[0]}; if it is of this log, as after a restore to a new cluster, give "
        f"--leader-epoch {lowest}"
    )


def _at_most(epochs: Sequence[EpochStart], leader_epoch: int | None) -> Iterator[EpochStart]:
    for one in epochs:
        epoch = one.epoch if leader_epoch is None else min(one.epoch, leader_epoch)
        yield one._replace(epoch=epoch)


def _left_open(open_now: Open) -> str:
    return (
        f"{counted(len(open_now), 'transaction')} open at the end, the first from offset "
        f"{min(open_now.values())} on; consumers with read_committed stop there until it ends. A "
        "new cluster does not know it: kafka-transactions.sh --abort ends it"
    )


def _checkpoint_beside(log: Location) -> tuple[EpochStart, ...]:
    """The leader epochs of the checkpoint beside a log; none if it cannot be read."""
    with suppress(OSError, Kip33Error, ValueError):
        place = log.parent.child(LEADER_EPOCH_CHECKPOINT)
        return parse_epoch_checkpoint(read_whole(place, most_bytes=_MOST_CHECKPOINT_BYTES).decode())
    return ()


def _state_before(plan: PartitionPlan) -> PartitionState:
    """Return the state before the first segment, without what cannot be read."""
    # A replica's checkpoint may have epochs of another leader than the log's, if they parted.
    has_parted = any(one.is_remote or one.outside_from is not None for one in plan.segments)
    epochs = () if has_parted else _checkpoint_beside(plan.segments[0].log)
    segments = (*plan.earlier, plan.segments[0])
    found: PartitionState | None = None
    for first in reversed(range(len(segments))):
        one = segments[first]
        found = PartitionState.beside(one.log, one.base_offset) if one.base_offset else None
        if found:
            break
    known = state = (found or PartitionState())._replace(epochs=epochs)
    try:
        for one in segments[first:-1]:
            state, damage = state.after_log(one.log, until_offset=one.until_offset)
            if damage:
                break
    except (FileReadError, CorruptSegmentError):
        return known
    return state
