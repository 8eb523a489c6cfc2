"""Parts of the reading of records that are written for speed give what the simple form gives."""

from random import Random
from typing import Any

import numpy as np
import pytest

from kip33.formats.crc import copy_bytes
from kip33.formats.native import Speed, compiled, plain
from kip33.formats.records import short_at
from kip33.formats.walk import varint_at

SPEEDS = pytest.mark.parametrize("speed", [plain, compiled])


@SPEEDS
def test_short_varints_are_varints(speed: Speed) -> None:
    random = Random(33)
    for _ in range(3000):
        piece = bytes(random.choice((0, 1, 0x7F, 0x80, 0xFF, 0x55)) for _ in range(12))
        data = np.frombuffer(piece, np.uint8)
        at, most = random.randrange(13), random.choice((5, 10))
        stop = random.randrange(at, 13)
        expected = varint_at(piece, at, stop, most)
        given = piece if speed is plain else data
        assert speed(short_at)(given, at, stop, most) == expected, (piece, at, stop, most)


def copied(target: Any, at: int, data: Any, start: int, count: int) -> None:
    copy_bytes(target, at, data, start, count)


@SPEEDS
def test_a_copy_goes_to_the_end_of_an_array_and_not_beyond(speed: Speed) -> None:
    random = Random(33)
    for _ in range(300):
        data = np.frombuffer(random.randbytes(random.randrange(150)), np.uint8)
        target = np.zeros(random.randrange(150) + 64, np.uint8)
        inside = target[:-64]
        start, at = random.randrange(len(data) + 1), random.randrange(len(inside) + 1)
        count = random.randrange(min(len(data) - start, len(inside) - at) + 1)
        speed(copied)(inside, at, data, start, count)
        assert bytes(target[:at]) == bytes(at)
        assert bytes(target[at : at + count]) == bytes(data[start : start + count])
        assert bytes(target[-64:]) == bytes(64)
