"""One file with all that belongs to a segment: HDFS's RemoteStorageManager, newer form.

    25 bytes of header (`kip33.formats.rsm_header`), .index, .timeindex, leader epochs, .snapshot,
    .txnindex, .log

Every part is raw, so a part is a range of the file.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from kip33.formats.byte_sources import ReadInto, range_of, read_fully
from kip33.formats.rsm_header import RSM_HEADER_BYTES, HeaderPart, decode_rsm_header
from kip33.stores.locations import Location, OpenFile


def read_parts(read_into: ReadInto, file_bytes: int) -> dict[str, HeaderPart]:
    """Return where the parts of an open file are; errors as those of `decode_rsm_header`."""
    return decode_rsm_header(read_fully(read_into, 0, RSM_HEADER_BYTES), file_bytes)


@contextmanager
def opened(file: Location, kind: str, open_file: OpenFile) -> Iterator[tuple[ReadInto, int]]:
    """Open a part, `log`, `timeindex` or `index`; Kip33Error for what is no such file."""
    with open_file(file) as (read_into, file_bytes):
        part = read_parts(read_into, file_bytes)[kind]
        yield range_of(read_into, part.position, part.size_bytes), part.size_bytes
