"""Durations and sizes, with units or as in Kafka: `7d` or 604800000, `10GiB` or 10737418240.

    duration   7d  36h  15m  30s  500ms     or milliseconds
    size       2TiB  10GiB  5MiB  1KiB      or bytes

A plain integer is in the unit of Kafka's settings. Fractions, sums (`1d12h`) and `GB`, which is
ambiguous, are refused.
"""

import re
from typing import Final

MAX_INT64: Final = 2**63 - 1
DURATION_EXPECTED: Final = "7d, 36h, 15m, 30s, 500ms or milliseconds"
SIZE_EXPECTED: Final = "2TiB, 10GiB, 5MiB, 1KiB or bytes"

_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1, "": 1}
_BYTES: Final = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "": 1}
_DURATIONS: Final = (  # name, smallest value, in ms
    ("years", 1_000 * 86_400_000, 365.25 * 86_400_000),
    ("d", 86_400_000, 86_400_000),
    ("h", 3_600_000, 3_600_000),
    ("min", 60_000, 60_000),
    ("s", 1_000, 1_000),
)
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_QUANTITY = re.compile(r"([0-9]+)([A-Za-z]*)", re.ASCII)
_MOST_DIGITS: Final = 30


def duration_ms(value: str | int) -> int:
    """Return milliseconds >= 0; ValueError with what was found and expected.

    >>> duration_ms("36h"), duration_ms("604800000")
    (129600000, 604800000)
    """
    return _quantity(value, _MS, DURATION_EXPECTED)


def size_bytes(value: str | int) -> int:
    """Return bytes >= 0; ValueError with what was found and expected.

    >>> size_bytes("10GiB"), size_bytes(1024)
    (10737418240, 1024)
    """
    return _quantity(value, _BYTES, SIZE_EXPECTED)


def _quantity(value: str | int, units: dict[str, int], expected: str) -> int:
    number = None
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value.strip())
        if match and match[2] in units and len(match[1]) <= _MOST_DIGITS:
            number = int(match[1]) * units[match[2]]
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    if number is None or not 0 <= number <= MAX_INT64:
        raise ValueError(f"{value!r} found, expected {expected}, from 0 to 2^63 - 1")
    return number


def human_bytes(size: int) -> str:
    """Return a size with about three digits: `1.4 GiB`."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{size} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def human_duration(duration_ms: int) -> str:
    """Return a duration in its largest unit: `7 d`, `1.5 h`; in years from 1,000 days.

    >>> human_duration(604800000), human_duration(-5400000)
    ('7 d', '-1.5 h')
    """
    for name, from_ms, unit_ms in _DURATIONS:
        if abs(duration_ms) >= from_ms:
            return f"{round(duration_ms / unit_ms, 1):,}".removesuffix(".0") + f" {name}"
    return f"{duration_ms} ms"
