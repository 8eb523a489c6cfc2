"""Segments that brokers of Kafka 2.x to 4.x wrote, and the indexes they left beside them."""

import csv
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from kip33 import build_time_index, verify_segment
from kip33.indexing.verification import SegmentVerdict
from kip33.rules.index_verdict import IndexVerdict
from tests.cases import each_case
from tests.formats.real_segments import FOLDER, REAL_SEGMENTS, needs_real_segments

pytestmark = needs_real_segments


class Manifest(NamedTuple):
    """One line of MANIFEST.csv."""

    log_bytes: int
    entries: int
    dialects: frozenset[str]


@cache
def manifest() -> dict[str, Manifest]:
    with (FOLDER / "MANIFEST.csv").open() as file:
        return {
            row["segment"]: Manifest(
                int(row["log_bytes"]),
                int(row["timeindex_entries"]),
                frozenset({row["recover"], row["live"]} - {""}),
            )
            for row in csv.DictReader(file)
        }


@cache
def verdict_on(log: Path) -> SegmentVerdict:
    return verify_segment(str(log))


def files_of(name: str) -> tuple[Path, Path, Path]:
    log = REAL_SEGMENTS[name]
    return log, log.with_suffix(".timeindex"), log.with_suffix(".index")


@pytest.mark.integration  # verification of the same files compares with every dialect
@each_case("dialect", ["recover", "live"])
@each_case("name", [*REAL_SEGMENTS])
def test_rebuilt_byte_for_byte_where_the_manifest_says_so(name: str, dialect: str) -> None:
    log, time_index, offset_index = files_of(name)
    index = build_time_index(str(log), dialect=dialect)
    assert (index.status, index.error) == ("ok", None)
    assert index.size_bytes == index.valid_bytes == manifest()[name].log_bytes
    expected = dialect in manifest()[name].dialects
    assert (index.time_index_data == time_index.read_bytes()) is expected
    if expected and dialect == "recover":
        assert index.offset_index_data == offset_index.read_bytes()


@each_case("name", [*REAL_SEGMENTS])
def test_what_a_broker_left_is_true(name: str) -> None:
    log, time_index, _ = files_of(name)
    seen = verdict_on(log)
    assert seen.verdict not in (IndexVerdict.WRONG, IndexVerdict.MALFORMED, IndexVerdict.MISSING), (
        seen.problems
    )
    assert seen.offset_index_verdict not in (IndexVerdict.WRONG, IndexVerdict.MALFORMED), (
        seen.problems
    )
    assert seen.entries == manifest()[name].entries == time_index.stat().st_size // 12
    if manifest()[name].dialects:
        assert seen.verdict == IndexVerdict.IDENTICAL
        assert seen.dialect in manifest()[name].dialects


def test_how_many_there_are() -> None:
    assert set(manifest()) == set(REAL_SEGMENTS)
    counts = Counter(dialect for m in manifest().values() for dialect in m.dialects)
    assert (len(manifest()), counts) == (83, {"recover": 64, "live": 70})
