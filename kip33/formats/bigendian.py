"""Kafka's integers at a position: big-endian, two's complement.

These are the definitions; `kip33.formats.native.compiler` has a compiled form of each, one load and
one byte swap. Sums wrap at 64 bits as in Java: a crafted offset may be close to Long.MAX.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

Bytes: TypeAlias = Any  # bytes or memoryview here; a uint8 array in compiled code

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
