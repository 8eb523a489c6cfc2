"""Compiled code: `compiled(function)` turns a plain function into machine code, cached on disk.

The plain functions of `kip33.formats.crc` that it calls are replaced by those in `forms`, so the
walk and every rule are written once and run at two speeds. Compiled code releases Python's lock.
Only modules of this package import numba.
"""

import hashlib
import os
import pkgutil
import tempfile
import threading
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, Final, TypeVar, cast

import llvmlite.binding
import numba
import numpy as np
import numpy.typing as npt
from numba.core import config
from numba.extending import register_jitable

from kip33.formats import crc
from kip33.formats.native import cpu, folding, lanes, loads
from kip33.formats.native import forms as native_forms
from kip33.formats.native.forms import CRC32C_TABLES, NATIVE_FORMS
from kip33.formats.native.library import CHECKED_BYTES

# The sources of compiled code besides the functions themselves.
MACHINE_FORMS: Final = (native_forms, loads, lanes, folding, crc)
_Function = TypeVar("_Function", bound=Callable[..., Any])
# The cache folder is a setting of the process, so only one thread at a time may change it.
_ONE_AT_A_TIME: Final = threading.RLock()


def compiled(function: _Function) -> _Function:
    """Return `function` as machine code: compiled once, then loaded from a cache on disk."""
    with _ONE_AT_A_TIME:
        return cast(_Function, _compiled(function))


@cache
def _compiled(function: _Function) -> _Function:
    modules = let_call(function)
    before = config.CACHE_DIR  # type: ignore[attr-defined]
    config.CACHE_DIR = str(cache_folder(modules))  # type: ignore[attr-defined]
    try:
        return cast(_Function, dispatcher(function, cache=True))
    finally:
        config.CACHE_DIR = before  # type: ignore[attr-defined]


def dispatcher(function: Callable[..., Any], *, cache: bool = False) -> Any:
    """Return numba's form of a function whose callees are ready to be called, see `let_call`.

    Without numba's runtime (nrt), references to arrays are not counted. Counting them costs two
    locked instructions at each call of a function with an array argument, and no other instruction
    can pass these. On 200 B batches they took a quarter of the walk's time. In return, functions
    that allocate memory do not compile.
    """
    njit = cast(Any, numba.njit)  # `_nrt` is not in its signature
    return njit(cache=cache, nogil=True, _nrt=False)(function)


def cache_folder(modules: Iterable[str]) -> Path:
    """Return the cache folder for code compiled from these modules' sources on this kind of CPU.

    numba checks only the compiled function's own file. Processes that compile the same function
    differently cannot share its cache. So each version of the sources and each kind of CPU has its
    own folder. It is below NUMBA_CACHE_DIR if that is set; otherwise beside the package, in the
    user's cache or in a temporary folder, whichever is the first writable one.
    """
    digest = hashlib.sha256()
    for name in sorted(modules):
        package, _, module = name.rpartition(".")
        digest.update(pkgutil.get_data(package, f"{module}.py") or b"")
    digest.update(f"{numba.__version__} {llvmlite.binding.get_host_cpu_name()}".encode())
    digest.update(cpu.features().encode())
    return _cache_root() / f"kip33-{digest.hexdigest()[:16]}"


def _cache_root() -> Path:
    given = config.CACHE_DIR  # type: ignore[attr-defined]
    if given:
        return Path(given)
    temporary = Path(tempfile.gettempdir())
    # The XDG specification: a path that is empty or relative counts as unset.
    xdg_caches = (os.environ.get("XDG_CACHE_HOME"), f"{os.environ.get('HOME', '')}/.cache")
    home_caches = [Path(path) for path in xdg_caches if path and Path(path).is_absolute()][:1]
    for place in (Path(__file__).parent / "__pycache__", *home_caches):
        if place.is_dir() and os.access(place, os.W_OK):
            return place
    ours = temporary / f"kip33-numba-{os.getuid()}"
    if ours.exists() and ours.stat().st_uid != os.getuid():  # machine code of another user
        return Path(tempfile.mkdtemp(prefix="kip33-numba-"))
    ours.mkdir(mode=0o700, exist_ok=True)
    return ours


def let_call(function: Callable[..., Any]) -> set[str]:
    """Make what `function` calls callable from compiled code; return all modules involved."""
    modules = {module.__name__ for module in MACHINE_FORMS}
    _let_call(cast(FunctionType, function), modules)
    return modules


def _let_call(function: FunctionType, modules: set[str]) -> None:
    """Make the plain functions that `function` calls callable from compiled code.

    This is recursive. Adds the modules of all these functions to `modules`.
    """
    modules.add(function.__module__)
    for name in function.__code__.co_names:
        callee = function.__globals__.get(name)
        if isinstance(callee, FunctionType) and callee not in NATIVE_FORMS:
            _make_jitable(callee)
            _let_call(callee, modules)


@cache
def _make_jitable(function: FunctionType) -> None:
    register_jitable(function)


@cache
def crc32c_tables() -> npt.NDArray[np.uint32] | None:
    """Return what to pass to `crc.crc32c` here: None for the instruction, else slicing tables."""
    if cpu.has_crc32c():
        known = crc.crc32c(0, CHECKED_BYTES, 0, len(CHECKED_BYTES), None)
        if compiled(crc.with_crc32c)(0, np.frombuffer(CHECKED_BYTES, np.uint8), None) == known:
            return None
    return CRC32C_TABLES
