"""The file format of object code: the kernels, compiled for one kind of CPU.

`object_compiler` makes such a file and `object_kernels` loads it.

    20 bytes      MAGIC, with the version of this format
    32 bytes      SHA-256 of everything after it
    one line      the header in JSON: the fields of ObjectCode except `elf`
    the rest      a relocatable ELF file

A kernel's symbol is its name. It takes a pointer for each array (to its `PyArrayObject`, of which
it reads data, dimensions and strides), an int64 for each integer or bool, an ignored pointer for
None, and last a pointer to int64s for its results. It returns 0, or 1 if the function raised an
exception.
"""

import hashlib
import json
import pkgutil
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

MAGIC: Final = b"kip33 object code 1\n"
_DIGEST_BYTES: Final = 32
_NEEDED_FLAGS: Final = 0x1 | 0x100 | 0x400  # numpy's: C contiguous, aligned, writeable


class Target(NamedTuple):
    """A kind of CPU that object code is made for, by LLVM's names."""

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...]  # the code may use all of them, so a CPU must have them

    @property
    def file_name(self) -> str:
        """Return the name of its file."""
        return f"{self.name}.kip33"


_X86_64_V3: Final = (
    *("cx16", "sahf", "popcnt", "sse3", "ssse3", "sse4.1", "sse4.2"),
    *("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"),
    *("crc32", "pclmul"),  # not required by the level, but its CPUs have them
)
_X86_64_V4: Final = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "vpclmulqdq")
CPU_TARGETS: Final = (
    Target("x86-64-v4", "x86_64-unknown-linux-gnu", "x86-64-v4", _X86_64_V3 + _X86_64_V4),
    Target("x86-64-v3", "x86_64-unknown-linux-gnu", "x86-64-v3", _X86_64_V3),
    Target("aarch64", "aarch64-unknown-linux-gnu", "generic", ("neon", "crc")),
)
"""The fastest first. An x86-64-v4 CPU without `vpclmulqdq` (before 2019) uses the code for v3."""


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


INTEGER: Final = "integer"  # an int or a bool
NOTHING: Final = "nothing"  # None


class ObjectCode(NamedTuple):
    """What one file holds."""

    target: str
    kernels: Mapping[str, Signature]  # by name, see `name_of`
    sources: tuple[str, ...]  # the modules whose text it was made of
    sources_digest: str
    made_by: str  # versions of numba and LLVM, for a reader
    elf: bytes

    def to_bytes(self) -> bytes:
        """Return the file."""
        header = self._asdict()
        del header["elf"]
        header["kernels"] = {name: _to_json(kernel) for name, kernel in self.kernels.items()}
        content = json.dumps(header).encode() + b"\n" + self.elf
        return MAGIC + hashlib.sha256(content).digest() + content

    @classmethod
    def from_bytes(cls, data: bytes) -> "ObjectCode":
        """Return what a file holds. Raises ValueError if it is damaged or of another version."""
        begin = len(MAGIC) + _DIGEST_BYTES
        if data[: len(MAGIC)] != MAGIC:
            raise ValueError(f"not object code of this version: expected {MAGIC!r} at its start")
        content = data[begin:]
        if hashlib.sha256(content).digest() != data[len(MAGIC) : begin]:
            raise ValueError("damaged object code: its bytes do not match its digest")
        line, _, elf = content.partition(b"\n")
        header = json.loads(line)
        kernels = {name: _from_json(kernel) for name, kernel in header.pop("kernels").items()}
        sources = tuple(header.pop("sources"))
        return cls(kernels=kernels, sources=sources, elf=elf, **header)

    @property
    def is_stale(self) -> bool:
        """Return whether the sources have changed since it was made."""
        return digest_of(self.sources) != self.sources_digest


def name_of(function: Any) -> str:
    """Return a kernel's name: of its function, with its module."""
    return f"{function.__module__}.{function.__qualname__}"


def digest_of(modules: Iterable[str]) -> str | None:
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


def _to_json(signature: Signature) -> list[Any]:
    arguments = [
        [np.lib.format.dtype_to_descr(argument.dtype), *argument[1:]]
        if isinstance(argument, ArrayArgument)
        else argument
        for argument in signature.arguments
    ]
    return [arguments, *signature[1:]]


def _from_json(signature: list[Any]) -> Signature:
    arguments = tuple(
        argument
        if isinstance(argument, str)
        else ArrayArgument(_dtype_of(argument[0]), *argument[1:])
        for argument in signature[0]
    )
    return Signature(arguments, *signature[1:])


def _dtype_of(description: Any) -> np.dtype[Any]:
    if isinstance(description, str):
        return np.dtype(description)
    return np.dtype([(name, form) for name, form in description])
