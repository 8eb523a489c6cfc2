"""Both checksums: known answers, any cutting, and the same number by every way of computing it."""

import ctypes
import json
import mmap
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random

import numba
import numpy as np
import numpy.typing as npt
import pytest

from kip33.formats import crc
from kip33.formats.native import compiler, cpu
from kip33.formats.native import forms as native_forms
from tests.builders import segment_builder
from tests.cases import each_case

ROOT = Path(__file__).parents[2]
PROT_NONE = 0  # of mprotect(2)
NOISE = np.frombuffer(Random(33).randbytes(40_000), np.uint8)
TABLES = native_forms.CRC32C_TABLES
RFC_3720 = {
    "nothing": (b"", 0x00000000),
    "the catalogue's check value": (b"123456789", 0xE3069283),
    "32 zero bytes": (bytes(32), 0x8A9136AA),
    "32 bytes of ones": (b"\xff" * 32, 0x62A8AB43),
    "32 ascending bytes": (bytes(range(32)), 0x46DD794E),
    "32 descending bytes": (bytes(range(31, -1, -1)), 0x113FDB5C),
}
has_instruction = pytest.mark.skipif(
    compiler.crc32c_tables() is not None, reason="this CPU has no CRC-32C instruction"
)


has_multiplication = pytest.mark.skipif(
    not cpu.has_carryless_multiplication(), reason="this CPU has no pclmulqdq"
)
has_wide_multiplication = pytest.mark.skipif(
    not cpu.has_wide_multiplication(), reason="this CPU has no vpclmulqdq"
)
# What folds, whatever of it is chosen here: the plain form, the compiled one, its tables.
FOLDING = [
    pytest.param(
        *(crc.crc32, native_forms.crc32_by_folding, (native_forms.CRC32_TABLES,)),
        marks=has_multiplication,
        id="CRC-32, 16 bytes",
    ),
    pytest.param(
        *(crc.crc32, native_forms.crc32_by_wide_folding, (native_forms.CRC32_TABLES,)),
        marks=has_wide_multiplication,
        id="CRC-32, 64 bytes",
    ),
    pytest.param(
        *(partial(crc.crc32c, tables=None), native_forms.crc32c_by_wide_folding, ()),
        marks=has_wide_multiplication,
        id="CRC-32C, 64 bytes",
    ),
]


def crc32_between(value: int, data: npt.NDArray[np.uint8], start: int, stop: int) -> int:
    return crc.crc32(value, data, start, stop)


def crc32c_between(
    value: int,
    data: npt.NDArray[np.uint8],
    start: int,
    stop: int,
    tables: npt.NDArray[np.uint32] | None,
) -> int:
    return crc.crc32c(value, data, start, stop, tables)


def lengths_around_the_borders() -> list[int]:
    """One byte, one word, one round of three streams, long, short, both: and a byte off each."""
    long, short = 3 * native_forms.LONG_BYTES, 3 * native_forms.SHORT_BYTES
    borders = [1, 8, 16, short, 2 * short, long, long + short, 2 * long, 2 * long + short + 8]
    return sorted({0, *(border + by for border in borders for by in (-1, 0, 1, 7))})


@each_case(("data", "expected"), RFC_3720)
@pytest.mark.parametrize(
    "tables", [pytest.param(None, marks=has_instruction, id="instruction"), TABLES]
)
def test_crc32c_known_answers(
    data: bytes, expected: int, tables: npt.NDArray[np.uint32] | None
) -> None:
    array = np.frombuffer(data, np.uint8)
    assert crc.crc32c(0, data, 0, len(data), None) == expected
    assert compiler.compiled(crc.with_crc32c)(0, array, tables) == expected


def test_crc32_is_that_of_zlib() -> None:
    assert crc.crc32(0, b"123456789", 0, 9) == 0xCBF43926
    compiled = compiler.compiled(crc32_between)
    for length in lengths_around_the_borders():
        expected = zlib.crc32(NOISE[:length].tobytes())
        assert crc.crc32(0, NOISE.tobytes(), 0, length) == expected
        assert compiled(0, NOISE, 0, length) == expected, length


@each_case("length", lengths_around_the_borders())
def test_crc32c_plain_by_instruction_and_by_tables(length: int) -> None:
    data = NOISE[:length]
    expected = segment_builder.crc32c(data.tobytes())
    assert crc.crc32c(0, data.tobytes(), 0, length, None) == expected
    assert compiler.compiled(crc.with_crc32c)(0, data, TABLES) == expected
    if compiler.crc32c_tables() is None:
        assert compiler.compiled(crc.with_crc32c)(0, data, None) == expected


@each_case("seed", range(20))
def test_pieces_in_any_cutting_equal_the_whole(seed: int) -> None:
    random = Random(seed)
    start, stop = sorted(random.choices(range(len(NOISE)), k=2))
    cuts = [start, *sorted(random.choices(range(start, stop + 1), k=random.randrange(9))), stop]
    data = NOISE.tobytes()
    all_tables = [TABLES, compiler.crc32c_tables()]
    plain32 = plain32c = 0
    fast32, fast32c = 0, [0, 0]
    for begin, end in pairwise(cuts):
        plain32 = crc.crc32(plain32, data, begin, end)
        plain32c = crc.crc32c(plain32c, data, begin, end, None)
        fast32 = compiler.compiled(crc32_between)(fast32, NOISE, begin, end)
        fast32c = [
            compiler.compiled(crc32c_between)(value, NOISE, begin, end, tables)
            for value, tables in zip(fast32c, all_tables, strict=True)
        ]
    assert {plain32, fast32} == {zlib.crc32(data[start:stop])}
    assert {plain32c, *fast32c} == {segment_builder.crc32c(data[start:stop])}


