"""Which segments of a partition are restored, and where its log then begins and ends.

Whole segments are chosen: from the one that has the first record at or after `--from`, up to the
one before the first record at or after `--until`. Records before the start stay in the first
segment. The log start offset hides them from consumers, as after `kafka-delete-records.sh`.
"""

from typing import NamedTuple

from kip33.errors import FileReadError, Kip33Error
from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES
from kip33.restore.restore_request import RestoreRequest, SourceSegment
from kip33.rules.search import Exactness
from kip33.search.log_window import Meter
from kip33.search.searched_segment import SearchedSegment
from kip33.search.segment_search import opened_search
from kip33.stores.files import one_line


class RestoreRange(NamedTuple):
    """The chosen segments of a partition, or the problem."""

    segments: tuple[SourceSegment, ...]
    earlier: tuple[SourceSegment, ...] = ()  # not restored, before the first one
    start_offset: int | None = None  # None: that of the first segment
    starts_at_end: bool = False  # no record is at or after the time
    problem: str | None = None
    is_unreadable: bool = False  # the problem is a log that could not be read


class _RangeError(Exception):
    """The range cannot be found; the text says why."""

    is_unreadable = False


class _UnreadableError(_RangeError):
    """A log could not be read; the text has its URI."""

    is_unreadable = True


def choose_range(
    request: RestoreRequest, segments: tuple[SourceSegment, ...], start_offset: int | None
) -> RestoreRange:
    """Return what is restored of the segments of one partition, which are in order.

    `start_offset` is that of the source's `log-start-offset-checkpoint`. Logs are read where a time
    is asked for.
    """
    try:
        start = _start_of(request, segments)
        end = _first_offset(segments, request.until_ms) if request.until_ms is not None else None
    except _RangeError as error:
        return RestoreRange(segments, problem=str(error), is_unreadable=error.is_unreadable)
    chosen = [one for one in segments if end is None or one.base_offset < end]
    if not chosen:
        return RestoreRange(segments, problem=f"no record is before --until: the first is {end}")
    first = 0
    if start is not None:
        first = max((n for n, one in enumerate(chosen) if one.base_offset <= start), default=0)
    if start is None and request.from_ms is not None:
        first = len(chosen) - 1
    kept = [one._replace(is_last=False) for one in chosen[first:]]
    cut_offset = end if request.is_truncated else None
    kept[-1] = kept[-1]._replace(is_last=True, cut_offset=cut_offset)
    known = [one for one in (start, start_offset) if one is not None]
    return RestoreRange(
        tuple(kept),
        tuple(chosen[:first]),
        max(known, default=None),
        starts_at_end=start is None and request.from_ms is not None,
    )


def _start_of(request: RestoreRequest, segments: tuple[SourceSegment, ...]) -> int | None:
    if request.from_ms is not None:
        return _first_offset(segments, request.from_ms)
    name = segments[0].topic, segments[0].partition
    return request.from_offsets.get(name)


def _first_offset(segments: tuple[SourceSegment, ...], time_ms: int) -> int | None:
    """Return the offset of the first record at or after a time, None without one.

    Index files beside the logs are used where the logs agree with them. Segments that a catalog
    shows to be older are not read.
    """
    for segment in segments:
        if segment.max_timestamp is not None and segment.max_timestamp < time_ms:
            continue
        row = SearchedSegment.of_log(segment.log.uri, segment.base_offset)
        meter = Meter(DEFAULT_MAX_BATCH_BYTES)
        try:
            with opened_search(
                row, meter, start_offset=segment.base_offset, check_crc=True
            ) as search:
                hit = search.find(time_ms)
                damage = search.log.damage
        except (FileReadError, Kip33Error) as error:
            raise _UnreadableError(f"{segment.log.uri}: {one_line(error)}") from error
        if hit and hit.exactness == Exactness.BATCH:
            raise _RangeError(f"{segment.log.uri}: {hit.note}")
        if hit:
            return hit.offset
        if damage and not segment.is_last:
            raise _RangeError(f"{segment.log.uri}: {damage}")
    return None
