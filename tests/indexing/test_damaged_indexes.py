"""Damaged index files of generated segments: each has the verdict that its definition gives it.

KIP33_SEED chooses which; KIP33_DAMAGED_INDEXES is how many the long form has.
"""

import os
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from kip33.formats.batch import BatchColumns
from kip33.formats.native import Speed
from kip33.indexing.segment import index_segment
from kip33.indexing.verification import Verification
from kip33.rules.index_builder import IndexSettings
from kip33.rules.index_verdict import IndexVerdict
from tests.builders.damaged_indexes import (
    INDEX_BYTES,
    Case,
    Expected,
    expected_verdicts,
    random_case,
)
from tests.builders.generated_segments import wire_of
from tests.builders.logs_in_memory import read_into_of
from tests.long_forms import short_and_long

SEED = os.environ.get("KIP33_SEED", "33")


def in_pieces(check: Verification, random: Random) -> Callable[[BatchColumns, Speed], None]:
    """Return what shows the check a few batches at a time."""

    def append(batches: BatchColumns, speed: Speed) -> None:
        at = 0
        while at < len(batches):
            step = random.randint(1, 9)
            check.append(batches[at : at + step], speed)
            at += step

    return append


def verdicts_on(case: Case, *, native: bool) -> tuple[Expected, tuple[str, ...]]:
    log = wire_of(case.entries)
    settings = IndexSettings(case.dialect, case.interval, INDEX_BYTES)
    check = Verification(
        case.time_index,
        case.offset_index,
        base_offset=case.base_offset,
        topic="orders",
        settings=settings,
    )

    index = index_segment(
        read_into_of(log),
        len(log),
        base_offset=case.base_offset,
        topic="orders",
        settings=settings,
        native=native,
        watcher=in_pieces(check, Random(len(log))),
    )
    times, offsets = check.time_verdict(index), check.offset_verdict(index)
    assert offsets is not None
    return Expected(times.verdict, offsets.verdict), times.problems + offsets.problems


@pytest.mark.parametrize("cases", short_and_long(150, 4_000, "KIP33_DAMAGED_INDEXES"))
def test_each_file_has_the_verdict_of_its_definition(
    cases: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print(f"\n{cases} segments, KIP33_SEED={SEED}", end=" ")
    seen: Counter[tuple[str, str]] = Counter()
    for number in range(cases):
        case = random_case(f"{SEED} {number}")
        found, problems = verdicts_on(case, native=number % 4 != 0)
        expected = expected_verdicts(case)
        assert found == expected, (f"case {SEED!r} {number}", case.damage, case.interval, problems)
        seen["time", found.time] += 1
        seen["offset", found.offset] += 1
    of_files = {"missing", "unreadable", "archived", "incomplete", "unknown"}
    judged = set(IndexVerdict) - of_files
    assert min(seen["offset", verdict] for verdict in judged) > cases // 200, seen
    assert min(seen["time", verdict] for verdict in {*judged, "incomplete"}) > cases // 200, seen


def test_files_of_a_broker_that_appends_and_restarts_are_true(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only missing entries may be found: they are never `wrong`, `padded` or `incomplete`."""
    for number in range(150):
        case = random_case(f"{SEED} whole {number}")
        if case.damage[0] == case.damage[1] == "appends: " and case.dialect != "kip33":
            found, problems = verdicts_on(case, native=True)
            assert set(found) <= {"identical", "consistent", "sparse"}, problems
