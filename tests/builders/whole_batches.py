"""Another reader of damaged logs: each whole batch once, in order, and what is left out between.

It shares no code with kip33.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from tests.builders.segment_builder import crc32c

WRONG = "the batch's bytes do not match its CRC"


class Frame(NamedTuple):
    """Bytes of a log that are as long as their size field says."""

    position: int
    data: bytes

    @property
    def is_v2(self) -> bool:
        return 2 <= self.data[16] < 128

    @property
    def is_whole(self) -> bool:
        if self.is_v2:
            return crc32c(self.data[21:]) == int.from_bytes(self.data[17:21])
        return zlib.crc32(self.data[16:]) == int.from_bytes(self.data[12:16])

    @property
    def first_offset(self) -> int:
        return int.from_bytes(self.data[:8], signed=True)

    @property
    def last_offset(self) -> int:
        delta = struct.unpack_from(">i", self.data, 23)[0] if self.is_v2 else 0
        return self.first_offset + int(delta)

    @property
    def end_it_claims(self) -> int:
        """The offset after its last one, if a bad header still agrees with itself."""
        if self.is_v2:
            count = struct.unpack_from(">i", self.data, 57)[0]
        else:
            count = 0 if self.data[17] & 7 else 1
        is_sure = self.last_offset - self.first_offset + 1 == count
        return self.last_offset + 1 if is_sure else 0


def frames(log: bytes) -> Iterator[Frame]:
    """Yield what size fields lead to, up to one that is too small or points past the end."""
    at = 0
    while len(log) - at > 17:
        size = int.from_bytes(log[at + 8 : at + 12], signed=True)
        is_v2 = 2 <= log[at + 16] < 128
        if size < (49 if is_v2 else 14) or size > len(log) - at - 12:
            return
        yield Frame(at, log[at : at + 12 + size])
        at += 12 + size


def whole_batches(log: bytes, base_offset: int) -> Iterator[Frame | str]:
    """Yield each whole batch, and between them what is left out; not what damage ends."""
    bad: int | None = None
    following = least = base_offset
    for one in frames(log):
        if not one.is_whole or (bad is not None and one.first_offset < least):
            bad = one.position if bad is None else bad
            least = max(least, one.end_it_claims)
            continue
        if bad is not None:
            yield left_out(log, bad, one.position, following, one.first_offset)
        bad = None
        following = least = one.last_offset + 1
        yield one


def left_out(log: bytes, position: int, end: int, first: int, following: int) -> str:
    some = f"at most offsets {first} to {following - 1}"
    if following - first < 2:
        some = f"at most offset {first}" if following > first else "no offset"
    where = f"left out: bytes {position} to {end - 1}"
    return f"at byte {position} of {len(log)}: {WRONG}; {where}, {some}"
