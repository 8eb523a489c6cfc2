"""Damaged segments by the thousand: no exception, no allocation, the index that recovery leaves.

KIP33_SEED chooses which; it is printed, and the failing mutants are named by their numbers.
KIP33_MUTANTS is how many the long form has.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.builders.index_mutants import bases, recovered
from tests.cases import each_case
from tests.golden.vectors import Vector, read_vectors
from tests.long_forms import short_and_long

ROOT = Path(__file__).parents[2]
SEED = os.environ.get("KIP33_SEED", "33")
PROCESSES = 2
MOST_GROWTH_BYTES = 16 << 20

MODELLED = [
    vector
    for vector in read_vectors()
    if vector.outcome in ("recovered", "emptied", "split")
    and vector.row not in range(32, 38)  # control batches, producer state
    and vector.segment_index_bytes == 10485760
    and vector.sparse_bytes is None
]


@each_case("vector", MODELLED)
def test_the_short_recovery_agrees_with_kafka(vector: Vector) -> None:
    seen = recovered(vector.log, vector.index_interval_bytes, vector.base_offset)
    assert (seen.time_index, seen.offset_index) == (vector.time_index, vector.offset_index)
    if vector.outcome == "recovered":
        assert seen.valid_bytes == vector.valid_bytes


@pytest.mark.parametrize("mutants", short_and_long(200, 20_000, "KIP33_MUTANTS"))
def test_mutants(mutants: int, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{mutants} mutants of {len(bases())} segments, KIP33_SEED={SEED}", end=" ")
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.builders.index_mutants", f"{SEED} {part}", str(share)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for part, share in enumerate([mutants // PROCESSES] * PROCESSES)
    ]
    answers = [json.loads(process.communicate()[0]) for process in running]
    assert [process.returncode for process in running] == [0] * PROCESSES

    outcomes: Counter[str] = Counter()
    for part, answer in enumerate(answers):
        assert answer["faults"] == [], f"of seed {SEED!r} part {part}"
        assert answer["growth_bytes"] < MOST_GROWTH_BYTES
        outcomes += Counter(answer["outcomes"])
    # The mutants must be worth looking at.
    names = ["ok", "truncated", "invalid", "missing", "malformed", "identical", "padded", "wrong",
             "incomplete", "consistent"]  # fmt: skip
    assert sum(outcomes[name] for name in ("ok", "empty", "truncated", "invalid")) == mutants
    assert min(outcomes[name] for name in names) > mutants // 500, outcomes
