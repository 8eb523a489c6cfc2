"""Makes the shared libraries: numba compiles, a linker links, for a CPU that may not be this one's.

numba compiles for one kind of CPU in each process. So use this module in a new process, and call
`prepare` before numba is imported. The code is position-independent and needs nothing outside.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from kip33.formats.native.library import (
    INTEGER,
    NOTHING,
    ArrayArgument,
    Signature,
    Target,
    digest_of,
    name_of,
    sources_digest_of,
)

SOURCE_PACKAGES: Final = ("kip33.formats", "kip33.rules")
_BYTE, _INT32, _INT64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
# Byte offsets of a PyArrayObject's fields; the same in numpy 1 and 2.
_DATA, _DIMENSIONS, _STRIDES = 16, 32, 40
Samples = Mapping[Callable[..., Any], tuple[Any, ...]]


_LINKED: Final = (
    *("-shared", "-Bsymbolic", "--strip-all", "--build-id=none", "--no-undefined"),
    *("-z", "noexecstack", "-z", "text", "-z", "relro", "-z", "now"),
)


def linker_of(target: Target) -> str:
    """Return a linker for a target. Raises RuntimeError, one line, without one."""
    names = [f"{target.machine}-linux-gnu-ld", "ld.lld"]
    if target.machine == os.uname().machine:
        names.append("ld")
    for name in names:
        if path := shutil.which(name):
            return path
    raise RuntimeError(
        f"no linker for {target.machine}: {', '.join(names)} are not there "
        f"(Debian: apt-get install binutils-{target.machine.replace('_', '-')}-linux-gnu)"
    )


def prepare(target: Target) -> None:
    """Make this process compile for `target`. Raises RuntimeError if numba is imported already."""
    if "numba" in sys.modules:
        raise RuntimeError("numba is imported already: it compiles for this machine")
    os.environ.pop("NUMBA_DISABLE_JIT", None)
    os.environ["NUMBA_CPU_NAME"] = target.cpu
    os.environ["NUMBA_CPU_FEATURES"] = ",".join(f"+{name}" for name in target.features)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.get_process_triple = lambda: _triple(target)


def make(target: Target, samples: Samples, folder: Path) -> None:
    """Write the library of the functions, compiled for the types of the sample arguments.

    Make a sample array read-only if the function does not write to it: then calls may pass
    read-only arrays. Raises RuntimeError if the code would depend on this process or machine.
    """
    import numba

    linker = linker_of(target)
    module = llvm.parse_assembly(f'target triple = "{_triple(target)}"')
    signatures = {}
    for function, arguments in samples.items():
        signatures[name_of(function)] = _add_kernel(module, function, arguments)
    code = _linked(linker, _emit(module, target, set(signatures)))
    modules = sorted(_sources(sys.modules))
    digest = sources_digest_of(modules)
    if digest is None:
        raise RuntimeError("the sources of kip33 cannot be read: a library is made from them")
    description = {
        "kernels": {name: signature.to_json() for name, signature in signatures.items()},
        "sources": modules,
        "sources_digest": digest,
        "made_by": f"numba {numba.__version__}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}",
    }
    description["digest"] = digest_of(code, description)
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / f"{target.name}.so", code)
    _replace(folder / f"{target.name}.json", json.dumps(description).encode())


def _triple(target: Target) -> str:
    return f"{target.machine}-unknown-linux-gnu"


def _replace(path: Path, data: bytes) -> None:
    """Write a file that another process may have loaded: it keeps the file that it has."""
    new = path.with_suffix(f".{os.getpid()}")
    new.write_bytes(data)
    new.replace(path)


def _sources(modules: Iterable[str]) -> Iterable[str]:
    """Return every imported module of formats and rules: all that the code can be made of."""
    for name in modules:
        if name.startswith(tuple(f"{package}." for package in SOURCE_PACKAGES)):
            is_package = hasattr(sys.modules[name], "__path__")
            yield f"{name}.__init__" if is_package else name


def _add_kernel(module: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Signature:
    """Compile a function and link it, with an entry of its name, into the module."""
    import numba

    from kip33.formats.native import compiler

    compiler.let_call(function)
    dispatcher = compiler.dispatcher(function)
    typeof: Any = numba.typeof
    types = tuple(typeof(argument) for argument in arguments)
    dispatcher.compile(types)
    compiled = dispatcher.overloads[types]
    if compiled.library.has_dynamic_globals:
        raise RuntimeError(f"{name_of(function)} has addresses of this process in its code")
    entry, signature = _entry(compiled, function, arguments)
    module.link_in(llvm.parse_assembly(compiled.library.get_llvm_str()))
    module.link_in(llvm.parse_assembly(str(entry)))
    return signature


def _entry(
    compiled: Any, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[Any, Signature]:
    """Return a module with the entry of a compiled function, and what it takes and returns."""
    from numba.core import types

    context, described = compiled.target_context, compiled.fndesc
    module = context.create_module(f"entry.{described.llvm_func_name}")
    pointer = _BYTE.as_pointer()
    forms = [_INT64 if _kind(a) == INTEGER else pointer for a in arguments]
    entry = ir.Function(
        module,
        ir.FunctionType(_INT32, [*forms, _INT64.as_pointer()]),
        name_of(function),
    )
    builder = ir.IRBuilder(entry.append_basic_block())
    callee_type = context.call_conv.get_function_type(described.restype, described.argtypes)
    callee = ir.Function(module, callee_type, described.llvm_func_name)
    values = [
        _value(context, builder, form, given)
        for form, given in zip(described.argtypes, entry.args, strict=False)
    ]
    status, result = context.call_conv.call_function(
        builder, callee, described.restype, described.argtypes, values
    )
    returned = _numbers(context, builder, described.restype, result)
    for number, value in enumerate(returned):
        builder.store(value, builder.gep(entry.args[-1], [_INT32(number)]))
    builder.ret(builder.zext(status.is_error, _INT32))
    is_none = described.restype == types.none
    signature = Signature(
        tuple(map(_kind, arguments)),
        None if is_none else len(returned),
        isinstance(described.restype, types.BaseTuple),
    )
    return module, signature


def _kind(argument: Any) -> ArrayArgument | str:
    if isinstance(argument, np.ndarray):
        return ArrayArgument.of(argument)
    if argument is None:
        return NOTHING
    if isinstance(argument, int):
        return INTEGER
    raise TypeError(f"{argument!r}: a kernel takes arrays, integers and None")


def _value(context: Any, builder: Any, form: Any, given: Any) -> Any:
    """Emit numba's value of an argument of the entry."""
    from numba.core import types

    if isinstance(form, types.Array):
        return _array(context, builder, form, given)
    if form == types.none:
        return context.get_dummy_value()
    if form == types.boolean:
        return builder.icmp_unsigned("!=", given, _INT64(0))
    return context.cast(builder, given, types.int64, form)


