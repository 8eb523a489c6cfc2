"""Machine forms of the plain functions of `crc`, for compiled code.

Both CRCs are folded 64 bytes at once if the CPU can do that (`native.folding`, AVX-512). Otherwise
CRC-32C uses the CPU's own instruction: x86-64 `crc32` (SSE4.2), aarch64 `crc32cx`. Long pieces run
as three interleaved streams, because the instruction takes three cycles but one can start every
cycle. Without the instruction, or if the known-answer check fails, CRC-32C uses slicing tables.
CRC-32 is folded by 16 bytes if the CPU can do that; the rest, and everything on other CPUs, uses
slicing tables with 16 bytes per step.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload, register_jitable

from kip33.formats import crc
from kip33.formats.native import cpu
from kip33.formats.native.folding import FEWEST_BYTES, LANE_BYTES, folding, wide_folding
from kip33.formats.native.loads import LOADS, copy, load32_le, load64_le, prefetch

NATIVE_FORMS: Final[set[Callable[..., Any]]] = {
    crc.int8_at,
    crc.int16_at,
    crc.int32_at,
    crc.uint32_at,
    crc.int64_at,
    crc.java_sum,
    crc.will_need,
    crc.copy_bytes,
    crc.crc32,
    crc.crc32c,
}
"""Plain functions that have a machine form below."""

LONG_BYTES: Final = 2048  # per stream; a 16 KiB batch is two rounds of three streams and a rest
SHORT_BYTES: Final = 256


def _give_load(plain: Callable[..., int], load: Any) -> None:
    @overload(plain, strict=False)
    def native(data: Any, at: Any) -> Any:
        return lambda data, at: load(data, at)


for _plain, _native_load in LOADS.items():
    _give_load(_plain, _native_load)


@overload(crc.java_sum, strict=False)
def _java_sum(a: Any, b: Any) -> Any:
    return lambda a, b: a + b


@overload(crc.will_need, strict=False)
def _will_need(data: Any, at: Any) -> Any:
    return lambda data, at: prefetch(data, at)


@overload(crc.copy_bytes, strict=False)
def _copy_bytes(target: Any, at: Any, data: Any, start: Any, count: Any) -> Any:
    return lambda target, at, data, start, count: copy(target, at, data, start, count)


def _crc_instruction(architecture: str) -> tuple[str, str] | None:
    """Return LLVM's names of the 8-byte and the 1-byte step on `architecture`, None if missing."""
    if architecture.startswith(("x86_64", "amd64")):
        return "llvm.x86.sse42.crc32.64.64", "llvm.x86.sse42.crc32.32.8"
    if architecture.startswith(("aarch64", "arm64")):
        return "llvm.aarch64.crc32cx", "llvm.aarch64.crc32cb"
    return None


def emit_crc_step(builder: Any, architecture: str, value: Any, data: Any) -> Any:
    """Emit one CRC-32C step: `value` i64 (a 32-bit register), `data` i64 or i8; returns i64."""
    names = _crc_instruction(architecture)
    if names is None:
        raise NotImplementedError(f"{architecture}: no CRC-32C instruction known")
    wide, narrow = names
    i32, i64 = ir.IntType(32), ir.IntType(64)
    on_arm = wide.startswith("llvm.aarch64")
    step = wide if data.type == i64 else narrow
    register = value if data.type == i64 and not on_arm else builder.trunc(value, i32)
    operand = builder.zext(data, i32) if on_arm and data.type != i64 else data
    returns = i64 if register.type == i64 else i32
    function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module, ir.FunctionType(returns, [register.type, operand.type]), step
    )
    result = builder.call(function, [register, operand])
    return result if returns == i64 else builder.zext(result, i64)


