"""What is compiled: the CPU's own CRC-32C step on either architecture, and where it is not used."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from kip33.formats.native import compiler, cpu
from kip33.formats.native import forms as native_forms
from tests.cases import each_case

WIDE = "+avx512f,+avx512bw,+vpclmulqdq"
WIDTHS = {"long": ir.IntType(64), "byte": ir.IntType(8)}


def assembly_of_one_step(triple: str, features: str, data: ir.Type) -> str:
    """Return the assembly of a function that is one CRC step, built for `triple`."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = ir.Module()
    module.triple = triple
    word = ir.IntType(64)
    function = ir.Function(module, ir.FunctionType(word, [word, data]), "step")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(native_forms.emit_crc_step(builder, triple.split("-")[0], *function.args))
    machine = llvm.Target.from_triple(triple).create_target_machine(features=features)
    return machine.emit_assembly(llvm.parse_assembly(str(module)))


@each_case(
    ("triple", "features", "width", "instruction"),
    [
        ("aarch64-linux-gnu", "+crc", "long", "crc32cx"),
        ("aarch64-linux-gnu", "+crc", "byte", "crc32cb"),
        ("arm64-apple-macosx", "+crc", "long", "crc32cx"),
        ("x86_64-linux-gnu", "+crc32", "long", "crc32q"),
        ("x86_64-linux-gnu", "+crc32", "byte", "crc32b"),
    ],
)
def test_one_step_is_one_instruction(
    triple: str, features: str, width: str, instruction: str
) -> None:
    assembly = assembly_of_one_step(triple, features, WIDTHS[width])
    words = assembly.split()
    assert words.count(instruction) == 1, assembly
    assert sum(word.startswith("crc32") for word in words) == 1, assembly


def test_an_architecture_without_the_instruction_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="riscv64"):
        assembly_of_one_step("riscv64-linux-gnu", "", WIDTHS["long"])


@pytest.mark.parametrize(
    ("features", "has"),
    [
        pytest.param(f"+sse4.2,+crc32,+pclmul,{WIDE}", {"crc", "16", "64"}, id="x86-64 of 2021"),
        pytest.param("+sse4.2,+crc32,+pclmul,+avx,-avx512f", {"crc", "16"}, id="x86-64 of 2013"),
        pytest.param("+neon,+aes,+crc", {"crc"}, id="aarch64"),
        pytest.param("+sse2,-sse4.2,-crc32,-pclmul", set(), id="x86-64 of before 2008"),
        pytest.param("+sse2,+sse4.2", set(), id="LLVM ends the process without a name"),
        pytest.param("+vpclmulqdq,+avx2", set(), id="lanes of 32 bytes are not used"),
        pytest.param("", set(), id="none"),
    ],
)
def test_the_cpu_is_asked_by_the_names_of_its_features(
    monkeypatch: pytest.MonkeyPatch, features: str, has: set[str]
) -> None:
    monkeypatch.setattr(compiler.config, "CPU_FEATURES", features)
    asked = {
        "crc": cpu.has_crc32c(),
        "16": cpu.has_carryless_multiplication(),
        "64": cpu.has_wide_multiplication(),
    }
    assert {what for what, there in asked.items() if there} == has


def test_a_wrong_known_answer_takes_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "compiled", lambda function: lambda *_: 0xBAD)
    assert compiler.crc32c_tables.__wrapped__() is native_forms.CRC32C_TABLES


def test_the_cache_goes_to_a_temporary_folder_where_nothing_else_is_writable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compiler.config, "CACHE_DIR", "")
    monkeypatch.setattr(compiler.os, "access", lambda place, mode: False)
    monkeypatch.setattr(compiler.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = compiler.cache_folder({"kip33.formats.walk"})
    assert str(folder).startswith(str(tmp_path / "kip33-numba-"))


@pytest.mark.parametrize("unset", ["", "relative/cache", None])
def test_a_cache_home_that_is_not_absolute_is_the_one_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unset: str | None
) -> None:
    """An empty one would be the folder that a command runs in."""
    (tmp_path / "relative/cache").mkdir(parents=True)
    (tmp_path / "home/.cache").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compiler.config, "CACHE_DIR", "")
    monkeypatch.setattr(
        compiler.os, "access", lambda place, mode: not str(place).endswith("__pycache__")
    )
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    if unset is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
    folder = compiler.cache_folder({"kip33.formats.walk"})
    assert folder.parent == tmp_path / "home/.cache"


def test_a_cache_folder_that_was_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.config, "CACHE_DIR", "/elsewhere")
    assert compiler.cache_folder({"kip33.formats.walk"}).parent == Path("/elsewhere")


def test_other_sources_and_other_cpus_have_a_cache_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = compiler.cache_folder({"kip33.formats.walk"})
    assert compiler.cache_folder({"kip33.formats.walk"}) == here
    assert compiler.cache_folder({"kip33.formats.walk", "kip33.formats.crc"}) != here
    monkeypatch.setattr(compiler.config, "CPU_FEATURES", "+sse2")
    assert compiler.cache_folder({"kip33.formats.walk"}) != here


def test_threads_that_compile_at_once_all_use_the_cache_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """numba asks one setting of the process where to; without one it writes where one stands."""
    seen: list[str] = []

    def njit(**_: object) -> Callable[[Any], Any]:
        def wrap(function: Any) -> Any:
            time.sleep(0.02)  # another thread's turn
            seen.append(compiler.config.CACHE_DIR)
            return function

        return wrap

    def function_of(number: int) -> Callable[[], int]:
        return lambda: number

    before = compiler.config.CACHE_DIR
    monkeypatch.setattr(compiler.numba, "njit", njit)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(compiler.compiled, map(function_of, range(8))))
    assert len(seen) == 8
    assert all("kip33-" in folder for folder in seen)
    assert before == compiler.config.CACHE_DIR
