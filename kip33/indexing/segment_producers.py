"""The changes of one segment in the states of its producers, read from its headers."""

import io
import struct
from typing import Final

from kip33.errors import CorruptSegmentError, UnsupportedFormatError
from kip33.formats.batch import CONTROL, BatchHeader
from kip33.formats.byte_sources import ReadInto, read_fully
from kip33.formats.records import iterate_records
from kip33.formats.scan import read_header_at
from kip33.rules.producer_state import ProducerChange, SeenProducers, changes_of

_MARKER_VALUE: Final = struct.Struct(">hi")  # version, coordinator epoch


def read_changes(seen: SeenProducers, read_into: ReadInto) -> tuple[ProducerChange, ...]:
    """Return the changes of a segment; reads the headers of each producer's last batches again.

    Raises CorruptSegmentError for a marker that cannot be read, OSError as the store does.
    """
    headers: dict[int, BatchHeader] = {}
    epochs: dict[int, int] = {}
    for position in seen.positions():
        header = headers[position] = read_header_at(read_into, position)
        if header.attributes & CONTROL:
            epochs[position] = _coordinator_epoch(read_into, header)
    return changes_of(seen, headers, epochs)


def _coordinator_epoch(read_into: ReadInto, header: BatchHeader) -> int:
    """Return the coordinator epoch inside a marker: `EndTransactionMarker.deserialize`."""
    body = read_fully(read_into, header.position, header.size_bytes)
    try:
        record = next(iterate_records(io.BytesIO(body), position=header.position))
        _, epoch = _MARKER_VALUE.unpack_from(record.value or b"")
    except (StopIteration, struct.error, CorruptSegmentError, UnsupportedFormatError) as error:
        raise CorruptSegmentError(
            f"the marker at byte {header.position} is damaged: {error}",
            valid_bytes=header.position,
        ) from error
    return int(epoch)
