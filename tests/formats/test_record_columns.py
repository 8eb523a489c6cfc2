"""Parts of the reading of records that are written for speed give what the simple form gives."""

from random import Random

import numpy as np
import pytest

from kip33.formats.native import Speed, compiled, plain
from kip33.formats.record_columns import add_fields
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


@SPEEDS
def test_fields_are_added_while_there_is_room(speed: Speed) -> None:
    data = np.frombuffer(b"abcdefghij", np.uint8)
    places = np.array([[1], [0], [3], [0], [5]], np.int64)
    sizes = np.array([[2], [-1], [0], [4], [5]], np.int32)
    offsets, is_valid = np.full(6, 1, np.int32), np.full(5, 9, np.uint8)
    target = np.zeros(8, np.uint8)
    given = data.data if speed is plain else data
    found = speed(add_fields)(given, places, 0, sizes, 0, offsets, is_valid, target)
    assert found == (4, 1)
    assert bytes(target) == b"\0bcabcd\0"
    assert offsets.tolist() == [1, 3, 3, 3, 7, 1]
    assert is_valid.tolist() == [1, 0, 1, 1, 9]
