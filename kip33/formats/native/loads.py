"""Loads from uint8 arrays and copies between them, for compiled code; a prefetch."""

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, register_jitable

from kip33.formats import crc


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


def _copy(count: int) -> Any:
    """Return an intrinsic `(target, at, data, start)` that copies `count` bytes."""

    @intrinsic
    def copy(typing_context: Any, target: Any, at: Any, data: Any, start: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            unit = ir.VectorType(ir.IntType(8), count)

            def place(number: int) -> Any:
                array = context.make_array(signature.args[number])(context, builder, args[number])
                byte = builder.gep(array.data, [args[number + 1]])
                return builder.bitcast(byte, unit.as_pointer())

            builder.store(builder.load(place(2), align=1), place(0), align=1)
            return context.get_dummy_value()

        return types.void(target, types.int64, data, types.int64), codegen

    return copy


_copy32, _copy16, _copy8, _copy4 = _copy(32), _copy(16), _copy(8), _copy(4)


@register_jitable
def copy(target: Any, at: Any, data: Any, start: Any, count: Any) -> None:
    """Copy `count` bytes by one load and one store for each fixed size.

    A tail is copied with bytes before it, which are copied twice.
    """
    if count >= 32:
        last = count - 32
        for i in range(0, last, 32):
            _copy32(target, at + i, data, start + i)
        _copy32(target, at + last, data, start + last)
    elif count >= 16:
        _copy16(target, at, data, start)
        _copy16(target, at + count - 16, data, start + count - 16)
    elif count >= 8:
        _copy8(target, at, data, start)
        _copy8(target, at + count - 8, data, start + count - 8)
    elif count >= 4:
        _copy4(target, at, data, start)
        _copy4(target, at + count - 4, data, start + count - 4)
    else:
        for i in range(count):
            target[at + i] = data[start + i]
