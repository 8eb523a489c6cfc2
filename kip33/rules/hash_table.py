"""A table from int64 keys to offsets that compiled code can change: what a dict is to Python.

A table is an array of slots (used, key, offset), a power of two of them and at most half of them
used. A key stands at its home, or in the next slot after it that was free; what is removed leaves
no trace, for the keys behind it move up. Only `new_table` allocates: a rule counts what it puts
in, and when half the slots are used asks for `twice_as_large`.
"""

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kip33.formats.native import Speed

Table: TypeAlias = npt.NDArray[np.int64]
USED: Final = 0  # the columns; 1 where the slot has a key, for any int64 may be one
SLOT_KEY: Final = 1
OFFSET: Final = 2
FEWEST_SLOTS: Final = 64  # 1.5 KiB: few segments have more than 32 transactions open at once

# 2^64 / golden ratio, odd: neighbours end up far apart. Without its top bit, which moves no home
# below 2^31 and would make numba's product a float.
_MULTIPLIER: Final = 0x1E3779B97F4A7C15


def new_table(slots: int = FEWEST_SLOTS) -> Table:
    """Return an empty table of `slots` slots, a power of two."""
    return np.zeros((slots, 3), np.int64)


def twice_as_large(table: Table, speed: Speed) -> Table:
    """Return a table of twice the slots with all that is in `table`."""
    larger = new_table(2 * len(table))
    speed(put_all)(table, larger)
    return larger


def home_of(key: int, slots: int) -> int:
    """Return the slot, of a power of two, where `key` stands if that is free.

    Bits 32 and up of a product depend on all lower bits, so the key's upper half is laid over its
    lower one first. They are the same whether the product wraps at 64 bits or does not.
    """
    return ((key ^ (key >> 32)) * _MULTIPLIER >> 32) & (slots - 1)


def slot_of(table: Any, key: int) -> int:
    """Return the slot that has `key`, or the unused one where `put` may put it."""
    at = home_of(key, len(table))
    while table[at, USED] and table[at, SLOT_KEY] != key:
        at = (at + 1) & (len(table) - 1)
    return at


def put(table: Any, at: int, key: int, offset: int) -> None:
    """Put `key`, which the table does not have, at `slot_of` it."""
    table[at, USED] = 1
    table[at, SLOT_KEY] = key
    table[at, OFFSET] = offset


def remove(table: Any, at: int) -> None:
    """Remove what is in slot `at`, which is used.

    Every key behind it, up to the next unused slot, moves into the hole unless its home lies
    behind the hole: so a search never stops at a hole before it is where its key stands.
    """
    hole = at
    at = (at + 1) & (len(table) - 1)
    while table[at, USED]:
        home = home_of(int(table[at, SLOT_KEY]), len(table))
        if (at - home) & (len(table) - 1) >= (at - hole) & (len(table) - 1):
            put(table, hole, table[at, SLOT_KEY], table[at, OFFSET])
            hole = at
        at = (at + 1) & (len(table) - 1)
    table[hole, USED] = 0


def put_all(table: Any, larger: Any) -> None:
    """Put all that is in `table` into `larger`, which has none of it."""
    for i in range(len(table)):
        if table[i, USED]:
            key = int(table[i, SLOT_KEY])
            put(larger, slot_of(larger, key), key, table[i, OFFSET])
