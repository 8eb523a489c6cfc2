"""Kernels from object code: loaded from memory, without importing numba and without compiling.

The files are in the folder `objects` of this package, which may be inside a zip, or in the folder
that KIP33_OBJECT_CODE names (empty: object code is not used). A file is used only if the CPU has
every feature that the code uses, its digest is right, its sources are unchanged, and a known CRC
comes out. Otherwise numba compiles. numba also compiles a kernel whose arguments have other types.
"""

import ctypes
import os
import pkgutil
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import llvmlite.binding as llvm
import numpy as np

from kip33.formats import crc
from kip33.formats.native.object_code import (
    CPU_TARGETS,
    INTEGER,
    NOTHING,
    ArrayArgument,
    ObjectCode,
    Signature,
    Target,
    name_of,
)

FOLDER: Final = "objects"
# With one of these set, numba compiles: they ask for other code than this CPU's.
NUMBA_SETTINGS: Final = ("NUMBA_DISABLE_JIT", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
# Long enough for each machine form: lanes folded side by side, one after another, and a front.
CHECKED_BYTES: Final = bytes(range(256)) * 5 + b"123456789"
_HEADER_BYTES: Final = 16  # of a Python object, where the fields of an array begin
_ELF_HEADER_BYTES: Final = 64
_ELF_64_LITTLE: Final = b"\x7fELF\x02\x01"
_ET_REL: Final = 1
_ELF_MACHINES: Final = {"x86_64": 62, "aarch64": 183}
_ONE_AT_A_TIME: Final = threading.RLock()


class Loaded(NamedTuple):
    """Object code in memory; `engine` owns that memory."""

    code: ObjectCode
    engine: Any

    def kernel(self, function: Callable[..., Any]) -> "ObjectKernel | None":
        """Return a function's kernel, None if this file does not have it."""
        name = name_of(function)
        signature = self.code.kernels.get(name)
        if signature is None:
            return None
        return ObjectKernel(function, self.engine, signature)


class ObjectKernel:
    """A plain function as object code. Python's lock is not held while it runs."""

    def __init__(self, function: Callable[..., Any], engine: Any, signature: Signature) -> None:
        """Take the plain function, the engine that has its code, and what it takes and returns."""
        self._function = function
        self._engine = engine  # keeps the code in memory
        self._arrays = tuple(
            (number, *argument)
            for number, argument in enumerate(signature.arguments)
            if isinstance(argument, ArrayArgument)
        )
        self._nothing = tuple(n for n, a in enumerate(signature.arguments) if a == NOTHING)
        forms = [ctypes.c_int64 if a == INTEGER else ctypes.py_object for a in signature.arguments]
        self._results = ctypes.c_int64 * (signature.results or 0)
        self._returns_tuple = signature.returns_tuple
        self._returns_none = signature.results is None
        self._count = len(forms)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int, *forms, ctypes.POINTER(ctypes.c_int64))
        self._call = prototype(engine.get_function_address(name_of(function)))

    def __call__(self, *arguments: Any) -> Any:
        """Return what the plain function returns."""
        if len(arguments) != self._count:
            return self._by_numba(arguments)
        for number, dtype, dimensions, flags in self._arrays:
            array = arguments[number]
            if (
                type(array) is not np.ndarray
                or (array.dtype is not dtype and not self._is_equal(number, array.dtype))
                or array.ndim != dimensions
                or array.flags.num & flags != flags
            ):
                return self._by_numba(arguments)
        for number in self._nothing:
            if arguments[number] is not None:
                return self._by_numba(arguments)
        results = self._results()
        try:
            failed = self._call(*arguments, results)
        except ctypes.ArgumentError:  # an argument is not an int
            return self._by_numba(arguments)
        if failed:
            raise RuntimeError(f"{name_of(self._function)} failed in its object code")
        if self._returns_none:
            return None
        return tuple(results[:]) if self._returns_tuple else results[0]

    def _is_equal(self, number: int, found: np.dtype[Any]) -> bool:
        """Return whether a dtype is the argument's; that very object is known from now on.

        To compare the fields of two takes longer than all else that a call does.
        """
        arrays = [[*argument] for argument in self._arrays]
        of_it = next(argument for argument in arrays if argument[0] == number)
        if of_it[1] != found:
            return False
        of_it[1] = found
        self._arrays = tuple((n, dtype, d, flags) for n, dtype, d, flags in arrays)
        return True

    def _by_numba(self, arguments: tuple[Any, ...]) -> Any:
        from kip33.formats.native import compiler

        return compiler.compiled(self._function)(*arguments)


def kernel_of(function: Callable[..., Any]) -> ObjectKernel | None:
    """Return a function's kernel from object code, None where numba must compile it."""
    there = loaded()
    return there.kernel(function) if there else None


def loaded() -> Loaded | None:
    """Return the object code for this machine, loaded once; None where numba must compile."""
    with _ONE_AT_A_TIME:
        return _loaded()


@cache
def _loaded() -> Loaded | None:
    if (
        any(os.environ.get(name) for name in NUMBA_SETTINGS)
        or object.__basicsize__ != _HEADER_BYTES
    ):
        return None
    for target, data in _files():
        try:
            code = ObjectCode.from_bytes(data)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError):
            continue
        is_whole = bool(code.kernels and code.sources) and _is_object_file(code.elf, target)
        if code.target != target.name or not is_whole or code.is_stale:
            continue
        try:
            there = _load(code)
            if _knows_the_answer(there):
                return there
        except RuntimeError:  # LLVM refuses it, or a kernel fails
            continue
    return None


def _is_object_file(elf: bytes, target: Target) -> bool:
    """Return whether bytes begin as a relocatable ELF file for a target.

    LLVM may end the process if it gets anything else.
    """
    if len(elf) < _ELF_HEADER_BYTES or elf[:6] != _ELF_64_LITTLE:
        return False
    form, machine = struct.unpack_from("<HH", elf, 16)  # e_type and e_machine
    return bool(form == _ET_REL and machine == _ELF_MACHINES[target.triple.split("-")[0]])


def is_for_this_machine(target: Target) -> bool:
    """Return whether this machine's CPU has what a target's code uses."""
    if not sys.platform.startswith("linux") or os.uname().machine != target.triple.split("-")[0]:
        return False
    has = llvm.get_host_cpu_features()
    return all(has.get(feature) for feature in target.features)


def _files() -> Iterator[tuple[Target, bytes]]:
    """Yield the files that this machine's CPU can run, the best one first."""
    folder = os.environ.get("KIP33_OBJECT_CODE")
    if folder == "":
        return
    for target in CPU_TARGETS:
        data = _read(folder, target.file_name)
        if data is not None and is_for_this_machine(target):
            yield target, data


def _read(folder: str | None, name: str) -> bytes | None:
    try:
        if folder is not None:
            return (Path(folder) / name).read_bytes()
        return pkgutil.get_data(__package__, f"{FOLDER}/{name}")
    except OSError:
        return None


def _load(code: ObjectCode) -> Loaded:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code.elf))
    engine.finalize_object()
    return Loaded(code, engine)


def _knows_the_answer(there: Loaded) -> bool:
    kernel = there.kernel(crc.with_crc32c)
    known = crc.crc32c(0, CHECKED_BYTES, 0, len(CHECKED_BYTES), None)
    return bool(kernel and kernel(0, np.frombuffer(CHECKED_BYTES, np.uint8), None) == known)
