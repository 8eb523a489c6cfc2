"""Segments that brokers of Kafka 2.x to 4.x wrote, and the indexes they left beside them."""

import csv
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kip33 import verify_segment
from kip33.indexing.verification import SegmentVerdict
from kip33.rules.index_verdict import IndexVerdict
from tests.cases import each_case
from tests.formats.real_segments import FOLDER, REAL_SEGMENTS, needs_real_segments

pytestmark = needs_real_segments


class Manifest(NamedTuple):
    """One line of MANIFEST.csv."""

    entries: int
    dialects: frozenset[str]


@cache
def manifest() -> dict[str, Manifest]:
    with (FOLDER / "MANIFEST.csv").open() as file:
        return {
            row["segment"]: Manifest(
                int(row["timeindex_entries"]),
                frozenset({row["recover"], row["live"]} - {""}),
            )
            for row in csv.DictReader(file)
        }


@cache
def verdict_on(log: Path) -> SegmentVerdict:
    return verify_segment(str(log))


@each_case("name", [*REAL_SEGMENTS])
def test_what_a_broker_left_is_true(name: str) -> None:
    log, expected = REAL_SEGMENTS[name], manifest()[name]
    seen = verdict_on(log)
    assert seen.verdict not in (IndexVerdict.WRONG, IndexVerdict.MALFORMED, IndexVerdict.MISSING), (
        seen.problems
    )
    assert seen.offset_index_verdict not in (IndexVerdict.WRONG, IndexVerdict.MALFORMED), (
        seen.problems
    )
    size_bytes = log.with_suffix(".timeindex").stat().st_size
    assert seen.entries == expected.entries == size_bytes // 12
    if expected.dialects:
        assert seen.verdict == IndexVerdict.IDENTICAL
        assert seen.dialect in expected.dialects
    if "recover" in expected.dialects:
        assert seen.offset_index_verdict == IndexVerdict.IDENTICAL


def test_how_many_there_are() -> None:
    assert set(manifest()) == set(REAL_SEGMENTS)
    counts = Counter(dialect for m in manifest().values() for dialect in m.dialects)
    assert (len(manifest()), counts) == (83, {"recover": 64, "live": 70})
