"""The index files of KIP-33's drafts, which no release of Kafka writes.

Three of them have entries of a `.timeindex`: a timestamp (int64) and a relative offset (int32).
The fourth has a timestamp in each entry of an offset index:

    bytes   field             type    meaning
    0..3    relative offset   int32   last offset of a batch minus the base offset in the file name
    4..7    position          int32   of the batch's first byte in the .log
    8..15   timestamp         int64   the batch's max timestamp, ms since epoch, -1: none

All integers are big-endian. The KIP names one file only, `.time.index`; the other names are of
kip33. Source: KIP-33, first draft, "Rejected Alternatives", and the revision with
`time.index.interval`. `rules.draft_entries` says which entries there are.
"""

from typing import Final, NamedTuple

import numpy as np

from kip33.errors import CorruptIndexError

INLINE_ENTRY: Final = np.dtype(
    [("relative_offset", ">i4"), ("position", ">i4"), ("timestamp", ">i8")]
)
INLINE_ENTRY_BYTES: Final = 16

TIME_INDEX_FILE: Final = "timeindex"  # Kafka's
MINUTE_FILE: Final = "time.index"
MINUTE_MAP_FILE: Final = "minute.index"
BUCKET_FILE: Final = "bucket.index"
INLINE_FILE: Final = "inline.index"
DRAFT_FILES: Final = (MINUTE_FILE, MINUTE_MAP_FILE, BUCKET_FILE, INLINE_FILE)
"""How the names of the files end, after the segment's name and a dot."""


class OffsetPositionTime(NamedTuple):
    """One entry of an inline index: absolute offset, position in bytes, ms since epoch."""

    offset: int
    position: int
    timestamp: int


def inline_entries(data: bytes, *, base_offset: int) -> list[OffsetPositionTime]:
    """Return the entries of a `.inline.index`; CorruptIndexError if `data` ends inside an entry.

    >>> wire = bytes.fromhex("00000001 00000052 0000018bcfe568fa")
    >>> inline_entries(wire, base_offset=100)
    [OffsetPositionTime(offset=101, position=82, timestamp=1700000000250)]
    """
    if len(data) % INLINE_ENTRY_BYTES:
        raise CorruptIndexError(
            f"{len(data)} bytes found, expected a multiple of {INLINE_ENTRY_BYTES}"
        )
    rows = np.frombuffer(data, INLINE_ENTRY).tolist()
    return [OffsetPositionTime(base_offset + offset, at, time) for offset, at, time in rows]
