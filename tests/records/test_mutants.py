"""Damaged logs by the thousand: no exception, bounded memory, the rows of `iterate_records`.

KIP33_SEED chooses which; it is printed, and the failing mutants are named by their numbers.
KIP33_READ_MUTANTS is how many the long form has.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.long_forms import short_and_long

ROOT = Path(__file__).parents[2]
SEED = os.environ.get("KIP33_SEED", "33")
MOST_GROWTH_BYTES = 64 << 20  # a batch may decompress to 1 MiB, a window has 1 MiB
BYTES_OF_A_MUTANT = 8 << 10  # codecs keep a few KiB of a stream that they cannot decompress


@pytest.mark.parametrize("mutants", short_and_long(50, 5_000, "KIP33_READ_MUTANTS"))
def test_mutants(mutants: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.builders.read_mutants", SEED, str(mutants), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    with capsys.disabled():
        print(f"\n{mutants} mutants, KIP33_SEED={SEED}: {answer['outcomes']}", end=" ")
        print(f"memory grew by {answer['growth_bytes'] >> 20} MiB", end=" ")
    assert answer["faults"] == []
    assert answer["growth_bytes"] < MOST_GROWTH_BYTES + mutants * BYTES_OF_A_MUTANT
    for outcome in ("record", "unreadable batch", "end"):
        assert answer["outcomes"][outcome] > mutants // 10