@pytest.mark.slow
@pytest.mark.parametrize(("plain", "form", "tables"), FOLDING)
def test_folding_gives_the_crc_of_every_length_from_any_register(
    plain: Callable[..., int], form: Callable[..., int], tables: tuple[npt.NDArray[np.uint32], ...]
) -> None:
    """Up to where rounds of four lanes begin, and some: each end, front and number of lanes."""
    random, data = Random(512), NOISE.tobytes()
    folded = numba.njit(form)
    for length in [*range(1024 + 2 * 64 + 2), *random.choices(range(2000, 30_000), k=60)]:
        start, register = random.randrange(5000), random.choice([0, random.getrandbits(32)])
        stop = start + length
        expected = plain(register, data, start, stop)
        assert folded(register, NOISE, start, stop, *tables) == expected, (start, length)


@has_wide_multiplication
def test_no_byte_before_the_first_is_read() -> None:
    """The first lane begins before it: here on a page that ends a process which reads it."""
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    first_page = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    data = np.frombuffer(pages, np.uint8, offset=mmap.PAGESIZE)
    data[:] = NOISE[: len(data)]
    assert libc.mprotect(first_page, mmap.PAGESIZE, PROT_NONE) == 0
    try:
        folded = numba.njit(native_forms.crc32c_by_wide_folding)
        for length in (65, 100, 127):
            assert folded(0, data, 0, length) == segment_builder.crc32c(data[:length].tobytes())
    finally:
        libc.mprotect(first_page, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)


@each_case("polynomial", [crc.CRC32_POLYNOMIAL, crc.CRC32C_POLYNOMIAL])
@each_case("zero_bytes", [1, 8, native_forms.SHORT_BYTES, native_forms.LONG_BYTES])
def test_a_register_is_carried_over_zeros(polynomial: int, zero_bytes: int) -> None:
    tables = crc.zero_shift_tables(polynomial, zero_bytes)
    step = crc.slicing_tables(polynomial, 1)[0]
    for register in (0, 1, 0x80000000, 0xDEADBEEF, 0xFFFFFFFF):
        carried = register
        for _ in range(zero_bytes):
            carried = int(step[carried & 0xFF]) ^ carried >> 8
        by_table = [int(tables[3 - k][register >> 8 * k & 0xFF]) for k in range(4)]
        assert by_table[0] ^ by_table[1] ^ by_table[2] ^ by_table[3] == carried


@each_case(
    ("bits", "factor"),
    [(512 + 32, 0x154442BD4), (512 - 32, 0x1C6E41596), (128 + 32, 0x1751997D0), (96, 0xCCAA009E)],
)
def test_the_factors_of_folding_are_those_of_the_published_code(bits: int, factor: int) -> None:
    """R1 to R4 of Intel's paper, as Linux and zlib have them."""
    assert crc.fold_factor(crc.CRC32_POLYNOMIAL, bits) == factor


SCAN_ONE_SEGMENT = """
import json, sys
from pathlib import Path
from kip33.formats.native import compiler
from kip33.formats.scan import BatchScan

data = Path(sys.argv[1]).read_bytes()

def read_into(position, view):
    piece = data[position : position + len(view)]
    view[: len(piece)] = piece
    return len(piece)

scan = BatchScan(read_into, len(data), native=True)
rows = [row for batches in scan for row in batches.tolist()]
by = "instruction" if compiler.crc32c_tables() is None else "tables"
print(json.dumps([by, rows, scan.valid_bytes, scan.damage]))
"""
OTHER_CPUS = {
    "of 2006": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "+sse2"},
    "of 2013": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+crc32,+sse4.2,+pclmul,+avx2"},
}


@pytest.mark.integration  # compiles everything anew
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="features are named for x86-64")
def test_cpus_that_have_less_give_the_same_headers(tmp_path: Path) -> None:
    entries = [
        segment_builder.v2_batch(3 * i, [segment_builder.Record(i, b"k", bytes(i * 700))] * 3)
        for i in range(20)
    ]
    entries[18] = segment_builder.with_broken_crc(entries[18])
    entries[:0] = [segment_builder.v1_message(-9 + i, i, value=bytes(i * 99)) for i in range(9)]
    log = tmp_path / "0.log"
    log.write_bytes(segment_builder.segment(entries))

    answers = {}
    for kind, features in {"this one": {}, **OTHER_CPUS}.items():
        caches = {"NUMBA_CACHE_DIR": str(tmp_path / kind), "KIP33_KERNELS": ""}
        done = subprocess.run(
            [sys.executable, "-c", SCAN_ONE_SEGMENT, str(log)],
            env={**os.environ, **caches, **features},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        answers[kind] = json.loads(done.stdout)

    assert [answers[kind][0] for kind in OTHER_CPUS] == ["tables", "instruction"]
    for _, *found in answers.values():
        assert found == answers["this one"][1:]
        assert len(found[0]) == 9 + 18
        assert "CRC" in found[2]
