"""Object code gives what numba's and the plain form give; what cannot be trusted is not loaded."""

import ast
import hashlib
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
from typing import Any

import numpy as np
import pytest

from kip33.formats import crc, native
from kip33.formats.batch import BATCH
from kip33.formats.crc import with_crc32c
from kip33.formats.native import compiler, object_kernels
from kip33.formats.native.object_code import (
    CPU_TARGETS,
    INTEGER,
    MAGIC,
    NOTHING,
    ArrayArgument,
    ObjectCode,
    Signature,
    Target,
    digest_of,
    name_of,
)
from kip33.indexing.object_files import samples
from kip33.indexing.verification import verify_file
from kip33.rules.index_builder import IndexSettings
from kip33.rules.leader_epochs import refused_epoch
from kip33.stores.locations import Location
from tests.builders.generated_segments import random_segment, wire_of
from tests.builders.segment_builder import Record, v2_batch

ROOT = Path(__file__).parents[2]
SETTINGS = IndexSettings(index_interval_bytes=200)
BASE = 5
HERE = next((target for target in CPU_TARGETS if object_kernels.is_for_this_machine(target)), None)
ELF_MACHINES = {"x86_64": 62, "aarch64": 183}


def make(target: Target, folder: Path) -> Path:
    """Compile in a process of its own, as the command does."""
    command = [sys.executable, "-m", "kip33.indexing.object_files", folder, "--target", target.name]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder / target.file_name


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Object code of the sources as they are, for the machine that the test runs on."""
    if HERE is None:
        pytest.skip("there is no object code for this machine's CPU")
    return make(HERE, tmp_path_factory.mktemp("objects"))


@pytest.fixture(scope="module")
def loaded(made: Path) -> object_kernels.Loaded:
    found = load_from(made.parent)
    assert found is not None
    return found


def load_from(folder: Path | None) -> object_kernels.Loaded | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KIP33_OBJECT_CODE", "" if folder is None else str(folder))
        return object_kernels._loaded.__wrapped__()


@contextmanager
def only(there: object_kernels.Loaded | None) -> Iterator[None]:
    """Compiled code is object code and nothing else, or with None numba's and nothing else."""

    def refuse(function: Any) -> Any:
        raise AssertionError(f"{name_of(function)} is not called as object code")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_kernels, "_loaded", lambda: there)
        if there:
            patch.setattr(compiler, "compiled", refuse)
        forget()
        yield
    forget()


def forget() -> None:
    native.compiled.cache_clear()
    native.crc32c_tables.cache_clear()


def everything_about(log: Path, *, compiled: bool) -> tuple[Any, ...]:
    """Return the bytes of both indexes, what the rules saw, and the verdicts."""
    verdict, built = verify_file(
        Location.of(log),
        Location.of(log.with_suffix(".timeindex")),
        Location.of(log.with_suffix(".index")),
        base_offset=BASE,
        topic="orders",
        settings=SETTINGS,
        native=compiled,
    )
    transactions = built.transactions.to_json() if built.transactions else None
    bytes_of_both = (built.time_index_data, built.offset_index_data)
    seen = (built.status, built.error, built.valid_bytes, built.summary.tolist(), built.magics)
    return (*bytes_of_both, *seen, transactions, verdict)


def damaged(wire: bytes, random: Random) -> bytes:
    data = bytearray(wire)
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data[: random.randrange(len(data) // 2, len(data))])


def write_random_segments(folder: Path) -> Iterator[Path]:
    """Write logs of every kind, whole and damaged, with index files that are true or are not."""
    for seed in range(60):
        random = Random(seed)
        first_offset = BASE if seed % 8 else 0  # below the base offset Kafka loads none
        entries = random.randint(1, 90)
        wire = wire_of(random_segment(random, base_offset=first_offset, entries=entries))
        log = folder / f"{seed}.log"
        log.write_bytes(wire)
        built = everything_about(log, compiled=False)
        for suffix, index in zip((".timeindex", ".index"), built, strict=False):
            data = index or bytes(36)
            log.with_suffix(suffix).write_bytes(damaged(data, random) if seed % 4 else data)
        if seed % 3 == 0:
            log.write_bytes(damaged(wire, random))
        yield log


def write_many_transactions(folder: Path) -> Path:
    """Write a log of more open transactions than the rule's tables have room for at first."""
    producers = [*range(300), *range(0, 300, 7)]
    batches = [
        v2_batch(BASE + i, [Record(i, None, b"v")], transactional=True, producer_id=producer)
        for i, producer in enumerate(producers)
    ]
    log = folder / "transactions.log"
    log.write_bytes(b"".join(batches))
    return log


@pytest.mark.integration
def test_same_bytes_and_verdicts_as_numba_and_as_the_plain_form(
    loaded: object_kernels.Loaded, tmp_path: Path
) -> None:
    logs = [*write_random_segments(tmp_path), write_many_transactions(tmp_path)]
    plain = [everything_about(log, compiled=False) for log in logs]
    with only(loaded):
        assert [everything_about(log, compiled=True) for log in logs] == plain
    with only(None):
        assert [everything_about(log, compiled=True) for log in logs] == plain
    assert {found[2] for found in plain} >= {"ok", "truncated", "invalid"}


@pytest.mark.integration
def test_checksums_of_every_length_and_from_many_threads(loaded: object_kernels.Loaded) -> None:
    noise = np.frombuffer(Random(1).randbytes(70_000), np.uint8)
    lengths = [*range(300), 1023, 1024, 1025, 6143, 6144, 6145, 16_384, 70_000]
    kernel = loaded.kernel(with_crc32c)
    assert kernel is not None
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda length: kernel(0, noise[:length], None), lengths * 5))
    expected = [crc.crc32c(0, noise[:n].tobytes(), 0, n, None) for n in lengths]
    assert found == expected * 5


