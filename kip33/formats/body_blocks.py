"""Bodies of snappy and LZ4 blocks, decompressed by compiled code, many in one call.

    LZ4      { token, literal count*, literals, offset (2 bytes), match count* }*, literals last
    snappy   varint size, { tag, count or offset (0 to 4 bytes), literals }*

A body is decompressed here only if it is what clients write: one LZ4 frame of independent blocks
without checksums, or snappy blocks, of which the libraries, too, would accept every byte. All else
is left to `kip33.formats.codecs`. As compiled code may, copies also change bytes after their end.
"""

from typing import Any, Final

from kip33.formats.batch import CODEC_MASK, CODEC_NAMES, MAX_INT32
from kip33.formats.codecs import LZ4_STORED, XERIAL_HEADER_BYTES, XERIAL_MAGIC
from kip33.formats.crc import Bytes, copy_bytes, int8_at, int32_at, int64_at
from kip33.formats.held_batches import UNREADABLE, V2_RECORDS

SNAPPY, LZ4 = CODEC_NAMES.index("snappy"), CODEC_NAMES.index("lz4")
_XERIAL: Final = int.from_bytes(XERIAL_MAGIC, "big", signed=True)
_LZ4_MAGIC: Final = 0x04224D18
_LZ4_FLAGS: Final = 0x60
_LZ4_HEADER_BYTES: Final = 7
_LZ4_LAST_BYTES: Final = 8  # no shorter rest follows literals: an offset, a token, 5 literals
# Copied at once where there is room: a loop whose end is guessed wrongly takes longer.
_UNIT_BYTES: Final = 32
_SNAPPY_UNIT_BYTES: Final = 64  # no copy has more
_SNAPPY_MOST_LITERALS: Final = 60  # of a tag without a count in bytes of its own
_LZ4_FREE_BYTES: Final = 12  # no match begins nearer to the most that a block may have


def byte_at(data: Bytes, at: int) -> int:
    """Return the unsigned byte at `at`, as a signed number in compiled code, too."""
    return int8_at(data, at) & 0xFF


def more_bytes(data: Bytes, at: int, stop: int, count: int) -> tuple[int, int]:
    """Return a count of LZ4 with the bytes added that continue it, and where they end.

    A count that does not end before `stop` is larger than all that there may be.
    """
    byte = 255
    while byte == 255:
        if at >= stop:
            return MAX_INT32, at
        byte = byte_at(data, at)
        at += 1
        count += byte
    return count, at


def lz4_block(data: Bytes, at: int, stop: int, target: Any, to: int, limit: int) -> int:
    """Decompress a block to `target[to:limit]`; return the end of its bytes, -1 if left to others.

    The last sequence has only literals, at least five, as in the library.
    """
    begin = to
    while at < stop:
        token = byte_at(data, at)
        at += 1
        count = token >> 4
        is_short = count < 15 and min(stop - at, limit - to) >= 2 * _UNIT_BYTES
        if is_short:
            copy_bytes(target, to, data, at, _UNIT_BYTES)
            at += count
            to += count
        else:
            if count == 15:
                count, at = more_bytes(data, at, stop, count)
            if count > stop - at or count > limit - to:
                return -1
            copy_bytes(target, to, data, at, count)
            at += count
            to += count
            if at == stop:
                return to
            if stop - at < _LZ4_LAST_BYTES or limit - to < _LZ4_FREE_BYTES:
                return -1
        source = to - (byte_at(data, at) | byte_at(data, at + 1) << 8)
        at += 2
        count = (token & 15) + 4
        if source < begin or source == to:
            return -1
        if is_short and count < 19 and to - source >= _UNIT_BYTES:
            copy_bytes(target, to, target, source, _UNIT_BYTES)
            to += count
        else:
            if count == 19:
                count, at = more_bytes(data, at, stop, count)
            if count > limit - to:
                return -1
            while count > 0:  # bytes that repeat are copied twice as many at a time
                part = min(count, to - source)
                copy_bytes(target, to, target, source, part)
                to += part
                count -= part
    return -1


