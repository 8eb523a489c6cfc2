"""A segment whose offsets span 2^31 or more, as the segments that Kafka splits it into.

Brokers before 1.1 could make such segments by compaction (KAFKA-6264). An index entry has no room
for such an offset. Kafka 2.0 and later splits the segment when it recovers it
(`LocalLog.splitOverflowedSegment`): a new one begins at the first batch, and wherever the last
offset of a batch is 2^31 or more above the base offset.
"""

from typing import NamedTuple

from kip33.formats.batch import CODEC_MASK, MAX_INT32
from kip33.formats.records import iterate_records
from kip33.formats.scan import BatchScan
from kip33.stores.files import opened
from kip33.stores.locations import Location


class SplitPart(NamedTuple):
    """One of the segments that a segment becomes: bytes of its log, from `start` up to `stop`."""

    base_offset: int
    start: int
    stop: int


def split_parts(log: Location, base_offset: int) -> list[SplitPart]:
    """Return the parts of a log, none if its offsets span less than 2^31; headers are read.

    Bytes after the last batch belong to the last part. Raises what the store raises, and
    CorruptSegmentError for compressed messages of v0 and v1 that cannot be read.
    """
    begins: list[tuple[int, int]] = []
    is_too_long = False
    with opened(log) as (read_into, size_bytes):
        for batches in BatchScan(read_into, size_bytes, check_crc=False):
            for batch in batches[["position", "base_offset", "last_offset", "magic", "attributes"]]:
                position, first, last, magic, attributes = batch.item()
                is_too_long |= last - base_offset > MAX_INT32
                if begins and last - begins[-1][0] <= MAX_INT32:
                    continue
                if magic < 2 and attributes & CODEC_MASK:  # the header has the last offset
                    first = _first_offset(log, position)
                begins.append((first, position))
    if not is_too_long:
        return []
    stops = [*(position for _, position in begins[1:]), size_bytes]
    return [SplitPart(*begin, stop) for begin, stop in zip(begins, stops, strict=True)]


def _first_offset(log: Location, position: int) -> int:
    with log.filesystem().open_input_file(log.path) as file:
        file.seek(position)
        return next(iterate_records(file, position=position, skip_key_value=True)).offset