def _crc_step(data_type: Any) -> Any:
    @intrinsic
    def step(typing_context: Any, value: Any, data: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            architecture = builder.module.triple.split("-")[0]
            return emit_crc_step(builder, architecture, args[0], args[1])

        return types.uint64(types.uint64, data_type), codegen

    return step


_step8 = _crc_step(types.uint64)
_step1 = _crc_step(types.uint8)
_LONG_SHIFT = crc.zero_shift_tables(crc.CRC32C_POLYNOMIAL, LONG_BYTES)
_SHORT_SHIFT = crc.zero_shift_tables(crc.CRC32C_POLYNOMIAL, SHORT_BYTES)


@register_jitable
def _slice4(tables: Any, word: Any) -> Any:
    """Return the xor of 4 lookups: byte k of `word` in table `3 - k`."""
    mask = np.uint64(0xFF)
    return np.uint64(
        tables[3, word & mask]
        ^ tables[2, (word >> np.uint64(8)) & mask]
        ^ tables[1, (word >> np.uint64(16)) & mask]
        ^ tables[0, (word >> np.uint64(24)) & mask]
    )


@register_jitable
def _three_streams(register: Any, data: Any, at: Any, stop: Any, block: Any, shift: Any) -> Any:
    """Process rounds of three blocks side by side; return the register and the position reached."""
    while stop - at >= 3 * block:
        second = np.uint64(0)
        third = np.uint64(0)
        ahead = at + 3 * block  # prefetch the next round in order: hardware sees no stream in three
        for line in range(at, at + block, 64):
            prefetch(data, ahead)
            prefetch(data, ahead + 64)
            prefetch(data, ahead + 128)
            ahead += 192
            for i in range(line, line + 64, 8):
                register = _step8(register, load64_le(data, i))
                second = _step8(second, load64_le(data, i + block))
                third = _step8(third, load64_le(data, i + 2 * block))
        register = _slice4(shift, register) ^ second
        register = _slice4(shift, register) ^ third
        at += 3 * block
    return register, at


@register_jitable
def crc32c_by_instruction(value: Any, data: Any, start: Any, stop: Any) -> Any:
    """Return the CRC-32C `value` with `data[start:stop]` added, eight bytes a step."""
    register = np.uint64(value) ^ np.uint64(0xFFFFFFFF)
    at = start
    register, at = _three_streams(register, data, at, stop, LONG_BYTES, _LONG_SHIFT)
    register, at = _three_streams(register, data, at, stop, SHORT_BYTES, _SHORT_SHIFT)
    # Few branches, each on one bit of the length: the CPU predicts them and starts the next batch.
    while stop - at >= 64:
        for i in range(at, at + 64, 8):
            register = _step8(register, load64_le(data, i))
        at += 64
    left = stop - at
    if left & 32:
        register = _step8(register, load64_le(data, at))
        register = _step8(register, load64_le(data, at + 8))
        register = _step8(register, load64_le(data, at + 16))
        register = _step8(register, load64_le(data, at + 24))
        at += 32
    if left & 16:
        register = _step8(register, load64_le(data, at))
        register = _step8(register, load64_le(data, at + 8))
        at += 16
    if left & 8:
        register = _step8(register, load64_le(data, at))
        at += 8
    while at < stop:
        register = _step1(register, data[at])
        at += 1
    return register ^ np.uint64(0xFFFFFFFF)


CRC32_TABLES = crc.slicing_tables(crc.CRC32_POLYNOMIAL, 16)
CRC32C_TABLES = crc.slicing_tables(crc.CRC32C_POLYNOMIAL, 16)


@register_jitable
def _slice8(tables: Any, word: Any, first: Any) -> Any:
    """Return the xor of 8 lookups: byte k of `word` in table `first - k`."""
    mask = np.uint64(0xFF)
    return np.uint64(
        tables[first, word & mask]
        ^ tables[first - 1, (word >> np.uint64(8)) & mask]
        ^ tables[first - 2, (word >> np.uint64(16)) & mask]
        ^ tables[first - 3, (word >> np.uint64(24)) & mask]
        ^ tables[first - 4, (word >> np.uint64(32)) & mask]
        ^ tables[first - 5, (word >> np.uint64(40)) & mask]
        ^ tables[first - 6, (word >> np.uint64(48)) & mask]
        ^ tables[first - 7, (word >> np.uint64(56)) & mask]
    )


@register_jitable
def _by_tables(value: Any, data: Any, start: Any, stop: Any, tables: Any) -> Any:
    register = np.uint64(value) ^ np.uint64(0xFFFFFFFF)
    at = start
    while stop - at >= 16:
        ahead = _slice8(tables, load64_le(data, at + 8), 7)
        register = _slice8(tables, load64_le(data, at) ^ register, 15) ^ ahead
        at += 16
    if stop - at >= 8:
        register = _slice8(tables, load64_le(data, at) ^ register, 7)
        at += 8
    if stop - at >= 4:
        register = _slice4(tables, load32_le(data, at) ^ register)
        at += 4
    while at < stop:
        low = (register ^ np.uint64(data[at])) & np.uint64(0xFF)
        register = np.uint64(tables[0, low]) ^ (register >> np.uint64(8))
        at += 1
    return register ^ np.uint64(0xFFFFFFFF)


_crc32_folded = folding(crc.CRC32_POLYNOMIAL)
_crc32_folded_wide = wide_folding(crc.CRC32_POLYNOMIAL)
_crc32c_folded_wide = wide_folding(crc.CRC32C_POLYNOMIAL)


@register_jitable
def crc32_by_folding(value: Any, data: Any, start: Any, stop: Any, tables: Any) -> Any:
    """Return the CRC-32 `value` with `data[start:stop]` added, by lanes of 16 bytes."""
    if stop - start < FEWEST_BYTES:
        return _by_tables(value, data, start, stop, tables)
    whole = stop - (stop - start) % LANE_BYTES
    low, high = _crc32_folded(data, start, whole, np.uint64(value) ^ np.uint64(0xFFFFFFFF))
    register = _slice8(tables, low, 15) ^ _slice8(tables, high, 7)
    return _by_tables(register ^ np.uint64(0xFFFFFFFF), data, whole, stop, tables)


@register_jitable
def crc32_by_wide_folding(value: Any, data: Any, start: Any, stop: Any, tables: Any) -> Any:
    """Return the CRC-32 `value` with `data[start:stop]` added, by lanes of 64 bytes."""
    if stop - start < FEWEST_BYTES:
        return _by_tables(value, data, start, stop, tables)
    low, high = _crc32_folded_wide(data, start, stop, np.uint64(value) ^ np.uint64(0xFFFFFFFF))
    return _slice8(tables, low, 15) ^ _slice8(tables, high, 7) ^ np.uint64(0xFFFFFFFF)


@register_jitable
def crc32c_by_wide_folding(value: Any, data: Any, start: Any, stop: Any) -> Any:
    """Return the CRC-32C `value` with `data[start:stop]` added, by lanes of 64 bytes."""
    if stop - start < FEWEST_BYTES:
        return crc32c_by_instruction(value, data, start, stop)
    low, high = _crc32c_folded_wide(data, start, stop, np.uint64(value) ^ np.uint64(0xFFFFFFFF))
    return _step8(_step8(np.uint64(0), low), high) ^ np.uint64(0xFFFFFFFF)


@overload(crc.crc32)
def _crc32(value: Any, data: Any, start: Any, stop: Any) -> Any:
    def by_tables(value: Any, data: Any, start: Any, stop: Any) -> Any:
        return np.int64(_by_tables(value, data, start, stop, CRC32_TABLES))

    def by_folding(value: Any, data: Any, start: Any, stop: Any) -> Any:
        return np.int64(crc32_by_folding(value, data, start, stop, CRC32_TABLES))

    def by_wide_folding(value: Any, data: Any, start: Any, stop: Any) -> Any:
        return np.int64(crc32_by_wide_folding(value, data, start, stop, CRC32_TABLES))

    if cpu.has_wide_multiplication():
        return by_wide_folding
    return by_folding if cpu.has_carryless_multiplication() else by_tables


@overload(crc.crc32c)
def _crc32c(value: Any, data: Any, start: Any, stop: Any, tables: Any) -> Any:
    def by_instruction(value: Any, data: Any, start: Any, stop: Any, tables: Any) -> Any:
        return np.int64(crc32c_by_instruction(value, data, start, stop))

    def by_wide_folding(value: Any, data: Any, start: Any, stop: Any, tables: Any) -> Any:
        return np.int64(crc32c_by_wide_folding(value, data, start, stop))

    def by_tables(value: Any, data: Any, start: Any, stop: Any, tables: Any) -> Any:
        return np.int64(_by_tables(value, data, start, stop, tables))

    if not isinstance(tables, types.NoneType):
        return by_tables
    return by_wide_folding if cpu.has_wide_multiplication() else by_instruction
