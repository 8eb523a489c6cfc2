"""Checksums of batches, Kafka's integers (big-endian, two's complement) at a position, copies.

CRC-32 is that of v0 and v1 (IEEE, as in zlib), CRC-32C that of v2 (Castagnoli). Both functions take
the checksum so far (0 at the start) and return it with `data[start:stop]` added, so a batch may
arrive in any number of pieces. Sums wrap at 64 bits as in Java: a crafted offset may be close to
Long.MAX.

These are the plain definitions, for small files and as the reference in tests.
`kip33.formats.native.compiler` has the compiled form of each.
"""

import zlib
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

CRC32_POLYNOMIAL: Final = 0xEDB88320  # both polynomials in reversed bit order
CRC32C_POLYNOMIAL: Final = 0x82F63B78


def slicing_tables(polynomial: int, slices: int) -> npt.NDArray[np.uint32]:
    """Return `slices` x 256 entries: entry (k, b) is the crc of byte b followed by k zero bytes."""
    tables = np.zeros((slices, 256), np.uint32)
    values: npt.NDArray[np.uint32] = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = (values >> np.uint32(1)) ^ ((values & np.uint32(1)) * np.uint32(polynomial))
    tables[0] = values
    for k in range(1, slices):
        tables[k] = (tables[k - 1] >> 8) ^ tables[0][tables[k - 1] & 0xFF]
    return tables


def zero_shift_tables(polynomial: int, zero_bytes: int) -> npt.NDArray[np.uint32]:
    """Return 4 x 256 entries that carry a crc register over `zero_bytes` zero bytes.

    The register after the zeros is the xor of entry (3 - k, its k-th byte) for k in 0..3. A crc is
    linear, so streams that were computed side by side are joined by shifting the earlier ones.
    """
    step = slicing_tables(polynomial, 1)[0]
    basis = np.uint32(1) << np.arange(32, dtype=np.uint32)
    for _ in range(zero_bytes):
        basis = (basis >> 8) ^ step[basis & 0xFF]
    tables = np.zeros((4, 256), np.uint32)
    for k in range(4):
        for bit in range(8):
            has_bit = (np.arange(256) >> bit) & 1 == 1
            tables[3 - k][has_bit] ^= basis[8 * k + bit]
    return tables


def fold_factor(polynomial: int, bits: int) -> int:
    """Return x^bits modulo the polynomial, as a factor of a carry-less multiplication.

    Everything is in reversed bit order, where a product is one bit too low; the factor corrects
    this.
    """
    value = 1 << 31  # x^0
    for _ in range(bits):
        value = (value >> 1) ^ (polynomial if value & 1 else 0)
    return value << 1


@cache
def _crc32c_bytewise() -> tuple[int, ...]:
    return tuple(slicing_tables(CRC32C_POLYNOMIAL, 1)[0].tolist())


Bytes: TypeAlias = Any  # bytes or memoryview here; a uint8 array in compiled code


def crc32(value: int, data: Bytes, start: int, stop: int) -> int:
    """Return the CRC-32 `value` with `data[start:stop]` added."""
    return zlib.crc32(data[start:stop], value)


def crc32c(value: int, data: Bytes, start: int, stop: int, tables: Any) -> int:
    """Return the CRC-32C `value` with `data[start:stop]` added.

    `tables` chooses the compiled form (`kip33.formats.native.compiler.crc32c_tables`) and is not
    used here.
    """
    table = _crc32c_bytewise()
    value ^= 0xFFFFFFFF
    for byte in data[start:stop]:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def with_crc32c(value: int, data: npt.NDArray[np.uint8], tables: Any) -> int:
    """Return the CRC-32C `value` with all of `data` added: the form that is compiled."""
    return crc32c(value, data, 0, len(data), tables)


_WRAP = 1 << 64
_SIGN = 1 << 63


def int8_at(data: Sequence[int], at: int) -> int:
    """Return the signed byte at `at`."""
    value = data[at]
    return value - 256 if value > 127 else value


def int16_at(data: Bytes, at: int) -> int:
    """Return the int16 that starts at `at`."""
    return int.from_bytes(data[at : at + 2], "big", signed=True)


def int32_at(data: Bytes, at: int) -> int:
    """Return the int32 that starts at `at`."""
    return int.from_bytes(data[at : at + 4], "big", signed=True)


def uint32_at(data: Bytes, at: int) -> int:
    """Return the unsigned int32, a crc, that starts at `at`."""
    return int.from_bytes(data[at : at + 4], "big")


def int64_at(data: Bytes, at: int) -> int:
    """Return the int64 that starts at `at`."""
    return int.from_bytes(data[at : at + 8], "big", signed=True)


def java_sum(a: int, b: int) -> int:
    """Return `a + b` wrapped to 64 bits, as in Java's long arithmetic."""
    return (int(a) + int(b) + _SIGN) % _WRAP - _SIGN


def will_need(data: Bytes, at: int) -> None:
    """Prefetch the bytes at `at`, which may be beyond the end."""


def copy_bytes(target: Any, at: int, data: Bytes, start: int, count: int) -> None:
    """Copy `data[start : start + count]` to `target[at : at + count]`.

    Compiled code may also change bytes of `target` after those.
    """
    target[at : at + count] = data[start : start + count]
