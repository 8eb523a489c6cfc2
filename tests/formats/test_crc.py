"""Both checksums: known answers, any cutting, and the same number by every way of computing it."""

import json
import os
import subprocess
import sys
import zlib
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pytest

from kip33.formats import crc, native, native_forms
from tests import segment_builder

ROOT = Path(__file__).parents[2]
NOISE = np.frombuffer(Random(33).randbytes(40_000), np.uint8)
TABLES = native_forms.CRC32C_TABLES
RFC_3720 = [
    pytest.param(b"", 0x00000000, id="nothing"),
    pytest.param(b"123456789", crc.CRC32C_CHECK, id="the catalogue's check value"),
    pytest.param(bytes(32), 0x8A9136AA, id="32 zero bytes"),
    pytest.param(b"\xff" * 32, 0x62A8AB43, id="32 bytes of ones"),
    pytest.param(bytes(range(32)), 0x46DD794E, id="32 ascending bytes"),
    pytest.param(bytes(range(31, -1, -1)), 0x113FDB5C, id="32 descending bytes"),
]
has_instruction = pytest.mark.skipif(
    native.crc32c_tables() is not None, reason="this CPU has no CRC-32C instruction"
)


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


@pytest.mark.parametrize(("data", "expected"), RFC_3720)
@pytest.mark.parametrize(
    "tables", [pytest.param(None, marks=has_instruction, id="instruction"), TABLES]
)
def test_crc32c_known_answers(
    data: bytes, expected: int, tables: npt.NDArray[np.uint32] | None
) -> None:
    array = np.frombuffer(data, np.uint8)
    assert crc.crc32c(0, data, 0, len(data), None) == expected
    assert native.compiled(native.crc32c_of)(array, tables) == expected


def test_crc32_is_that_of_zlib() -> None:
    assert crc.crc32(0, b"123456789", 0, 9) == crc.CRC32_CHECK
    compiled = native.compiled(crc32_between)
    for length in lengths_around_the_borders():
        expected = zlib.crc32(NOISE[:length].tobytes())
        assert crc.crc32(0, NOISE.tobytes(), 0, length) == expected
        assert compiled(0, NOISE, 0, length) == expected, length


@pytest.mark.parametrize("length", lengths_around_the_borders())
def test_crc32c_plain_by_instruction_and_by_tables(length: int) -> None:
    data = NOISE[:length]
    expected = segment_builder.crc32c(data.tobytes())
    assert crc.crc32c(0, data.tobytes(), 0, length, None) == expected
    assert native.compiled(native.crc32c_of)(data, TABLES) == expected
    if native.crc32c_tables() is None:
        assert native.compiled(native.crc32c_of)(data, None) == expected


@pytest.mark.parametrize("seed", range(20))
def test_pieces_in_any_cutting_equal_the_whole(seed: int) -> None:
    random = Random(seed)
    start, stop = sorted(random.choices(range(len(NOISE)), k=2))
    cuts = [start, *sorted(random.choices(range(start, stop + 1), k=random.randrange(9))), stop]
    data = NOISE.tobytes()
    all_tables = [TABLES, native.crc32c_tables()]
    plain32 = plain32c = 0
    fast32, fast32c = 0, [0, 0]
    for begin, end in pairwise(cuts):
        plain32 = crc.crc32(plain32, data, begin, end)
        plain32c = crc.crc32c(plain32c, data, begin, end, None)
        fast32 = native.compiled(crc32_between)(fast32, NOISE, begin, end)
        fast32c = [
            native.compiled(crc32c_between)(value, NOISE, begin, end, tables)
            for value, tables in zip(fast32c, all_tables, strict=True)
        ]
    assert {plain32, fast32} == {zlib.crc32(data[start:stop])}
    assert {plain32c, *fast32c} == {segment_builder.crc32c(data[start:stop])}


@pytest.mark.parametrize("polynomial", [crc.CRC32_POLYNOMIAL, crc.CRC32C_POLYNOMIAL])
@pytest.mark.parametrize("zero_bytes", [1, 8, native_forms.SHORT_BYTES, native_forms.LONG_BYTES])
def test_a_register_is_carried_over_zeros(polynomial: int, zero_bytes: int) -> None:
    tables = crc.zero_shift_tables(polynomial, zero_bytes)
    step = crc.slicing_tables(polynomial, 1)[0]
    for register in (0, 1, 0x80000000, 0xDEADBEEF, 0xFFFFFFFF):
        carried = register
        for _ in range(zero_bytes):
            carried = int(step[carried & 0xFF]) ^ carried >> 8
        by_table = [int(tables[3 - k][register >> 8 * k & 0xFF]) for k in range(4)]
        assert by_table[0] ^ by_table[1] ^ by_table[2] ^ by_table[3] == carried


@pytest.mark.parametrize(
    ("bits", "factor"),
    [(512 + 32, 0x154442BD4), (512 - 32, 0x1C6E41596), (128 + 32, 0x1751997D0), (96, 0xCCAA009E)],
)
def test_the_factors_of_folding_are_those_of_the_published_code(bits: int, factor: int) -> None:
    """R1 to R4 of Intel's paper, as Linux and zlib have them."""
    assert crc.fold_factor(crc.CRC32_POLYNOMIAL, bits) == factor


SCAN_ONE_SEGMENT = """
import json, sys
from pathlib import Path
from kip33.formats import native
from kip33.formats.scan import BatchScan

data = Path(sys.argv[1]).read_bytes()

def read_into(position, view):
    piece = data[position : position + len(view)]
    view[: len(piece)] = piece
    return len(piece)

scan = BatchScan(read_into, len(data), native=True)
rows = [row for batches in scan for row in batches.tolist()]
by = "instruction" if native.crc32c_tables() is None else "tables"
print(json.dumps([by, rows, scan.valid_bytes, scan.damage]))
"""
WITHOUT_INSTRUCTION = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "+sse2"}


@pytest.mark.integration  # compiles everything anew
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="features are named for x86-64")
def test_a_cpu_without_the_instruction_gives_the_same_headers(tmp_path: Path) -> None:
    entries = [
        segment_builder.v2_batch(3 * i, [segment_builder.Record(i, b"k", bytes(i * 700))] * 3)
        for i in range(20)
    ]
    entries[18] = segment_builder.with_broken_crc(entries[18])
    entries[:0] = [segment_builder.v1_message(-9 + i, i, value=bytes(i * 99)) for i in range(9)]
    log = tmp_path / "0.log"
    log.write_bytes(segment_builder.segment(entries))

    answers = {}
    for cpu, features in {"this": {}, "old": WITHOUT_INSTRUCTION}.items():
        caches = {"NUMBA_CACHE_DIR": str(tmp_path / cpu)}
        done = subprocess.run(
            [sys.executable, "-c", SCAN_ONE_SEGMENT, str(log)],
            env={**os.environ, **caches, **features},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        answers[cpu] = json.loads(done.stdout)

    assert answers["old"][0] == "tables"
    assert answers["old"][1:] == answers["this"][1:]
    assert len(answers["old"][1]) == 9 + 18
    assert "CRC" in answers["old"][3]
