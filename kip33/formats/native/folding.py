"""CRCs by carry-less multiplication: machine forms for CPUs that have it.

x86-64 has no instruction for the CRC of v0 and v1, and slicing tables take about 12 cycles for 16
bytes; the CRC-32C instruction takes 8 bytes in one cycle. Folding takes 64 or 256 bytes per round.
A message is a polynomial. 128 bits of it can be replaced by their remainder modulo the CRC's
polynomial, added further on; a carry-less multiplication computes this. The caller gets the last 16
bytes.

Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel,
2009), the bit-reflected form.
"""

from collections.abc import Callable
from typing import Any, Final

from numba.extending import register_jitable

from kip33.formats.native.lanes import (
    both,
    fold,
    lane_at,
    lane_with,
    last_words,
    wide_lane_behind,
    wide_lanes_with,
)

FEWEST_BYTES: Final = 64  # with fewer, other forms are as fast
LANE_BYTES: Final = 16
WIDE_LANE_BYTES: Final = 64
WIDE_ROUNDS_FROM_BYTES: Final = 1024  # with fewer, one chain of lanes is as fast as four


def wide_folding(polynomial: int) -> Callable[..., Any]:
    """Return compiled code's `(data, at, stop, register) -> (word, word)`, by lanes of 64 bytes.

    The two words are 16 bytes whose CRC from 0 is that of `data[at:stop]` from `register`; there
    are at least FEWEST_BYTES.
    """
    load = lane_at(WIDE_LANE_BYTES // 8)
    to_next = fold(polynomial, WIDE_LANE_BYTES // 8, WIDE_LANE_BYTES)
    fold_rest = _folding_rest(polynomial, WIDE_LANE_BYTES, WIDE_ROUNDS_FROM_BYTES)

    @register_jitable
    def folded(data: Any, at: Any, stop: Any, register: Any) -> Any:
        # Zeros before a message do not change its CRC from 0. The first lane begins with zeros, so
        # that only complete lanes follow.
        zeros = -(stop - at) & (WIDE_LANE_BYTES - 1)
        first, second = wide_lanes_with(register, zeros)
        at -= zeros
        lane = both(first, wide_lane_behind(data, at, zeros))
        at += WIDE_LANE_BYTES
        if at < stop:
            lane = to_next(lane, both(second, load(data, at)))
            at += WIDE_LANE_BYTES
        return fold_rest(data, at, stop, lane)

    return folded


def folding(polynomial: int) -> Callable[..., Any]:
    """Return the same by lanes of 16 bytes; `stop - at` is a multiple of LANE_BYTES."""
    load = lane_at(LANE_BYTES // 8)
    fold_rest = _folding_rest(polynomial, LANE_BYTES, 3 * LANE_BYTES)

    @register_jitable
    def folded(data: Any, at: Any, stop: Any, register: Any) -> Any:
        lane = both(lane_with(register), load(data, at))
        return fold_rest(data, at + LANE_BYTES, stop, lane)

    return folded


def _folding_rest(polynomial: int, lane_bytes: int, rounds_from_bytes: int) -> Callable[..., Any]:
    """Return `(data, at, stop, lane) -> (word, word)`: folds the complete lanes after `lane`.

    Long data is folded as four chains of lanes side by side: a multiplication takes several cycles,
    and one can start every cycle.
    """
    words, round_bytes = lane_bytes // 8, 4 * lane_bytes
    load = lane_at(words)
    to_next, to_next_round = (
        fold(polynomial, words, lane_bytes),
        fold(polynomial, words, round_bytes),
    )
    words_of = last_words(polynomial, words)

    @register_jitable
    def fold_rest(data: Any, at: Any, stop: Any, lane: Any) -> Any:
        if stop - at >= rounds_from_bytes:
            lane2 = load(data, at)
            lane3 = load(data, at + lane_bytes)
            lane4 = load(data, at + 2 * lane_bytes)
            at += 3 * lane_bytes
            while stop - at >= round_bytes:
                lane = to_next_round(lane, load(data, at))
                lane2 = to_next_round(lane2, load(data, at + lane_bytes))
                lane3 = to_next_round(lane3, load(data, at + 2 * lane_bytes))
                lane4 = to_next_round(lane4, load(data, at + 3 * lane_bytes))
                at += round_bytes
            lane = to_next(to_next(to_next(lane, lane2), lane3), lane4)
        while at < stop:
            lane = to_next(lane, load(data, at))
            at += lane_bytes
        return words_of(lane)

    return fold_rest
