"""A large segment as spans, each read alone by a task or a worker.

An entry of the `.index` says where a batch begins. The batch there must have the right CRC, so a
wrong index makes fewer spans, not wrong ones. A span remembers the offset at its start: if the log
was written again since, the same offsets are read of what is there now.
"""

from collections.abc import Iterator
from contextlib import ExitStack

from kip33.archive.log_window import LogWindow, Meter
from kip33.errors import FileReadError, Kip33Error
from kip33.formats.batch import BatchHeader
from kip33.formats.index_pages import IndexPages, last_position
from kip33.records.partitions import ReadSegment, Span
from kip33.records.record_request import RecordRequest
from kip33.records.segment_reader import start_of
from kip33.stores.files import opened


def spans_of(segment: ReadSegment, request: RecordRequest, span_bytes: int) -> list[ReadSegment]:
    """Return a segment in spans of about `span_bytes`, or whole if it is not much larger.

    It is whole, too, if readers are told something of it, which is said once, and where reading may
    stop inside it.
    """
    last_offset = request.limits.last_offset
    is_end = segment.next_base_offset is None or segment.next_base_offset > last_offset
    stops = request.disorder_ms is not None or last_offset < RecordRequest().limits.last_offset
    if 2 * segment.listed_bytes < 3 * span_bytes or segment.error:
        return [segment]
    if segment.warnings(request.limits.first_offset) or (stops and is_end):
        return [segment]
    if segment.slice.until_offset is not None:
        return [segment]
    try:
        return list(_spans(segment, request, span_bytes)) or [segment]
    except (FileReadError, Kip33Error):
        return [segment]


def _spans(segment: ReadSegment, request: RecordRequest, span_bytes: int) -> Iterator[ReadSegment]:
    """Yield the spans; none without entries that batches confirm."""
    limits = request.inside(segment.slice).limits
    with ExitStack() as files:
        read_into, size_bytes = files.enter_context(opened(segment.log))
        size_bytes = segment.readable_bytes(size_bytes)
        index = segment.slice.offset_index(files, Meter())
        if index is None:
            return
        log = LogWindow(read_into, size_bytes, check_crc=True)
        places = [start_of(segment, limits, read_into, size_bytes)]
        places += _positions(index, size_bytes, span_bytes)
        firsts: list[BatchHeader] = []  # of each span
        for place in sorted({*places}):
            found = next(log.headers(place), None) if place >= places[0] else None
            firsts += [found] if found else []
    if not firsts or firsts[0].position != places[0]:
        return
    stops = [*((one.position, one.base_offset) for one in firsts[1:]), (None, None)]
    for first, (stop, end_offset) in zip(firsts, stops, strict=True):
        span = Span(first.position, stop, first.base_offset, end_offset, size_bytes)
        listed_bytes = (size_bytes if stop is None else stop) - first.position
        yield segment._replace(span=span, listed_bytes=listed_bytes)


def _positions(index: IndexPages, size_bytes: int, span_bytes: int) -> Iterator[int]:
    """Yield the positions of the entries before even parts of a log."""
    count = -(-size_bytes // span_bytes)
    for number in range(1, count):
        slot = last_position(index, number * size_bytes // count)
        if slot >= 0:
            yield index[slot][1]