def _array(context: Any, builder: Any, form: Any, given: Any) -> Any:
    """Emit numba's array of a `PyArrayObject`: its data, dimensions and strides."""
    from numba.np import arrayobj

    def field(at: int, pointee: Any) -> Any:
        place = builder.gep(given, [_INT32(at)])
        return builder.load(builder.bitcast(place, pointee.as_pointer().as_pointer()))

    def numbers(at: int) -> list[Any]:
        first = field(at, _INT64)
        return [builder.load(builder.gep(first, [_INT32(k)])) for k in range(form.ndim)]

    element = context.get_data_type(form.dtype)
    array_of: Any = arrayobj.make_array
    array = array_of(form)(context, builder)
    arrayobj.populate_array(  # type: ignore[no-untyped-call]
        array,
        data=field(_DATA, element),
        shape=numbers(_DIMENSIONS),
        strides=numbers(_STRIDES),
        itemsize=_INT64(np.dtype(_dtype(form)).itemsize),
        meminfo=None,
    )
    return array._getvalue()


def _dtype(form: Any) -> Any:
    from numba.np import numpy_support

    return numpy_support.as_dtype(form.dtype)


def _numbers(context: Any, builder: Any, form: Any, result: Any) -> list[Any]:
    """Emit what a function returned as int64s."""
    from numba.core import cgutils, types

    if form == types.none:
        return []
    is_tuple: bool = isinstance(form, types.BaseTuple)
    if not is_tuple:
        return [context.cast(builder, result, form, types.int64)]
    of = [*form]
    parts = cgutils.unpack_tuple(builder, result, len(of))  # type: ignore[no-untyped-call]
    return [context.cast(builder, parts[k], of[k], types.int64) for k in range(len(of))]


def _emit(module: Any, target: Target, entries: set[str]) -> bytes:
    """Return the entries of the module, and what they call, as an object file."""
    machine = llvm.Target.from_triple(_triple(target)).create_target_machine(
        cpu=target.cpu,
        features=os.environ["NUMBA_CPU_FEATURES"],
        opt=3,
        reloc="pic",
        codemodel="small",
    )
    module.data_layout = str(machine.target_data)
    for value in [*module.functions, *module.global_variables]:
        if not value.is_declaration and value.name not in entries:
            value.linkage = "internal"
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


def _linked(linker: str, code: bytes) -> bytes:
    """Return an object file as a shared library. Raises RuntimeError with the linker's words."""
    with tempfile.TemporaryDirectory(prefix="kip33-link-") as folder:
        source, linked = Path(folder) / "kernels.o", Path(folder) / "kernels.so"
        source.write_bytes(code)
        command = [linker, *_LINKED, "-o", str(linked), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{linker}: {' '.join(done.stderr.split())}")
        return linked.read_bytes()
