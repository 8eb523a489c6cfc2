"""Integers at a position of a uint8 array, for compiled code; a prefetch."""

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

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
