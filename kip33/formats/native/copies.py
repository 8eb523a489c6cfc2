"""Copies between uint8 arrays, for compiled code: fixed sizes by one load and one store."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, register_jitable


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
    """Copy `count` bytes; a tail is copied with bytes before it, which are copied twice."""
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
