"""The library gives what numba and the plain form give; what cannot be trusted is not loaded."""

import ast
import json
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from kip33.formats import crc, native
from kip33.formats.batch import BATCH
from kip33.formats.crc import with_crc32c
from kip33.formats.native import library, maker
from kip33.formats.native.library import CPU_TARGETS, Target, digest_of, name_of
from kip33.indexing import kernels
from kip33.indexing.kernels import samples
from kip33.rules.leader_epochs import refused_epoch
from tests.builders.logs_to_verify import random_logs, with_many_transactions
from tests.builders.verified_log import everything_about
from tests.cases import each_case
from tests.sources import nodes_of

ROOT = Path(__file__).parents[2]
HERE = next((target for target in CPU_TARGETS if target.is_here), None)
ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
PACKAGED = Path(library.__file__).with_name(library.FOLDER)


def make(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "kip33.indexing.kernels", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def made() -> Path:
    """The package's library for this machine, of the sources as they are: as `make venv` does."""
    if HERE is None:
        pytest.skip("there is no library for this machine's CPU")
    done = make("--target", "here")
    if "no linker" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return PACKAGED / f"{HERE.name}.so"


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    """A copy of that library and its description, to be damaged."""
    shutil.copy(made.with_suffix(".json"), tmp_path)
    return Path(shutil.copy(made, tmp_path))


@pytest.fixture(scope="module")
def loaded(made: Path) -> library.Library:
    found = load_from(made.parent)
    assert found is not None
    return found


def load_from(folder: Path | None) -> library.Library | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KIP33_KERNELS", "" if folder is None else str(folder))
        return library.loaded.__wrapped__()


def describe(path: Path, **other: Any) -> None:
    """Change a library's description, with a right digest."""
    place = path.with_suffix(".json")
    description = json.loads(place.read_text()) | other
    description["digest"] = digest_of(path.read_bytes(), description)
    place.write_text(json.dumps(description))


@contextmanager
def only(there: library.Library | None, *, numba: bool = True) -> Iterator[None]:
    """Compiled code is the library's and nothing else; with None, numba's, or the plain one."""

    def refuse(function: Any) -> Any:
        raise AssertionError(f"{name_of(function)} is not called in the library")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "loaded", lambda: there)
        if there:
            patch.setattr(native, "_by_numba", refuse)
        if not numba:
            patch.setattr(native, "_compiler", lambda: None)
        forget()
        yield
    forget()


def forget() -> None:
    native.compiled.cache_clear()
    native.crc32c_tables.cache_clear()


@pytest.mark.slow
def test_same_bytes_and_verdicts_as_numba_and_as_the_plain_form(
    loaded: library.Library, tmp_path: Path
) -> None:
    logs = [*random_logs(tmp_path, seeds=range(16)), with_many_transactions(tmp_path)]
    plain = [everything_about(log, compiled=False) for log in logs]
    with only(loaded):
        assert [everything_about(log, compiled=True) for log in logs] == plain
    for numba in (True, False):
        with only(None, numba=numba):
            assert [everything_about(log, compiled=True) for log in logs] == plain
    assert {found[2] for found in plain} >= {"ok", "truncated", "invalid"}


def test_checksums_of_every_length_and_from_many_threads(loaded: library.Library) -> None:
    noise = np.frombuffer(Random(1).randbytes(70_000), np.uint8)
    lengths = [*range(300), 1023, 1024, 1025, 6143, 6144, 6145, 16_384, 70_000]
    kernel = library.Kernel(with_crc32c, loaded, native._by_numba)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda length: kernel(0, noise[:length], None), lengths * 5))
    expected = [crc.crc32c(0, noise[:n].tobytes(), 0, n, None) for n in lengths]
    assert found == expected * 5


@each_case("otherwise", [native._by_numba, native.plain])
def test_arguments_of_other_types_go_elsewhere(loaded: library.Library, otherwise: Any) -> None:
    batches = np.zeros(6, BATCH)
    batches["leader_epoch"] = [1, 1, 3, 2, 5, 5]
    kernel = library.Kernel(refused_epoch, loaded, otherwise)
    assert kernel(batches, -1) == (-1, 5)
    assert kernel(batches[:4], np.int64(-1)) == (-1, 3)
    assert kernel(batches[:4:2], -1) == (-1, 3)  # strided
    frozen = batches.copy()
    frozen.flags.writeable = False
    assert kernel(frozen, -1) == (-1, 5)
    assert kernel(batches.astype(BATCH.newbyteorder("<")), -1) == (-1, 5)  # equal, another object


def test_every_rule_that_is_called_compiled_is_a_kernel() -> None:
    called = {
        ast.unparse(node.args[0]).rpartition(".")[2]
        for path in (ROOT / "kip33").rglob("*.py")
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args
        if node.func.id in ("speed", "compiled")
    }
    assert called - {"function"} == {function.__name__ for function in samples()}


# --- a machine that has never run kip33 -------------------------------------------------------