def lz4_body(data: Bytes, at: int, stop: int, target: Any, to: int, limit: int) -> int:
    """Decompress a frame to `target[to:limit]`; return the end of its bytes, -1 if left to others.

    Its header is one of four: they differ in the size of a block, and so in their checksum.
    """
    if stop - at < _LZ4_HEADER_BYTES or int32_at(data, at) != _LZ4_MAGIC:
        return -1
    size, check = byte_at(data, at + 5), byte_at(data, at + 6)
    is_known = (size == 0x40 and check == 0x82) or (size == 0x50 and check == 0xFB)
    is_known |= (size == 0x60 and check == 0x51) or (size == 0x70 and check == 0x73)
    if byte_at(data, at + 4) != _LZ4_FLAGS or not is_known:
        return -1
    most = 1 << (2 * (size >> 4) + 8)
    at += _LZ4_HEADER_BYTES
    while stop - at >= 4:
        word = byte_at(data, at) | byte_at(data, at + 1) << 8
        word |= byte_at(data, at + 2) << 16 | byte_at(data, at + 3) << 24
        at += 4
        if word == 0:
            return to
        count = word & (LZ4_STORED - 1)
        if count == 0 or count > most or count > stop - at:
            return -1
        if word & LZ4_STORED:
            if count > limit - to:
                return -1
            copy_bytes(target, to, data, at, count)
            to += count
        else:
            end = lz4_block(data, at, at + count, target, to, min(limit, to + most))
            if end <= to:
                return -1
            to = end
        at += count
    return -1


def snappy_block(data: Bytes, at: int, stop: int, target: Any, to: int, limit: int) -> int:
    """Decompress a block to `target[to:limit]`; return as `lz4_block` does."""
    begin, claimed, shift, byte = to, 0, 0, 128
    while byte >= 128:
        if at >= stop or shift > 28:
            return -1
        byte = byte_at(data, at)
        claimed |= (byte & 127) << shift
        at += 1
        shift += 7
    end = to + claimed
    if end > limit:
        return -1
    while at < stop:
        tag = byte_at(data, at)
        at += 1
        kind, count = tag & 3, (tag >> 2) + 1
        is_room = min(stop - at, end - to) >= _SNAPPY_UNIT_BYTES
        if kind == 0:
            extra = count - _SNAPPY_MOST_LITERALS
            if extra > 0:
                if extra > stop - at:
                    return -1
                count = 1
                for i in range(extra):
                    count += byte_at(data, at + i) << 8 * i
                at += extra
            if count > stop - at or count > end - to:
                return -1
            if is_room and extra <= 0:
                copy_bytes(target, to, data, at, _SNAPPY_UNIT_BYTES)
            else:
                copy_bytes(target, to, data, at, count)
            at += count
            to += count
            continue
        size = 4 if kind == 3 else kind
        if size > stop - at:
            return -1
        offset = byte_at(data, at)
        if kind == 1:
            offset |= tag >> 5 << 8
            count = (tag >> 2 & 7) + 4
        for i in range(1, size):
            offset |= byte_at(data, at + i) << 8 * i
        at += size
        source = to - offset
        if source < begin or offset == 0 or count > end - to:
            return -1
        if is_room and offset >= _SNAPPY_UNIT_BYTES:
            copy_bytes(target, to, target, source, _SNAPPY_UNIT_BYTES)
            to += count
            continue
        while count > 0:
            part = min(count, to - source)
            copy_bytes(target, to, target, source, part)
            to += part
            count -= part
    return to if to == end else -1


def snappy_body(data: Bytes, at: int, stop: int, target: Any, to: int, limit: int) -> int:
    """Decompress xerial's blocks, or a bare one; return as `snappy_block` does."""
    if stop - at < XERIAL_HEADER_BYTES or int64_at(data, at) != _XERIAL:
        return snappy_block(data, at, stop, target, to, limit)
    at += XERIAL_HEADER_BYTES
    while at < stop:
        if stop - at < 4:
            return -1
        size = int32_at(data, at)
        at += 4
        if size < 0 or size > stop - at:
            return -1
        to = snappy_block(data, at, at + size, target, to, limit)
        if to < 0:
            return -1
        at += size
    return to


def place_bodies(
    data: Bytes, entries: Any, first: int, target: Any, to: int, most_bytes: int, enough: int
) -> tuple[int, int]:
    """Decompress the bodies of entries from the `first` on, side by side from `target[to]` on.

    Their places become those in `target`. It ends at `target[enough]`, and before a body that it
    does not decompress or that has more than `most_bytes` or no room. Returns the next entry, and
    the end of the bodies.
    """
    number = first
    while number < len(entries) and to < enough:
        entry = entries[number]
        codec, at, stop = entry["attributes"] & CODEC_MASK, int(entry["start"]), int(entry["stop"])
        is_empty = entry["kind"] == V2_RECORDS and entry["count"] <= 0
        if not is_empty and entry["kind"] != UNREADABLE:
            limit, end = min(len(target), to + most_bytes), -1
            if codec == LZ4 and entry["magic"] > 0:
                end = lz4_body(data, at, stop, target, to, limit)
            elif codec == SNAPPY:
                end = snappy_body(data, at, stop, target, to, limit)
            if end < 0:
                break
            entry["start"], entry["stop"] = to, end
            to = end
        number += 1
    return number, to
