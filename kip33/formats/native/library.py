"""Kernels from a shared library: machine code that needs no compiler.

There is a library for each kind of CPU in CPU_TARGETS: `NAME.so` and its description `NAME.json`.
They are in the folder `kernels` of this package, which may be inside a zip, or in the folder that
KIP33_KERNELS names (empty: no library is used). A library is used only if the CPU has every feature
that its code uses, its digest is right, its sources are unchanged, and a known CRC comes out.

A kernel's symbol is its name. It takes a pointer for each array (to its `PyArrayObject`, of which
it reads data, dimensions and strides), an int64 for each integer or bool, an ignored pointer for
None, and last a pointer to int64s for its results. It returns 0, or 1 if the function raised an
exception.
"""

import ctypes
import hashlib
import json
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from kip33.formats import crc

FOLDER: Final = "kernels"
# Long enough for each machine form: lanes folded side by side, one after another, and a front.
CHECKED_BYTES: Final = bytes(range(256)) * 5 + b"123456789"
_HEADER_BYTES: Final = 16  # of a Python object, where the fields of an array begin
_NEEDED_FLAGS: Final = 0x1 | 0x100 | 0x400  # numpy's: C contiguous, aligned, writeable
_AT_HWCAP: Final = 16  # getauxval's number for the features of an aarch64 CPU
_HWCAP_BITS: Final = {"neon": 1, "crc": 7}
# Linux's names of x86-64 features where they are not LLVM's.
_LINUX_NAMES: Final = {
    **{"sahf": "lahf_lm", "sse3": "pni", "bmi": "bmi1", "lzcnt": "abm"},
    **{"crc32": "sse4_2", "pclmul": "pclmulqdq"},
}


class Target(NamedTuple):
    """A kind of CPU that a library is made for, by LLVM's names."""

    name: str
    machine: str  # as uname has it
    cpu: str
    features: tuple[str, ...]  # the code may use all of them, so a CPU must have them

    @property
    def is_here(self) -> bool:
        """Return whether this machine's CPU has what the code uses."""
        if not sys.platform.startswith("linux") or os.uname().machine != self.machine:
            return False
        return set(self.features) <= _features(self)


_X86_64_V3: Final = (
    *("cx16", "sahf", "popcnt", "sse3", "ssse3", "sse4.1", "sse4.2"),
    *("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"),
    *("crc32", "pclmul"),  # not required by the level, but its CPUs have them
)
_X86_64_V4: Final = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "vpclmulqdq")
CPU_TARGETS: Final = (
    Target("x86-64-v4", "x86_64", "x86-64-v4", _X86_64_V3 + _X86_64_V4),
    Target("x86-64-v3", "x86_64", "x86-64-v3", _X86_64_V3),
    Target("aarch64", "aarch64", "generic", ("neon", "crc")),
)
"""The fastest first. An x86-64-v4 CPU without `vpclmulqdq` (before 2019) uses the code for v3."""


def _features(target: Target) -> set[str]:
    """Return which of a target's features this machine has, according to Linux."""
    if target.machine == "aarch64":
        bits = ctypes.CDLL(None).getauxval(_AT_HWCAP)
        return {name for name in target.features if bits >> _HWCAP_BITS[name] & 1}
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    flags = next((set(line.split()) for line in lines if line.startswith("flags")), set())
    return {n for n in target.features if _LINUX_NAMES.get(n, n.replace(".", "_")) in flags}


class ArrayArgument(NamedTuple):
    """An array that a kernel takes: its type, and what must be true of its memory."""

    dtype: Any  # in JSON as numpy's files describe it
    dimensions: int
    flags: int  # bits of numpy's flags that must be set

    @classmethod
    def of(cls, sample: np.ndarray[Any, Any]) -> "ArrayArgument":
        """Return what describes arrays like this one."""
        return cls(sample.dtype, sample.ndim, sample.flags.num & _NEEDED_FLAGS)


class Signature(NamedTuple):
    """A kernel's arguments and how many numbers it returns; None: it returns None."""

    arguments: tuple[ArrayArgument | str, ...]  # an array, or INTEGER or NOTHING
    results: int | None
    returns_tuple: bool

    def to_json(self) -> list[Any]:
        """Return what JSON can hold."""
        arguments = [
            [np.lib.format.dtype_to_descr(argument.dtype), *argument[1:]]
            if isinstance(argument, ArrayArgument)
            else argument
            for argument in self.arguments
        ]
        return [arguments, *self[1:]]

    @classmethod
    def from_json(cls, given: list[Any]) -> "Signature":
        """Return the signature of what `to_json` gave."""
        arguments = tuple(
            argument
            if isinstance(argument, str)
            else ArrayArgument(_dtype_of(argument[0]), *argument[1:])
            for argument in given[0]
        )
        return cls(arguments, *given[1:])


INTEGER: Final = "integer"  # an int or a bool
NOTHING: Final = "nothing"  # None


