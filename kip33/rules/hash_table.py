"""An open-addressing hash table (int64 to offset) usable from numba.

A table is an array of slots (used, key, offset). Their number is a power of two, and at most half
of them are used. Collisions use linear probing, deletion uses backward shift. Only `new_table`
allocates memory: a rule counts the keys it adds and calls `twice_as_large` when half the slots are
used.
"""

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kip33.formats.native import Speed

Table: TypeAlias = npt.NDArray[np.int64]
USED: Final = 0  # the columns; 1 in a used slot, because any int64 may be a key
SLOT_KEY: Final = 1
OFFSET: Final = 2
FEWEST_SLOTS: Final = 64  # 1.5 KiB: few segments have more than 32 transactions open at once

# 2^64 / golden ratio, odd: spreads neighbouring keys. The top bit is cleared: it changes no home
# below 2^31 and would make numba's product a float.
_MULTIPLIER: Final = 0x1E3779B97F4A7C15


def new_table(slots: int = FEWEST_SLOTS) -> Table:
    """Return an empty table of `slots` slots, a power of two."""
    return np.zeros((slots, 3), np.int64)


def twice_as_large(table: Table, speed: Speed) -> Table:
    """Return a table with twice the slots and all keys of `table`."""
    larger = new_table(2 * len(table))
    speed(put_all)(table, larger)
    return larger


def home_of(key: int, slots: int) -> int:
    """Return the home slot of `key`; `slots` is a power of two.

    Bits 32 and up of a product depend on all lower bits, so the key's upper half is first combined
    with its lower half. These bits are the same whether or not the product wraps at 64 bits.
    """
    return ((key ^ (key >> 32)) * _MULTIPLIER >> 32) & (slots - 1)


def slot_of(table: Any, key: int) -> int:
    """Return the slot of `key`, or the unused slot where `put` may put it."""
    at = home_of(key, len(table))
    while table[at, USED] and table[at, SLOT_KEY] != key:
        at = (at + 1) & (len(table) - 1)
    return at


def put(table: Any, at: int, key: int, offset: int) -> None:
    """Add `key`, which the table does not have, at its `slot_of`."""
    table[at, USED] = 1
    table[at, SLOT_KEY] = key
    table[at, OFFSET] = offset


def remove(table: Any, at: int) -> None:
    """Remove the key in slot `at`, which is used.

    Every later key, up to the next unused slot, moves into the free slot unless its home is after
    it. So a search never stops at a free slot before it reaches its key.
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
    """Copy all keys of `table` to `larger`, which is empty."""
    for i in range(len(table)):
        if table[i, USED]:
            key = int(table[i, SLOT_KEY])
            put(larger, slot_of(larger, key), key, table[i, OFFSET])
