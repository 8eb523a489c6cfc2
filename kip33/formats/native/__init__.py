"""The two speeds of a rule: plain Python, or compiled."""

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Speed: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Takes a rule's plain function and returns the function to call."""

PLAIN: Final = "plain Python"


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function itself, which is enough for a few batches."""
    return function


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as machine code, of the shared library or by numba; else plain."""
    from kip33.formats.native import library

    there = library.loaded()
    if there and library.name_of(function) in there.kernels:
        return library.Kernel(function, there, _by_numba)
    return _by_numba(function)


def _by_numba(function: Callable[..., Any]) -> Callable[..., Any]:
    numba = _compiler()
    if numba:
        machine_code: Callable[..., Any] = numba.compiled(function)
        return machine_code

    def with_bytes(*arguments: Any) -> Any:
        """Call the plain function, which takes bytes as a memoryview."""
        return function(*(_bytes_of(argument) for argument in arguments))

    return with_bytes


def _bytes_of(argument: Any) -> Any:
    is_bytes = isinstance(argument, np.ndarray) and argument.dtype == np.uint8
    return argument.data if is_bytes else argument


@cache
def _compiler() -> ModuleType | None:
    """Return what compiles by numba; None where it is not installed, or broken."""
    try:
        from kip33.formats.native import compiler
    except (ImportError, OSError):
        return None
    return compiler


def how() -> str:
    """Return what `compiled` gives on this machine; PLAIN if it has no machine code."""
    from kip33.formats.native import library

    there = library.loaded()
    if there:
        return f"shared library {there.target.name}"
    return "compiled by numba" if _compiler() else PLAIN


def is_ready(function: Callable[..., Any]) -> bool:
    """Return whether the shared library has a function: nothing is compiled at its first call."""
    from kip33.formats.native import library

    there = library.loaded()
    return there is not None and library.name_of(function) in there.kernels


def is_loaded() -> bool:
    """Return whether this process has compiled code already, so that using it costs nothing."""
    return compiled.cache_info().currsize > 0


@cache
def crc32c_tables() -> npt.NDArray[np.uint32] | None:
    """Return what to pass to `crc.crc32c` in compiled code: None for the CPU's instruction."""
    from kip33.formats.native import library

    if library.loaded():  # its known-answer check has used the instruction
        return None
    numba = _compiler()
    return numba.crc32c_tables() if numba else None