SCRIPT = """
import json, sys
from pathlib import Path
from kip33.formats import native
from kip33.indexing.verification import verify_file
from kip33.rules.index_builder import IndexSettings
from kip33.stores.locations import Location

answer = {"how": native.how(), "from": native.__file__}
if len(sys.argv) > 1:
    log = Path(sys.argv[1])
    log, *indexes = (Location.of(log.with_suffix(s)) for s in (".log", ".timeindex", ".index"))
    _, built = verify_file(
        log, *indexes, base_offset=5, topic="orders",
        settings=IndexSettings(index_interval_bytes=200), native=True,
    )
    answer["indexes"] = [built.time_index_data.hex(), built.offset_index_data.hex()]
answer["imported"] = sorted({"numba", "llvmlite"} & {*sys.modules})
print(json.dumps(answer))
"""


def in_fresh_process(
    tmp_path: Path, *arguments: Path, package: Path = ROOT, **environment: str
) -> dict[str, Any]:
    """Run the script with empty caches and this package."""
    caches = {name: str(tmp_path / "empty") for name in ("HOME", "XDG_CACHE_HOME")}
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        env={**os.environ, **caches, "PYTHONPATH": str(package), **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(found.stdout)
    return answer


def shared(made: Path) -> str:
    return f"shared library {made.stem}"


BROKEN = "raise OSError('libllvmlite.so: file too short')"


@pytest.mark.slow
def test_the_library_needs_no_numba_and_without_both_the_plain_code_runs(
    made: Path, tmp_path: Path
) -> None:
    log = with_many_transactions(tmp_path)
    plain = everything_about(log, compiled=False)
    for suffix, index in zip((".timeindex", ".index"), plain, strict=False):
        log.path.with_suffix(suffix).write_bytes(index)
    for name, fault in {"numba": "raise ImportError('no')", "llvmlite": BROKEN}.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}.py").write_text(fault)
        for kernels_from, how in {str(made.parent): shared(made), "": native.PLAIN}.items():
            setting = {"KIP33_KERNELS": kernels_from, "PYTHONPATH": f"{folder}:{ROOT}"}
            found = in_fresh_process(tmp_path, log.path, **setting)
            assert found["how"] == how, name
            assert not kernels_from or found["imported"] == []
            assert found["indexes"] == [index.hex() for index in plain[:2]]


@pytest.mark.slow
def test_a_library_inside_a_zip_is_loaded_from_there(made: Path, tmp_path: Path) -> None:
    package = tmp_path / "kip33.zip"
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as out:
        for path in (ROOT / "kip33").rglob("*.py"):
            out.write(path, path.relative_to(ROOT))
        for path in (made, made.with_suffix(".json")):
            out.write(path, path.relative_to(ROOT))
    found = in_fresh_process(tmp_path, package=package)
    assert found["from"].startswith(str(package))
    assert (found["how"], found["imported"]) == (shared(made), [])


@pytest.mark.slow
def test_changed_sources_make_it_stale(made: Path, tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "kip33", tmp_path / "kip33", ignore=shutil.ignore_patterns("__pycache__", "kernels")
    )
    setting = {"KIP33_KERNELS": str(made.parent)}
    assert in_fresh_process(tmp_path, package=tmp_path, **setting)["how"] == shared(made)
    rule = tmp_path / "kip33" / "rules" / "index_entries.py"
    rule.write_text(rule.read_text().replace("offset_count = 0", "offset_count = 00"))
    assert in_fresh_process(tmp_path, package=tmp_path, **setting)["how"] == "compiled by numba"


# --- what is not loaded -----------------------------------------------------------------------