@pytest.mark.integration
def test_arguments_of_other_types_go_to_numba(loaded: object_kernels.Loaded) -> None:
    batches = np.zeros(6, BATCH)
    batches["leader_epoch"] = [1, 1, 3, 2, 5, 5]
    kernel = loaded.kernel(refused_epoch)
    assert kernel is not None
    assert kernel(batches, -1) == (-1, 5)
    assert kernel(batches[:4], np.int64(-1)) == (-1, 3)
    assert kernel(batches[:4:2], -1) == (-1, 3)  # strided
    frozen = batches.copy()
    frozen.flags.writeable = False
    assert kernel(frozen, -1) == (-1, 5)
    assert kernel(batches.astype(BATCH.newbyteorder("<")), -1) == (-1, 5)  # equal, another object


def test_every_rule_that_is_called_compiled_is_a_kernel() -> None:
    called = set()
    for path in (ROOT / "kip33").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                name = ast.unparse(node.args[0])
                if node.func.id in ("speed", "compiled") and name != "function":
                    called.add(
                        name.removeprefix("crc.")
                        .removeprefix("walk.")
                        .removeprefix("index_entries.")
                    )
    assert called == {function.__name__ for function in samples()}


# --- a machine that has never run kip33 -------------------------------------------------------

SCRIPT = """
import hashlib, json, sys
from pathlib import Path
from kip33.formats.native import object_kernels
from kip33.indexing.verification import verify_file
from kip33.rules.index_builder import IndexSettings
from kip33.stores.locations import Location

there = object_kernels.loaded()
answer = {"loaded": there and there.code.target, "from": object_kernels.__file__}
if len(sys.argv) > 1:
    log = Path(sys.argv[1])
    log, *indexes = (Location.of(log.with_suffix(s)) for s in (".log", ".timeindex", ".index"))
    _, built = verify_file(
        log, *indexes, base_offset=5, topic="orders",
        settings=IndexSettings(index_interval_bytes=200), native=True,
    )
    answer["indexes"] = [built.time_index_data.hex(), built.offset_index_data.hex()]
answer["numba"] = "numba" in sys.modules
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


@pytest.mark.integration
def test_a_fresh_machine_imports_no_numba(made: Path, tmp_path: Path) -> None:
    log = write_many_transactions(tmp_path)
    plain = everything_about(log, compiled=False)
    for suffix, index in zip((".timeindex", ".index"), plain, strict=False):
        log.with_suffix(suffix).write_bytes(index)
    found = in_fresh_process(tmp_path, log, KIP33_OBJECT_CODE=str(made.parent))
    assert (found["loaded"], found["numba"]) == (made.stem, False)
    assert found["indexes"] == [index.hex() for index in plain[:2]]


@pytest.mark.integration
def test_object_code_inside_a_zip_is_loaded_from_there(made: Path, tmp_path: Path) -> None:
    package = tmp_path / "kip33.zip"
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as out:
        for path in (ROOT / "kip33").rglob("*.py"):
            out.write(path, path.relative_to(ROOT))
        out.write(made, f"kip33/formats/native/{object_kernels.FOLDER}/{made.name}")
    found = in_fresh_process(tmp_path, package=package)
    assert found["from"].startswith(str(package))
    assert (found["loaded"], found["numba"]) == (made.stem, False)


@pytest.mark.integration
def test_changed_sources_make_it_stale(made: Path, tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "kip33", tmp_path / "kip33", ignore=shutil.ignore_patterns("__pycache__")
    )
    setting = {"KIP33_OBJECT_CODE": str(made.parent)}
    assert in_fresh_process(tmp_path, package=tmp_path, **setting)["loaded"] == made.stem
    rule = tmp_path / "kip33" / "rules" / "index_entries.py"
    rule.write_text(rule.read_text().replace("offset_count = 0", "offset_count = 00"))
    assert in_fresh_process(tmp_path, package=tmp_path, **setting)["loaded"] is None


# --- what is not loaded -----------------------------------------------------------------------


@pytest.mark.integration
def test_damaged_object_code_is_not_loaded(made: Path, tmp_path: Path) -> None:
    data = made.read_bytes()
    place = tmp_path / made.name
    random = Random(3)
    cuts = [data[:length] for length in (0, 1, len(MAGIC), 60, len(data) // 2, len(data) - 1)]
    flips = []
    for _ in range(40):
        flipped = bytearray(data)
        flipped[random.randrange(len(data))] ^= 1 << random.randrange(8)
        flips.append(bytes(flipped))
    for bad in (*cuts, *flips, data + b"\0"):
        place.write_bytes(bad)
        assert load_from(tmp_path) is None
    place.write_bytes(data)
    assert load_from(tmp_path) is not None


@pytest.mark.integration
def test_code_that_gives_a_wrong_known_answer_is_not_used(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crc, "crc32c", lambda *_: 0xBAD)
    assert load_from(made.parent) is None


@pytest.mark.integration
def test_a_cpu_without_what_the_code_uses_does_not_get_it(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_kernels.llvm, "get_host_cpu_features", dict)
    assert load_from(made.parent) is None


@pytest.mark.integration
@pytest.mark.parametrize("name", object_kernels.NUMBA_SETTINGS)
def test_settings_of_numba_are_for_numba(
    made: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    assert load_from(made.parent) is None


def elf_header(target: Target, *, form: int = 1, machine: int | None = None) -> bytes:
    """Return the start of an ELF file; by default of a relocatable one for the target."""
    found = ELF_MACHINES[target.triple.split("-")[0]] if machine is None else machine
    return b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HH", form, found) + bytes(44)


def write_object_code(folder: Path, **other: Any) -> None:
    """Write object code with a right digest, without any code; `other` replaces what it holds."""
    assert HERE is not None
    modules = ("kip33.formats.crc",)
    code = ObjectCode(
        HERE.name, {name_of(with_crc32c): CRC_KERNEL}, modules, digest_of(modules) or "", "test",
        elf_header(HERE),
    )._replace(**other)  # fmt: skip
    (folder / HERE.file_name).write_bytes(code.to_bytes())


CRC_KERNEL = Signature((INTEGER, ArrayArgument.of(np.zeros(1, np.uint8)), NOTHING), 1, False)


@pytest.mark.skipif(HERE is None, reason="there is no object code for this machine's CPU")
@pytest.mark.parametrize(
    "other",
    [
        {"elf": b""},
        {"elf": b"no ELF file at all".ljust(100)},
        {"elf": b"\x7fELF"},
        {"elf": elf_header(HERE or CPU_TARGETS[0], form=2)},
        {"elf": elf_header(HERE or CPU_TARGETS[0], machine=8)},
        {"kernels": {}},
        {"sources": (), "sources_digest": digest_of(())},
    ],
    ids=["empty", "text", "cut", "a program", "another CPU", "no kernels", "no sources"],
)
def test_object_code_that_llvm_may_not_survive_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]
) -> None:
    def load(code: ObjectCode) -> object_kernels.Loaded:
        raise AssertionError("it was given to LLVM")

    monkeypatch.setattr(object_kernels, "_load", load)
    write_object_code(tmp_path, **other)
    assert load_from(tmp_path) is None


@pytest.mark.skipif(HERE is None, reason="there is no object code for this machine's CPU")
@pytest.mark.parametrize("header", ["[]", "1", "{}", '{"kernels": {"a": []}}', '{"kernels": 1}'])
def test_object_code_with_another_header_is_not_loaded(tmp_path: Path, header: str) -> None:
    assert HERE is not None
    content = header.encode() + b"\n" + elf_header(HERE)
    digest = hashlib.sha256(content).digest()
    (tmp_path / HERE.file_name).write_bytes(MAGIC + digest + content)
    assert load_from(tmp_path) is None


@pytest.mark.skipif(HERE is None, reason="there is no object code for this machine's CPU")
def test_where_llvm_makes_no_engine_there_is_numba(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refuse(*_: object) -> None:
        asked.append(True)
        raise RuntimeError("no memory can be executed")

    monkeypatch.setattr(object_kernels.llvm, "create_mcjit_compiler", refuse)
    write_object_code(tmp_path)
    assert load_from(tmp_path) is None
    assert asked


def test_without_object_code_there_is_numba(tmp_path: Path) -> None:
    assert load_from(None) is None
    assert load_from(tmp_path) is None


@pytest.mark.integration
def test_what_a_file_says_of_itself(made: Path) -> None:
    code = ObjectCode.from_bytes(made.read_bytes())
    assert code.to_bytes() == made.read_bytes()
    assert set(code.kernels) == set(map(name_of, samples()))
    assert {"kip33.formats.walk", "kip33.formats.batch", "kip33.rules.transactions"} <= {
        *code.sources
    }
    assert not code.is_stale
    assert code._replace(sources=(*code.sources, "kip33.formats.missing")).is_stale


@pytest.mark.integration
@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda target: target.name)
def test_each_target_can_be_made_on_any_machine(target: Target, tmp_path: Path) -> None:
    """Not run here unless it is this machine's: that it is a relocatable file of that CPU."""
    code = ObjectCode.from_bytes(make(target, tmp_path).read_bytes())
    assert code.elf[:4] == b"\x7fELF"
    file_type, machine = struct.unpack_from("<HH", code.elf, 16)
    relocatable = 1
    assert (file_type, machine) == (relocatable, ELF_MACHINES[target.triple.split("-")[0]])
    assert set(code.kernels) == set(map(name_of, samples()))
