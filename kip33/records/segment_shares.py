"""A large segment, divided among several tasks at entries of its `.index`."""

from collections.abc import Iterator
from contextlib import ExitStack

from kip33.errors import FileReadError, Kip33Error
from kip33.formats.index_pages import IndexPages, last_position
from kip33.records.index_start import offset_index_of
from kip33.records.read_segment import OffsetShare, ReadSegment


def shares_of(segment: ReadSegment, share_bytes: int) -> list[ReadSegment]:
    """Return a segment as shares of about `share_bytes`, together the same records.

    A segment is divided only if a catalog describes it as complete and all its batches are of
    magic 2: of others a task cannot tell where a batch ends that it does not read. The index only
    chooses the offsets, so a wrong one makes uneven shares.
    """
    size_bytes = segment.listed_bytes
    if not segment.only_v2 or segment.last_offset is None or 2 * size_bytes < 3 * share_bytes:
        return [segment]
    base_offset, end_offset = segment.base_offset or 0, segment.last_offset + 1
    places = [(base_offset, 0)]
    with ExitStack() as files:
        try:
            index = offset_index_of(segment, files)
            if index is not None:
                for relative_offset, position in _points(index, size_bytes, share_bytes):
                    offset = base_offset + relative_offset
                    if places[-1][0] < offset < end_offset and places[-1][1] < position:
                        places.append((offset, position))
        except (FileReadError, Kip33Error):
            return [segment]
    if len(places) == 1:
        return [segment]
    return [
        segment._replace(share=OffsetShare(first, end), listed_bytes=max(stop - start, 0))
        for (first, start), (end, stop) in zip(
            places, [*places[1:], (end_offset, size_bytes)], strict=True
        )
    ]


def _points(index: IndexPages, size_bytes: int, share_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the entries before even parts of a log."""
    count = -(-size_bytes // share_bytes)
    for number in range(1, count):
        target = number * size_bytes // count
        slot = last_position(index, target)
        if slot >= 0:
            yield index[slot]
