"""The verdicts on a tree in a temporary file: what a list of them would say."""

import random
import sqlite3
from dataclasses import replace
from typing import Any

import pytest

from kip33.indexing.folded_verdicts import VerifiedSegment
from kip33.indexing.tree_verdicts import TreeVerdicts, VerdictFileError, blocks_of
from kip33.indexing.verification import SegmentVerdict
from kip33.rules.index_verdict import IndexVerdict
from kip33.rules.segment_summary import SegmentStatus

CHANCE = random.Random(29)


def verdict_of(uri: str, *, has_offset_index: bool = True) -> SegmentVerdict:
    """Return a verdict with any values."""
    found = CHANCE.choice([IndexVerdict.IDENTICAL, IndexVerdict.CONSISTENT, *IndexVerdict])
    problems = () if found == IndexVerdict.IDENTICAL else (f"the {found} one",)
    offset = CHANCE.choice([IndexVerdict.IDENTICAL, None]) if has_offset_index else None
    status = CHANCE.choice([*SegmentStatus])
    rest = (CHANCE.choice([None, 4096]), None, CHANCE.choice([None, IndexVerdict.UNKNOWN]))
    return SegmentVerdict(uri, f"{uri}.t", found, None, 7, problems, offset, status, "x", *rest)


def held(verdicts: list[SegmentVerdict]) -> TreeVerdicts:
    """Return verdicts as two tasks send them, in any order."""
    mixed = [VerifiedSegment(one) for one in CHANCE.sample(verdicts, len(verdicts))]
    half = len(mixed) // 2
    return TreeVerdicts.of([*blocks_of(mixed[half:]), *blocks_of(mixed[:half])])


URIS = sorted(f"file:///a/t-{number % 7}/{number}\U0001f600.log" for number in range(2_500))


def test_verdicts_come_by_path_whatever_the_order_of_tasks_and_twice() -> None:
    verdicts = [verdict_of(uri, has_offset_index=False) for uri in URIS]
    found = held(verdicts)
    assert [*found] == verdicts == [*found]
    assert len(found) == len(verdicts)
    assert [*found.with_problems()] == [one for one in verdicts if one.has_problem]


def test_one_offset_index_means_that_every_segment_needs_one() -> None:
    verdicts = [verdict_of(uri) for uri in URIS]
    expected = [one.with_missing_offset_index() for one in verdicts]
    found = held(verdicts)
    assert [*found] == expected != verdicts
    assert [*found.with_problems()] == [one for one in expected if one.has_problem]


def test_a_tree_without_segments_has_no_verdicts() -> None:
    assert [*TreeVerdicts.of([])] == []


def test_a_full_disk_is_one_line_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def connect_to_a_small_disk(*arguments: Any, **how: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **how)
        connection.execute("PRAGMA max_page_count = 9")
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_to_a_small_disk)
    long = replace(verdict_of("file:///a.log"), log_error="x" * 99_999)
    with pytest.raises(VerdictFileError, match=r"disk is full; free some space, or name .* TMPDIR"):
        TreeVerdicts.of(blocks_of([VerifiedSegment(long)]))
