"""Loads from uint8 arrays and copies between them, for compiled code; a prefetch."""

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kip33.formats import crc

_UNIT_BYTES: Final = 32


def _load(bits: int, *, signed: bool, swap: bool) -> Any:
    """Return an intrinsic `(uint8 array, at) -> integer`: an unaligned load with optional swap."""
    result = types.int64 if signed else types.uint64

    @intrinsic
    def load(typing_context: Any, data: Any, at: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, args[0])
            place = builder.gep(array.data, [args[1]])
            word = ir.IntType(bits)
            value = builder.load(builder.bitcast(place, word.as_pointer()), align=1)
            if swap and bits > 8:
                value = builder.bswap(value)
            if bits == 64:
                return value
            extend = builder.sext if signed else builder.zext
            return extend(value, ir.IntType(64))

        return result(data, types.int64), codegen

    return load


LOADS: Final = {
    crc.int8_at: _load(8, signed=True, swap=True),
    crc.int16_at: _load(16, signed=True, swap=True),
    crc.int32_at: _load(32, signed=True, swap=True),
    crc.uint32_at: _load(32, signed=False, swap=True),
    crc.int64_at: _load(64, signed=True, swap=True),
}
# crc registers are little-endian by definition
load32_le = _load(32, signed=False, swap=False)
load64_le = _load(64, signed=False, swap=False)


def _prefetch(typing_context: Any, data: Any, at: Any) -> Any:
    """Prefetch the cache line at `at`, which may be beyond the array's end."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        place = builder.gep(array.data, [args[1]])
        number = ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch",
            (place.type,),
            ir.FunctionType(ir.VoidType(), [place.type, number, number, number]),
        )
        to_read_second_level_data = [number(0), number(2), number(1)]
        builder.call(function, [place, *to_read_second_level_data])
        return context.get_dummy_value()

    return types.void(data, types.int64), codegen


prefetch: Any = intrinsic(_prefetch)


def _copy(typing_context: Any, target: Any, at: Any, data: Any, start: Any, count: Any) -> Any:
    """Copy `count` bytes, 32 at once; where there is room, up to 31 bytes more.

    It is emitted where it is called: to call a function with two arrays takes longer than to copy
    a short field, and so does a wrong guess about the size of a last piece.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number, byte = ir.IntType(64), ir.IntType(8)
        arrays = [context.make_array(signature.args[n])(context, builder, args[n]) for n in (0, 2)]
        to, from_ = (
            builder.gep(array.data, [args[n]]) for array, n in zip(arrays, (1, 3), strict=True)
        )

        def move(form: Any, i: Any) -> None:
            source, place = (
                builder.bitcast(builder.gep(first, [i]), form.as_pointer()) for first in (from_, to)
            )
            builder.store(builder.load(source, align=1), place, align=1)

        count, unit = args[4], number(_UNIT_BYTES)
        is_room = builder.and_(
            *(
                builder.icmp_signed(">=", builder.sub(array.nitems, args[n]), end)
                for array, n, end in zip(
                    arrays, (1, 3), [builder.add(count, unit)] * 2, strict=True
                )
            )
        )
        whole = builder.select(is_room, count, builder.and_(count, number(-_UNIT_BYTES)))
        with cgutils.for_range_slice(builder, number(0), whole, unit, number) as (i, _):
            move(ir.VectorType(byte, _UNIT_BYTES), i)
        rest = cgutils.for_range_slice(builder, whole, count, number(1), number)
        with builder.if_then(builder.not_(is_room), likely=False), rest as (i, _):
            move(byte, i)
        return context.get_dummy_value()

    return types.void(target, types.int64, data, types.int64, types.int64), codegen


copy: Any = intrinsic(_copy)
