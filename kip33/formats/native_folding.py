"""CRCs by carry-less multiplication: machine forms where the CPU has it.

There is no instruction for the CRC of v0 and v1 on x86-64, and slicing tables take 16 bytes in some
12 cycles; CRC-32C's takes 8 bytes in one. Folding takes 64 or 256 in a round: a message is a
polynomial, and 128 bits of it may be replaced by what is left of them, further on, modulo the CRC's
polynomial; a multiplication without carries does it. What remains, 16 bytes, is the caller's.

Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel,
2009), the bit-reflected form.
"""

from collections.abc import Callable
from typing import Any, Final

from numba.extending import register_jitable

from kip33.formats.native_lanes import (
    both,
    fold,
    lane_at,
    lane_with,
    last_words,
    wide_lane_behind,
    wide_lanes_with,
)

FEWEST_BYTES: Final = 64  # below, other forms are as fast
LANE_BYTES: Final = 16
ROUNDS_FROM_BYTES: Final = 1024  # below, one chain of lanes is as fast as four


def wide_folding(polynomial: int) -> Callable[..., Any]:
    """Return compiled code's `(data, at, stop, register) -> (word, word)`, by lanes of 64 bytes.

    The two words are 16 bytes whose CRC from 0 is that of `data[at:stop]` from `register`; there
    are at least FEWEST_BYTES.
    """
    load = lane_at(8)
    to_next, to_next_round = fold(polynomial, 8, 64), fold(polynomial, 8, 256)
    words_of = last_words(polynomial, 8)

    @register_jitable
    def folded(data: Any, at: Any, stop: Any, register: Any) -> Any:
        # Zeros before a message do not change its CRC from 0: the first lane begins with as many
        # as make whole lanes of all.
        zeros = -(stop - at) & 63
        first, second = wide_lanes_with(register, zeros)
        at -= zeros
        lane = both(first, wide_lane_behind(data, at, zeros))
        at += 64
        if at < stop:
            lane = to_next(lane, both(second, load(data, at)))
            at += 64
        if stop - at >= ROUNDS_FROM_BYTES:
            lane2, lane3, lane4 = load(data, at), load(data, at + 64), load(data, at + 128)
            at += 192
            while stop - at >= 256:
                lane = to_next_round(lane, load(data, at))
                lane2 = to_next_round(lane2, load(data, at + 64))
                lane3 = to_next_round(lane3, load(data, at + 128))
                lane4 = to_next_round(lane4, load(data, at + 192))
                at += 256
            lane = to_next(to_next(to_next(lane, lane2), lane3), lane4)
        while at < stop:
            lane = to_next(lane, load(data, at))
            at += 64
        return words_of(lane)

    return folded


def folding(polynomial: int) -> Callable[..., Any]:
    """Return the same by lanes of 16 bytes; `stop - at` is a multiple of LANE_BYTES."""
    load = lane_at(2)
    to_next, to_next_round = fold(polynomial, 2, 16), fold(polynomial, 2, 64)
    words_of = last_words(polynomial, 2)

    @register_jitable
    def folded(data: Any, at: Any, stop: Any, register: Any) -> Any:
        lane = both(lane_with(register), load(data, at))
        lane2, lane3, lane4 = load(data, at + 16), load(data, at + 32), load(data, at + 48)
        at += 64
        while stop - at >= 64:
            lane = to_next_round(lane, load(data, at))
            lane2 = to_next_round(lane2, load(data, at + 16))
            lane3 = to_next_round(lane3, load(data, at + 32))
            lane4 = to_next_round(lane4, load(data, at + 48))
            at += 64
        lane = to_next(to_next(to_next(lane, lane2), lane3), lane4)
        while at < stop:
            lane = to_next(lane, load(data, at))
            at += 16
        return words_of(lane)

    return folded
