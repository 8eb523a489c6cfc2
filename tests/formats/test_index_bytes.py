"""An index file's bytes without the zeros at its end, compared with the bytes themselves."""

from random import Random

import pytest

from kip33.formats import time_index as index_bytes
from kip33.formats.time_index import IndexBytes, IndexBytesBuilder, OffsetIndex, TimeIndex
from tests.long_forms import short_and_long


def some_bytes(chance: Random) -> bytes:
    """Bytes with many zeros, at the end and between."""
    parts = (bytes(chance.randrange(30)), chance.randbytes(chance.randrange(20)))
    return b"".join(chance.choice(parts) for _ in range(chance.randrange(6)))


@pytest.mark.parametrize("count", short_and_long(200, 4_000, "KIP33_INDEX_BYTES"))
def test_index_bytes_are_sliced_and_compared_like_bytes(count: int) -> None:
    for seed in range(count):
        chance = Random(seed)
        data, other = some_bytes(chance), some_bytes(chance)
        held, builder = IndexBytes(data), IndexBytesBuilder()
        step = chance.randint(1, 9)
        for at in range(0, len(data), step):
            builder.append(data[at : at + step])
        start, stop = (chance.choice((None, chance.randint(-9, len(data) + 9))) for _ in "12")
        note = f"seed {seed}"
        assert builder.built() == held == data, note
        assert (held == other, held == IndexBytes(other)) == (data == other,) * 2, note
        assert (len(held), bytes(held), held.is_zeros) == (len(data), data, not any(data)), note
        assert bytes(held[start:stop]) == data[start:stop], note
        for width in (8, 12):
            entries, repeats = held.entries(width)
            whole = data[: len(data) // width * width]
            assert entries + bytes(repeats * width) == whole, note
            assert len(entries) <= len(held.kept) + 2 * width, note


@pytest.mark.parametrize("kind", [TimeIndex, OffsetIndex])
@pytest.mark.parametrize("count", short_and_long(200, 4_000, "KIP33_INDEX_PIECES"))
def test_entries_in_pieces_are_the_entries(
    kind: type[TimeIndex | OffsetIndex], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(count):
        chance, one, other = Random(seed), 0, 0
        pairs = []
        for _ in range(chance.randrange(12)):
            one += chance.choice((1, 1, 1, 1, 5, 0, -1))
            other += chance.choice((1, 1, 1, 1, 5, 0, -1))
            pairs.append((max(one, 0), max(other, 0)))
        index, last_offset = kind.from_entries(pairs, base_offset=0), chance.choice((None, 7))
        monkeypatch.setattr(index_bytes, "PIECE_ENTRIES", 1 << 16)
        kept = index.without_tail(last_offset=last_offset)
        monkeypatch.setattr(index_bytes, "PIECE_ENTRIES", chance.randint(1, 4))
        assert index.without_tail(last_offset=last_offset) == kept, f"seed {seed}"
        assert list(index) == pairs, f"seed {seed}"
