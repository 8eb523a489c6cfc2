"""The two speeds of a rule: plain Python, or compiled."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Speed: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Takes a rule's plain function and returns the function to call."""


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function itself, which is enough for a few batches."""
    return function


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as machine code: from object code if there is some, else from numba."""
    from kip33.formats.native import object_kernels

    kernel = object_kernels.kernel_of(function)
    if kernel is not None:
        return kernel
    from kip33.formats.native import compiler

    machine_code: Callable[..., Any] = compiler.compiled(function)
    return machine_code


def is_loaded() -> bool:
    """Return whether this process has compiled code already, so that using it costs nothing."""
    return compiled.cache_info().currsize > 0


@cache
def crc32c_tables() -> npt.NDArray[np.uint32] | None:
    """Return what to pass to `crc.crc32c` in compiled code: None for the CPU's instruction."""
    from kip33.formats.native import object_kernels

    if object_kernels.loaded():  # its known-answer check has used the instruction
        return None
    from kip33.formats.native import compiler

    return compiler.crc32c_tables()
