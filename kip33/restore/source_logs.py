"""What a restore makes of logs that are not as they should be: damaged ends, zeros, long offsets.

A broker cuts whatever follows the last valid batch. One flipped bit in the first batch, or a log
that is compressed under its own name, is then an empty partition. So a restore cuts a tenth of the
log at most, unless more is allowed, and never makes a partition without any batch of logs that are
not empty. Zeros after the last batch are no damage: `rules.segment_summary`. A log whose offsets
span 2^31 or more becomes the segments that Kafka splits it into: `indexing.split_segment`.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Self

from kip33.archive.log_slice import LogSlice
from kip33.archive.log_window import Meter
from kip33.errors import CorruptSegmentError, FileReadError, Kip33Error, counted
from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES
from kip33.formats.scan import BatchScan
from kip33.indexing.segment import BuiltIndexes, with_whole_log
from kip33.indexing.split_segment import SplitPart, split_parts
from kip33.restore.restore_request import LogEnd, LogPart, RestoreRequest, SourceSegment
from kip33.restore.restore_source import PartitionPlan
from kip33.rules.broker_directory import start_beyond_end
from kip33.rules.segment_summary import SegmentStatus
from kip33.stores.files import one_line, opened
from kip33.stores.locations import Location

_LARGEST_SHARE: Final = 10  # a tenth of the log


class CutEnd(NamedTuple):
    """Why a partition is refused because of a log's end, or a note on what is left out of it."""

    problem: str | None = None
    note: str | None = None

    @classmethod
    def of(cls, uri: str, end: LogEnd, *, allow_cut: bool) -> Self:
        """Judge the end of a partition's last log, as a scan found it."""
        cut_bytes = end.size_bytes - end.valid_bytes
        what = f"{uri}: {end.error}"
        if not cut_bytes:
            return cls()
        if not end.is_damaged:
            return cls(note=what)
        if cut_bytes * _LARGEST_SHARE <= end.size_bytes or allow_cut:
            return cls(
                note=f"{what}; the last {cut_bytes} bytes are cut, as a broker cuts them when it "
                "recovers the log"
            )
        found = "no batch of it is valid" if not end.valid_bytes else "more than a tenth is lost"
        return cls(
            f"{what}; {found}: a broker would cut {cut_bytes} of {end.size_bytes} bytes; restore "
            "another copy, or give --allow-cut"
        )


def end_of(index: BuiltIndexes) -> LogEnd:
    """Return how a scanned log ends."""
    is_damaged = index.status == SegmentStatus.TRUNCATED
    return LogEnd(index.size_bytes, index.valid_bytes, is_damaged, index.end_offset, index.error)


def whole(index: BuiltIndexes, segment: SourceSegment) -> BuiltIndexes:
    """Return the indexes of a segment's log; zeros after its last batch may be no damage."""
    following = segment.next_base_offset
    return with_whole_log(index, is_last=following is None, next_base_offset=following)


def nothing_left(logs: Iterable[tuple[SourceSegment, int]]) -> str | None:
    """Return why a partition is refused whose logs are not empty, but have no batch at all.

    `logs` are its segments and their valid bytes.
    """
    found = list(logs)
    size_bytes = sum(segment.size_bytes for segment, _ in found)
    if not size_bytes or any(valid_bytes for _, valid_bytes in found):
        return None
    return (
        f"{found[0][0].log.parent.uri}: no batch is valid in {counted(len(found), 'log')} of "
        f"{size_bytes} bytes; nothing would be restored"
    )


def beyond_end(plan: PartitionPlan, end_offset: int) -> str | None:
    """Return why a partition is refused that ends before its log start offset in the source."""
    if plan.log_start is None or plan.log_start <= end_offset:
        return None
    uri = plan.segments[0].log.parent.uri
    return start_beyond_end(uri, end_offset, plan.log_start, plan.name).line