def _dtype_of(description: Any) -> np.dtype[Any]:
    if isinstance(description, str):
        return np.dtype(description)
    return np.dtype([(name, form) for name, form in description])


def name_of(function: Any) -> str:
    """Return a kernel's name: of its function, with its module."""
    return f"{function.__module__}.{function.__qualname__}"


class Library(NamedTuple):
    """A library in memory."""

    target: Target
    kernels: Mapping[str, Signature]  # by name, see `name_of`
    code: ctypes.CDLL


class Kernel:
    """A function of a library. Python's lock is not held while it runs."""

    def __init__(
        self,
        function: Callable[..., Any],
        library: Library,
        otherwise: Callable[[Callable[..., Any]], Callable[..., Any]],
    ) -> None:
        """Take the plain function; `otherwise` is its speed for arguments of other types."""
        signature = library.kernels[name_of(function)]
        self._function = function
        self._otherwise = otherwise
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
        self._call = prototype((name_of(function), library.code))

    def __call__(self, *arguments: Any) -> Any:
        """Return what the plain function returns."""
        if len(arguments) != self._count:
            return self._otherwise(self._function)(*arguments)
        for number, dtype, dimensions, flags in self._arrays:
            array = arguments[number]
            if (
                type(array) is not np.ndarray
                or (array.dtype is not dtype and not self._is_equal(number, array.dtype))
                or array.ndim != dimensions
                or array.flags.num & flags != flags
            ):
                return self._otherwise(self._function)(*arguments)
        for number in self._nothing:
            if arguments[number] is not None:
                return self._otherwise(self._function)(*arguments)
        results = self._results()
        try:
            failed = self._call(*arguments, results)
        except ctypes.ArgumentError:  # an argument is not an int
            return self._otherwise(self._function)(*arguments)
        if failed:
            raise RuntimeError(f"{name_of(self._function)} failed in its compiled code")
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


@cache
def loaded() -> Library | None:
    """Return the library for this machine; None without one that can be trusted."""
    folder = os.environ.get("KIP33_KERNELS")
    if folder == "" or object.__basicsize__ != _HEADER_BYTES:
        return None
    for target in CPU_TARGETS:
        if target.is_here:
            with suppress(OSError, ValueError, TypeError, LookupError, AttributeError):
                library = _load(target, folder)
                if _knows_the_answer(library):
                    return library
    return None


def _load(target: Target, folder: str | None) -> Library:
    """Return a target's library; one of many errors if it is not there, damaged or stale."""
    code = _read(folder, f"{target.name}.so")
    description = json.loads(_read(folder, f"{target.name}.json"))
    require_whole(code, description)
    kernels = {name: Signature.from_json(given) for name, given in description["kernels"].items()}
    place = Path(folder) if folder else Path(__file__).with_name(FOLDER)
    return Library(target, kernels, _opened(place / f"{target.name}.so", code))


def _read(folder: str | None, name: str) -> bytes:
    if folder is not None:
        return (Path(folder) / name).read_bytes()
    return pkgutil.get_data(__package__, f"{FOLDER}/{name}") or b""


def require_whole(code: bytes, description: dict[str, Any]) -> None:
    """Raise ValueError if a library is not the described one, or not of the sources as they are."""
    if description["digest"] != digest_of(code, description):
        raise ValueError("damaged: the bytes do not match their digest")
    sources = description["sources"]
    if not sources or sources_digest_of(sources) != description["sources_digest"]:
        raise ValueError("made of other sources")


def digest_of(code: bytes, description: Mapping[str, Any]) -> str:
    """Return the digest of a library and of its description but for `digest`."""
    rest = {key: value for key, value in description.items() if key != "digest"}
    return hashlib.sha256(code + json.dumps(rest, sort_keys=True).encode()).hexdigest()


def sources_digest_of(modules: Iterable[str]) -> str | None:
    """Return the digest of these modules' texts, None if one has no text here."""
    digest = hashlib.sha256()
    for name in modules:
        package, _, module = name.rpartition(".")
        try:
            text = pkgutil.get_data(package, f"{module}.py")
        except (OSError, ImportError):
            return None
        if text is None:
            return None
        digest.update(f"{name} {len(text)}\n".encode() + text)
    return digest.hexdigest()


def _opened(path: Path, code: bytes) -> ctypes.CDLL:
    """Load a library: its file, or a copy in memory where that is in a zip or not executable."""
    with suppress(OSError):
        return ctypes.CDLL(str(path.absolute()))
    descriptor = os.memfd_create(path.name)
    with os.fdopen(descriptor, "wb", buffering=0) as copy:
        copy.write(code)
        return ctypes.CDLL(f"/proc/self/fd/{descriptor}")


def _knows_the_answer(library: Library) -> bool:
    known = crc.crc32c(0, CHECKED_BYTES, 0, len(CHECKED_BYTES), None)
    kernel = Kernel(crc.with_crc32c, library, lambda plain: plain)
    return bool(kernel(0, np.frombuffer(CHECKED_BYTES, np.uint8), None) == known)
