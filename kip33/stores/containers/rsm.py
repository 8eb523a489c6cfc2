"""One file with all parts of a segment: the newer form of HDFS's RemoteStorageManager.

    25 bytes of header (`kip33.formats.rsm_header`), .index, .timeindex, leader epochs, .snapshot,
    .txnindex, .log

No part is compressed, so a part is a range of the file.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from kip33.formats.byte_sources import ReadInto, range_of, read_fully
from kip33.formats.rsm_header import RSM_HEADER_BYTES, HeaderPart, decode_rsm_header
from kip33.stores.locations import Location, OpenFile


def read_parts(read_into: ReadInto, file_bytes: int) -> dict[str, HeaderPart]:
    """Return the positions of the parts of an open file; errors as in `decode_rsm_header`."""
    return decode_rsm_header(read_fully(read_into, 0, RSM_HEADER_BYTES), file_bytes)


@contextmanager
def opened(file: Location, kind: str, open_file: OpenFile) -> Iterator[tuple[ReadInto, int]]:
    """Open a part: `log`, `timeindex` or `index`; Kip33Error if the file has no such header."""
    with open_file(file) as (read_into, file_bytes):
        part = read_parts(read_into, file_bytes)[kind]
        yield range_of(read_into, part.position, part.size_bytes), part.size_bytes