def with_end(plan: PartitionPlan, request: RestoreRequest) -> PartitionPlan:
    """The plan with what the end of its last log means for it, if a catalog knows the end.

    The damaged last log of another copy may end later: it is read.
    """
    if plan.problem is not None:
        return plan
    for note in plan.damaged:
        if not request.allow_cut and _loses_much(Location.of(note.other or "")):
            text = note.text.removeprefix(f"{plan.name}: ")
            return replace(plan, problem=f"{text}; give --allow-cut to restore without them")
    segment = plan.segments[-1]
    end = segment.end
    if end is None:
        return plan
    cut = CutEnd.of(segment.log.uri, end, allow_cut=request.allow_cut)
    problem = cut.problem
    if problem is None and len(plan.segments) == 1:
        problem = nothing_left([(segment, end.valid_bytes)])
    if problem is None and segment.cut_offset is None:
        problem = beyond_end(plan, end.end_offset)
    if problem:
        why = f"; {end.error}" if end.error and end.error not in problem else ""
        return replace(plan, problem=problem + why)
    return replace(plan, notes=(*plan.notes, cut.note) if cut.note else plan.notes)


def _loses_much(log: Location) -> bool:
    """Whether more than a tenth of a log is behind its first damage, or it cannot be read."""
    try:
        with opened(log) as (read_into, size_bytes):
            scan = BatchScan(read_into, size_bytes)
            deque(scan, maxlen=0)
    except (FileReadError, Kip33Error):
        return True
    return (size_bytes - scan.valid_bytes) * _LARGEST_SHARE > size_bytes


def with_parts(request: RestoreRequest, plan: PartitionPlan) -> PartitionPlan:
    """The plan with the parts of logs that Kafka splits, or whose first batches are left out."""
    segments: list[SourceSegment] = []
    for segment in plan.segments:
        is_split = segment.is_split or segment.log.uri in request.to_split
        if not is_split and not segment.is_cut_before:
            segments.append(segment)
            continue
        try:
            if segment.is_cut_before:
                segments.append(_cut_before(segment))
                continue
            parts = split_parts(segment.log, segment.base_offset)
        except (FileReadError, Kip33Error) as error:
            problem = f"{segment.log.uri}: {one_line(error)}"
            return replace(plan, problem=problem, is_unreadable=isinstance(error, FileReadError))
        segments += _parts_of(segment, parts) or [segment]
    return replace(plan, segments=tuple(segments))


def _cut_before(segment: SourceSegment) -> SourceSegment:
    """The part of a log from the batch on that begins at its base offset.

    CorruptSegmentError if no batch begins there, FileReadError if the log cannot be read.
    """
    of_log = LogSlice(
        segment.log, from_offset=segment.base_offset, base_offset=segment.source_base_offset
    )
    with of_log.opened(Meter(DEFAULT_MAX_BATCH_BYTES)) as log:
        first = next(log.headers(), None)
    if first is None or first.base_offset < segment.base_offset:
        found = log.window.damage or (
            f"the batch of offsets {first.base_offset} to {first.last_offset} begins before"
            if first
            else "the log ends before"
        )
        raise CorruptSegmentError(
            f"{found}; expected a batch that begins at offset {segment.base_offset}, where the "
            "segment before ends"
        )
    left = segment.size_bytes - first.position
    return segment._replace(size_bytes=left, part=LogPart(first.position, segment.size_bytes, None))


def _parts_of(segment: SourceSegment, parts: Sequence[SplitPart]) -> list[SourceSegment]:
    """Return the segments that a log is split into, before an offset where it is cut."""
    kept = [one for one in parts if one.base_offset < segment.cut_from]
    following = [one.base_offset for one in parts[1:]]
    log_bytes = parts[-1].stop if parts else 0
    return [
        segment._replace(
            base_offset=part.base_offset,
            size_bytes=part.stop - part.start,
            is_last=segment.is_last and part is kept[-1],
            next_base_offset=next_base or segment.next_base_offset,
            part=LogPart(part.start, log_bytes, next_base),
        )
        for part, next_base in zip(kept, [*following, None], strict=False)
    ]
