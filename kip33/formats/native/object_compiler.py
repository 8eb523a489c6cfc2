"""Makes object code: numba compiles the same functions for a CPU that may differ from this one.

numba compiles for one kind of CPU in each process. So use this module in a new process, and call
`prepare` before numba is imported.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from kip33.formats.native.object_code import (
    INTEGER,
    NOTHING,
    ArrayArgument,
    ObjectCode,
    Signature,
    Target,
    digest_of,
    name_of,
)

SOURCE_PACKAGES: Final = ("kip33.formats", "kip33.rules")
_BYTE, _INT32, _INT64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
# Byte offsets of a PyArrayObject's fields; the same in numpy 1 and 2.
_DATA, _DIMENSIONS, _STRIDES = 16, 32, 40
Samples = Mapping[Callable[..., Any], tuple[Any, ...]]


def prepare(target: Target) -> None:
    """Make this process compile for `target`. Raises RuntimeError if numba is imported already."""
    if "numba" in sys.modules:
        raise RuntimeError("numba is imported already: it compiles for this machine")
    os.environ["NUMBA_CPU_NAME"] = target.cpu
    os.environ["NUMBA_CPU_FEATURES"] = ",".join(f"+{name}" for name in target.features)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.get_process_triple = lambda: target.triple


def compile_objects(target: Target, samples: Samples) -> ObjectCode:
    """Return the object code of the functions, compiled for the types of the sample arguments.

    Make a sample array read-only if the function does not write to it: then calls may pass
    read-only arrays. Raises RuntimeError if the code would depend on this process or machine.
    """
    import numba

    module = llvm.parse_assembly(f'target triple = "{target.triple}"')
    signatures = {}
    for function, arguments in samples.items():
        signatures[name_of(function)] = _add_kernel(module, function, arguments)
    elf = _emit(module, target, set(signatures))
    modules = sorted(_sources(sys.modules))
    digest = digest_of(modules)
    if digest is None:
        raise RuntimeError("the sources of kip33 cannot be read: object code is made from them")
    made_by = f"numba {numba.__version__}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}"
    return ObjectCode(target.name, signatures, tuple(modules), digest, made_by, elf)


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
    """Return the entries of the module, and what they call, as an ELF file."""
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu,
        features=os.environ["NUMBA_CPU_FEATURES"],
        opt=3,
        reloc="static",
        codemodel="large",  # code, constants and what is called may be loaded anywhere
    )
    module.data_layout = str(machine.target_data)
    for value in [*module.functions, *module.global_variables]:
        if not value.is_declaration and value.name not in entries:
            value.linkage = "internal"
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    outside = {f.name for f in module.functions if f.is_declaration}
    outside |= {v.name for v in module.global_variables if v.is_declaration}
    if missing := sorted(name for name in outside if not name.startswith("llvm.")):
        raise RuntimeError(f"object code must need nothing outside, but needs {', '.join(missing)}")
    return bytes(machine.emit_object(module))
