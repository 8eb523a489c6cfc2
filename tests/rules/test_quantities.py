"""Durations and sizes: every unit, the limits, and what is refused rather than guessed."""

import pytest

from kip33.rules.policies import duration_ms, size_bytes
from tests.cases import each_case

DURATIONS: list[tuple[str | int, int]] = [
    ("7d", 604_800_000),
    ("36h", 129_600_000),
    ("15m", 900_000),
    ("30s", 30_000),
    ("500ms", 500),
    ("0d", 0),
    ("007d", 604_800_000),
    (" 7d ", 604_800_000),
    (604_800_000, 604_800_000),
    (0, 0),
    (2**63 - 1, 2**63 - 1),
]
SIZES: list[tuple[str | int, int]] = [
    ("2TiB", 2_199_023_255_552),
    ("10GiB", 10_737_418_240),
    ("5MiB", 5_242_880),
    ("1KiB", 1024),
    ("1024", 1024),
    (1024, 1024),
]
WRONG: list[str | int | float | None] = [
    *("", " ", "d", "7 d", "7D", "7days", "1d12h", "1.5h", "1e3", "-1", "+1", "7d\n8d", "７d", "٣"),
    *("2w", "604800000", "9" * 31, "9" * 5000, -1, 2**63, str(2**63), "106751991168d"),
    *(True, False, 1.0, None),
]


@each_case(("value", "ms"), DURATIONS)
def test_duration(value: str | int, ms: int) -> None:
    assert duration_ms(value) == ms


@each_case(("value", "size"), SIZES)
def test_size(value: str | int, size: int) -> None:
    assert size_bytes(value) == size


@each_case("value", WRONG)
def test_no_duration(value: str | int) -> None:
    with pytest.raises(ValueError, match=r"found, expected (a unit: )?7d, 36h, 15m, 30s or 500ms"):
        duration_ms(value)


@each_case("value", ["10GB", "10G", "10gib", "1.5GiB", "10 GiB", "7d", -1, 2**63])
def test_no_size(value: str | int) -> None:
    with pytest.raises(ValueError, match=r"found, expected 2TiB, 10GiB, 5MiB, 1KiB or bytes"):
        size_bytes(value)


def test_the_longest_duration_in_days() -> None:
    assert duration_ms("106751991167d") == 106_751_991_167 * 86_400_000 < 2**63
