"""The hash table (int64 to offset) contains the same as a dict, plain and compiled."""

import random
from itertools import islice

import numpy as np
import pytest

from kip33.formats.native import Speed, compiled, plain
from kip33.rules.transactions import (
    FEWEST_SLOTS,
    OFFSET,
    SLOT_KEY,
    USED,
    Table,
    home_of,
    new_table,
    put,
    remove,
    slot_of,
    twice_as_large,
)

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
EDGES = [LONG_MIN, LONG_MIN + 1, -(2**32), -1, 0, 1, 2**31, 2**32, LONG_MAX - 1, LONG_MAX]
SPEEDS = [pytest.param(plain, id="plain"), pytest.param(compiled, id="compiled")]


def keys_at_home_in(home: int, count: int) -> list[int]:
    """Return keys that all want one slot of the smallest table."""
    keys = (key for key in range(10**6) if home_of(key, FEWEST_SLOTS) == home)
    return list(islice(keys, count))


def contents(table: Table) -> dict[int, int]:
    used = table[table[:, USED] == 1]
    return dict(zip(used[:, SLOT_KEY].tolist(), used[:, OFFSET].tolist(), strict=True))


def steps_to(table: Table, key: int) -> int:
    """Return how many slots a search for `key` passes."""
    return (slot_of(table, key) - home_of(key, len(table))) % len(table)


KEYS = [
    pytest.param(list(range(1000, 1040)), id="neighbours"),
    pytest.param(EDGES, id="the edges of int64"),
    pytest.param(keys_at_home_in(63, 20), id="all at home in the last slot"),
    pytest.param(
        [*keys_at_home_in(62, 8), *keys_at_home_in(63, 8), *keys_at_home_in(0, 8)],
        id="homes before and behind the end",
    ),
]


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("keys", KEYS)
def test_a_table_keeps_what_a_dict_keeps(keys: list[int], speed: Speed) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    table, model = new_table(), dict[int, int]()
    for _ in range(600):
        key = dice.choice(keys)
        at = speed(slot_of)(table, key)
        assert table[at, USED] == (key in model)
        if key in model:
            speed(remove)(table, at)
            del model[key]
        elif len(model) < FEWEST_SLOTS // 2:
            model[key] = dice.choice(EDGES)
            speed(put)(table, at, key, model[key])
        assert contents(table) == model
        assert all(table[slot_of(table, key), USED] for key in model)


@pytest.mark.slow
@pytest.mark.parametrize("speed", SPEEDS)
def test_a_larger_table_has_all_that_was_in_the_smaller(speed: Speed) -> None:
    table = new_table()
    for key in [*EDGES, *keys_at_home_in(63, 20)]:
        put(table, slot_of(table, key), key, key)
    larger = twice_as_large(table, speed)
    assert len(larger) == 2 * FEWEST_SLOTS
    assert contents(larger) == contents(table)
    assert all(larger[slot_of(larger, key), USED] for key in contents(table))


def test_homes_are_the_same_plain_and_compiled() -> None:
    dice = random.Random(33)
    for key in [*EDGES, *(dice.randrange(LONG_MIN, LONG_MAX) for _ in range(1000))]:
        for slots in (64, 1 << 20, 1 << 31):
            assert compiled(home_of)(key, slots) == home_of(key, slots) in range(slots)


@pytest.mark.parametrize("start", [0, 1_000_000_007, -(2**40)])
def test_a_half_full_table_of_evenly_spaced_keys_is_searched_in_few_steps(start: int) -> None:
    for bits in range(54):  # 512 keys reach 2^62
        for odd in (1, 3):
            table = new_table(1024)
            keys = [start + (i * odd << bits) for i in range(512)]
            keys = [key for key in keys if key <= LONG_MAX]
            for key in keys:
                put(table, slot_of(table, key), key, 0)
            steps = np.array([steps_to(table, key) for key in keys])
            assert steps.mean() < 3, (start, bits, odd)