@pytest.fixture
def unopened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be loaded: the checks before it are what refuses."""

    def opened(path: Path, code: bytes) -> None:
        raise AssertionError("it was loaded")

    monkeypatch.setattr(library, "_opened", opened)


@each_case("suffix", [".so", ".json"])
def test_a_damaged_library_is_not_loaded(copied: Path, unopened: None, suffix: str) -> None:
    place = copied.with_suffix(suffix)
    data = place.read_bytes()
    random = Random(3)
    cuts = [data[:length] for length in (0, 1, 60, len(data) // 2, len(data) - 1)]
    flips = []
    for _ in range(40):
        flipped = bytearray(data)
        flipped[random.randrange(len(data))] ^= 1 << random.randrange(8)
        flips.append(bytes(flipped))
    for bad in (*cuts, *flips, data + b"\1"):
        place.write_bytes(bad)
        assert load_from(copied.parent) is None


def test_what_is_described_otherwise_is_not_loaded(copied: Path, unopened: None) -> None:
    """With other sources than these, or none; with no description."""
    for sources in ([], ["kip33.formats.missing"], ["kip33.formats.crc"]):
        describe(copied, sources=sources)
        assert load_from(copied.parent) is None, sources
    for header in ("[]", "1", "{}", '{"kernels": {"a": []}}', "\x00"):
        copied.with_suffix(".json").write_text(header)
        assert load_from(copied.parent) is None, header


def test_without_the_kernels_or_if_the_system_refuses_it_none_is_loaded(copied: Path) -> None:
    for kernels_there in ({}, {"kip33.formats.crc.with_crc32c": []}):
        describe(copied, kernels=kernels_there)
        assert load_from(copied.parent) is None, kernels_there
    for code in (b"", b"no ELF file at all".ljust(100), b"\x7fELF"):
        copied.write_bytes(code)
        describe(copied)
        assert load_from(copied.parent) is None, code


def test_code_that_gives_a_wrong_known_answer_is_not_used(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crc, "crc32c", lambda *_: 0xBAD)
    assert load_from(made.parent) is None


def test_a_cpu_without_what_the_code_uses_does_not_get_it(
    made: Path, unopened: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "_features", lambda target: {*target.features[:-1]})
    assert load_from(made.parent) is None


@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda target: target.name)
def test_another_machine_and_another_system_have_none(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "_features", lambda target: {*target.features})
    for machine, is_there in ((target.machine, True), ("riscv64", False)):
        monkeypatch.setattr(library.os, "uname", lambda name=machine: SimpleNamespace(machine=name))
        assert target.is_here is is_there
    monkeypatch.setattr(library.os, "uname", lambda: SimpleNamespace(machine=target.machine))
    monkeypatch.setattr(library.sys, "platform", "darwin")
    assert not target.is_here


def test_linux_and_llvm_agree_on_this_cpu() -> None:
    has = llvm.get_host_cpu_features()
    for target in CPU_TARGETS:
        if target.machine == os.uname().machine:
            assert library._features(target) == {name for name in target.features if has.get(name)}


def test_a_system_that_shows_no_cpu_has_no_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(library, "Path", lambda _: tmp_path / "absent")
    assert library._features(CPU_TARGETS[0]) == set()


def test_a_file_that_may_not_be_executed_is_loaded_from_memory(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def open_it(name: str) -> Any:
        opened.append(name)
        if not name.startswith("/proc/self/fd/"):
            raise OSError("failed to map segment from shared object")
        return library.ctypes.PyDLL(name)

    monkeypatch.setattr(library.ctypes, "CDLL", open_it)
    assert load_from(copied.parent) is not None
    assert len(opened) == 2


def test_without_a_library_there_is_none(tmp_path: Path) -> None:
    assert load_from(None) is None
    assert load_from(tmp_path) is None


# --- how it is made ---------------------------------------------------------------------------


def dynamic_section(elf: bytes) -> tuple[list[tuple[int, int]], list[bytes]]:
    """Return the tags and values of an ELF file's dynamic section, and its undefined symbols."""
    (start,) = struct.unpack_from("<Q", elf, 32)
    size, count = struct.unpack_from("<HH", elf, 54)
    segments = [struct.unpack_from("<IIQQQQ", elf, start + i * size) for i in range(count)]
    [(at, length)] = [(part[2], part[5]) for part in segments if part[0] == 2]  # PT_DYNAMIC
    tags = [struct.unpack_from("<QQ", elf, at + i) for i in range(0, length, 16)]
    known = dict(tags)
    symbols, names = known[6], known[5]  # DT_SYMTAB, DT_STRTAB: in the first segment, at 0
    undefined = [
        elf[names + name : elf.index(b"\0", names + name)]
        for at in range(symbols + 24, names, 24)
        for name, _, _, section in [struct.unpack_from("<IBBH", elf, at)]
        if section == 0
    ]
    return tags, undefined


@pytest.mark.integration
@each_case("target", CPU_TARGETS)
def test_each_target_can_be_made_on_any_machine(target: Target, tmp_path: Path) -> None:
    """Not run here unless it is this machine's: that it is complete, and needs nothing."""
    done = make(tmp_path, "--target", target.name)
    if "no linker" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert kernels.is_made(target, tmp_path)
    elf = (tmp_path / f"{target.name}.so").read_bytes()
    assert elf[:4] == b"\x7fELF"
    shared_object = 3
    assert struct.unpack_from("<HH", elf, 16) == (shared_object, ELF_MACHINES[target.machine])
    tags, undefined = dynamic_section(elf)
    needed, text_relocations, flags = 1, 22, 30
    assert not {needed, text_relocations} & {tag for tag, _ in tags}
    assert not any(value & 4 for tag, value in tags if tag == flags)  # DF_TEXTREL
    assert undefined == []
    for name in map(name_of, samples()):
        assert name.encode() in elf


def test_a_library_of_these_sources_is_not_made_again(copied: Path) -> None:
    """In a folder of its own: another process may make that of the package at the same time."""
    before = copied.stat().st_mtime_ns
    done = make(copied.parent, "--target", "here")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert copied.stat().st_mtime_ns == before


def test_a_missing_linker_is_one_line(tmp_path: Path) -> None:
    done = make(tmp_path, "--target", "aarch64", PATH=str(tmp_path))
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "apt-get install binutils-aarch64-linux-gnu" in line


def test_a_linker_that_fails_is_one_line(tmp_path: Path) -> None:
    linker = tmp_path / "ld"
    linker.write_text("#!/bin/sh\necho 'undefined reference' >&2\nexit 1\n")
    linker.chmod(0o755)
    with pytest.raises(RuntimeError, match=r"ld: undefined reference$"):
        maker._linked(str(linker), b"")
