"""The record with the largest timestamp of a partition, if headers of batches claim larger ones."""

from kip33.errors import FileReadError, Kip33Error
from kip33.search.answers import Hit
from kip33.search.log_window import Meter
from kip33.search.partition_segments import PartitionSegments
from kip33.search.searched_segment import SearchedSegment
from kip33.search.segment_search import opened_search


def largest_record(segments: PartitionSegments, meter: Meter, claimed_ms: int) -> Hit | None:
    """Return the record with the largest timestamp, None if no record can be read.

    `claimed_ms` is the largest timestamp in the headers; no record has it. First the batches with
    the largest claims below it are decoded, then those that claim more than these have. No batch
    is decoded twice, so the cost is proportional to the log's size.
    """
    claimed = -1
    for segment in segments.ordered:
        if not segments.is_below_start(segment) and segment.may_hold(claimed + 1):
            claimed = max(claimed, _claimed_below(segments, meter, claimed_ms, segment))
    best = _largest(segments, meter, None, claimed, None)
    if claimed >= 0:
        best = _largest(segments, meter, best, 0, claimed)
    return best[1] if best else None


def _largest(
    segments: PartitionSegments,
    meter: Meter,
    best: tuple[int, Hit] | None,
    claimed_from: int,
    claimed_below: int | None,
) -> tuple[int, Hit] | None:
    """Return a segment's number and its hit, or `best` if that is larger.

    Of equal timestamps the first in the partition wins.
    """
    for place, segment in enumerate(segments.ordered):
        least = max(best[1].claimed, 0) if best else 0
        is_late_enough = segment.may_hold(max(least, claimed_from, 0))
        if segments.is_below_start(segment) or not is_late_enough:
            continue
        try:
            with opened_search(segment, meter, start_offset=segments.start_offset) as search:
                hit = search.find_largest(least, claimed_from, claimed_below)
        except (FileReadError, Kip33Error):
            continue  # it was searched before, and a note says so
        if hit and (best is None or _is_larger(place, hit, best)):
            best = place, hit
    return best


def _claimed_below(
    segments: PartitionSegments, meter: Meter, time_ms: int, segment: SearchedSegment
) -> int:
    try:
        with opened_search(segment, meter, start_offset=segments.start_offset) as search:
            return search.largest_below(time_ms)
    except (FileReadError, Kip33Error):
        return -1  # it was searched before, and a note says so


def _is_larger(place: int, hit: Hit, best: tuple[int, Hit]) -> bool:
    """Return whether a hit is later than the best so far, or equal and before it."""
    return (hit.claimed, -place, -hit.offset) > (best[1].claimed, -best[0], -best[1].offset)
