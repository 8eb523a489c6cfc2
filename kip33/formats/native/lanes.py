"""Lanes: 16 or 64 bytes in one CPU register, for compiled code that folds CRCs.

Lanes of 64 bytes need AVX-512 (`vpclmulqdq`, byte masks), lanes of 16 bytes `pclmulqdq`.
"""

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from kip33.formats import crc

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_MULTIPLICATIONS: Final = {2: "llvm.x86.pclmulqdq", 8: "llvm.x86.pclmulqdq.512"}


class Lane(types.Type):
    """The numba type of a lane of `words` 8-byte words."""

    def __init__(self, words: int) -> None:
        self.words = words
        super().__init__(name=f"Lane({words})")


@register_model(Lane)
class _LaneModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lane: Lane) -> None:
        super().__init__(manager, lane, _vector(lane.words))  # type: ignore[no-untyped-call]


def _vector(words: int) -> ir.VectorType:
    return ir.VectorType(_I64, words)


def _number(value: int) -> ir.Constant:
    return ir.Constant(_I64, value)


def _part(builder: Any, vector: Any, first: int, words: int) -> Any:
    indexes = ir.Constant(ir.VectorType(_I32, words), list(range(first, first + words)))
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), indexes)


def factors(polynomial: int, distances_bytes: list[int]) -> ir.Constant:
    """Return the factors that move each 16 bytes of a lane by a distance; 0 drops them."""
    halves = [
        crc.fold_factor(polynomial, 8 * distance + shift) if distance else 0
        for distance in distances_bytes
        for shift in (32, -32)
    ]
    return ir.Constant(_vector(len(halves)), halves)


def emit_carried(builder: Any, lane: Any, by: ir.Constant) -> Any:
    """Emit the remainder of a lane, moved by the distances of its factors."""
    multiply = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module,
        ir.FunctionType(by.type, [by.type, by.type, _I8]),
        _MULTIPLICATIONS[by.type.count],
    )
    low = builder.call(multiply, [lane, by, ir.Constant(_I8, 0x00)])
    high = builder.call(multiply, [lane, by, ir.Constant(_I8, 0x11)])
    return builder.xor(low, high)


def lane_at(words: int) -> Any:
    """Return an intrinsic `(uint8 array, at) -> lane`: an unaligned load."""

    @intrinsic
    def load(typing_context: Any, data: Any, at: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, args[0])
            place = builder.gep(array.data, [args[1]])
            return builder.load(builder.bitcast(place, _vector(words).as_pointer()), align=1)

        return Lane(words)(data, types.int64), codegen

    return load


def fold(polynomial: int, words: int, distance_bytes: int) -> Any:
    """Return an intrinsic `(lane, ahead) -> lane`: `ahead` plus the remainder of `lane`."""
    by = factors(polynomial, [distance_bytes] * (words // 2))

    @intrinsic
    def folded(typing_context: Any, lane: Any, ahead: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.xor(emit_carried(builder, args[0], by), args[1])

        return Lane(words)(lane, ahead), codegen

    return folded


def _both(typing_context: Any, one: Any, other: Any) -> Any:
    """Return the sum of two lanes: their xor."""
    return one(one, other), lambda context, builder, signature, args: builder.xor(*args)


both: Any = intrinsic(_both)


def last_words(polynomial: int, words: int) -> Any:
    """Return an intrinsic `lane -> (word, word)`: 16 bytes with the same CRC from 0."""
    quarters = words // 2
    by = factors(polynomial, [16 * (quarters - 1 - k) for k in range(quarters)])

    @intrinsic
    def last(typing_context: Any, lane: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pair = _part(builder, args[0], words - 2, 2)
            if quarters > 1:
                carried = emit_carried(builder, args[0], by)
                for first in range(0, words - 2, 2):
                    pair = builder.xor(pair, _part(builder, carried, first, 2))
            found = [builder.extract_element(pair, _number(k)) for k in range(2)]
            return context.make_tuple(builder, signature.return_type, found)

        return types.UniTuple(types.uint64, 2)(lane), codegen  # type: ignore[no-untyped-call]

    return last


def _wide_lane_behind(typing_context: Any, data: Any, at: Any, zeros: Any) -> Any:
    """Load a lane of 64 bytes at `at` with zeros for the first `zeros`, below 64, unread bytes."""
    octets, mask_type = ir.VectorType(_I8, 64), ir.VectorType(ir.IntType(1), 64)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        place = builder.bitcast(builder.gep(array.data, [args[1]]), octets.as_pointer())
        load = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module,
            ir.FunctionType(octets, [place.type, _I32, mask_type, octets]),
            "llvm.masked.load.v64i8.p0",
        )
        mask = builder.bitcast(builder.shl(_number(-1), args[2]), mask_type)
        nothing = ir.Constant(octets, [0] * 64)
        loaded = builder.call(load, [place, ir.Constant(_I32, 1), mask, nothing])
        return builder.bitcast(loaded, _vector(8))

    return Lane(8)(data, types.int64, types.int64), codegen


wide_lane_behind: Any = intrinsic(_wide_lane_behind)


def _everywhere(builder: Any, word: Any) -> Any:
    undefined = ir.Constant(_vector(8), ir.Undefined)
    first = builder.insert_element(undefined, word, _number(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_I32, 8), [0] * 8))


def _shifted(builder: Any, name: str, lane: Any, bits: Any) -> Any:
    shift = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module,
        ir.FunctionType(_vector(8), [_vector(8), _vector(8)]),
        f"llvm.x86.avx512.{name}.q.512",
    )
    return builder.call(shift, [lane, bits])


def _wide_lanes_with(typing_context: Any, register: Any, zeros: Any) -> Any:
    """Return two lanes of 64 bytes, zeros but for a register's four behind the first `zeros`."""
    pair = types.UniTuple(Lane(8), 2)  # type: ignore[no-untyped-call]

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        register = _everywhere(builder, args[0])
        bits = _everywhere(builder, builder.shl(args[1], _number(3)))
        lanes = []
        for first_word in (0, 8):
            starts = ir.Constant(_vector(8), [64 * (first_word + k) for k in range(8)])
            # Each word is shifted by its own number; a number outside 0 to 63 gives 0. So only the
            # one or two words that contain the register are not 0.
            left = _shifted(builder, "psllv", register, builder.sub(bits, starts))
            right = _shifted(builder, "psrlv", register, builder.sub(starts, bits))
            lanes.append(builder.or_(left, right))
        return context.make_tuple(builder, signature.return_type, lanes)

    return pair(types.uint64, types.int64), codegen


wide_lanes_with: Any = intrinsic(_wide_lanes_with)


def _lane_with(typing_context: Any, register: Any) -> Any:
    """Return a lane of 16 bytes: a register's four, then zeros."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.insert_element(ir.Constant(_vector(2), [0, 0]), args[0], _number(0))

    return Lane(2)(types.uint64), codegen


lane_with: Any = intrinsic(_lane_with)
