"""Missing offsets between segments: cases, and brute force."""

import itertools
import random
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kip33.rules.offset_holes import (
    APART,
    KINDS,
    OVERLAP,
    SAME_BASE,
    UNKNOWN_END,
    HoleKind,
    SegmentEnds,
    find_holes,
    overlaps,
)
from tests.cases import each_case


class Segment(NamedTuple):
    base_offset: int
    end: int
    damaged: bool = False
    compacted: bool = False
    replica: int = 0
    partition: int = 0


def columns_of(segments: list[Segment]) -> SegmentEnds:
    ordered = sorted(segments, key=lambda one: (one.partition, one.replica, one.base_offset))
    return SegmentEnds(
        np.array([one.partition for one in ordered], np.int64),
        np.array([one.replica for one in ordered], np.int64),
        np.array([one.base_offset for one in ordered], np.int64),
        np.array([one.end for one in ordered], np.int64),
        np.array([one.damaged for one in ordered], bool),
        np.array([one.compacted for one in ordered], bool),
    )


def holes_of(segments: list[Segment]) -> list[tuple[int, int, str]]:
    found = find_holes(columns_of(segments))
    kinds = [KINDS[kind].value for kind in found.kinds]
    return list(zip(found.first_offsets.tolist(), found.ends.tolist(), kinds, strict=True))


@each_case(
    ("what", "segments", "expected"),
    [
        ("no segment", [], []),
        (
            "the topic is compacted",
            [Segment(0, 5, compacted=True), Segment(9, 12)],
            [(5, 9, "possible")],
        ),
        (
            "the segment before is damaged, and is valid up to 3",
            [Segment(0, 3, damaged=True), Segment(9, 12)],
            [(3, 9, "after damage")],
        ),
        (
            "nothing of the segment before can be read",
            [Segment(0, UNKNOWN_END, damaged=True), Segment(9, 12)],
            [(0, 9, "after damage")],
        ),
        ("the end before was not read", [Segment(0, UNKNOWN_END), Segment(9, 12)], []),
        (
            "another replica has them",
            [Segment(0, 5), Segment(9, 12), Segment(0, 7, replica=1), Segment(7, 9, replica=1)],
            [(5, 9, "filled")],
        ),
        (
            "up to the largest offset",
            [Segment(0, 5), Segment(2**63 - 1, 2**63 - 1)],
            [(5, 2**63 - 1, "certain")],
        ),
    ],
)
def test_holes(what: str, segments: list[Segment], expected: list[tuple[int, int, str]]) -> None:
    assert holes_of(segments) == expected


def by_brute_force(segments: list[Segment]) -> list[tuple[int, int, str]]:
    found = []
    for partition, replica in sorted({(one.partition, one.replica) for one in segments}):
        mine = [one for one in segments if (one.partition, one.replica) == (partition, replica)]
        others = [one for one in segments if one.partition == partition]
        have = {offset for one in others for offset in range(one.base_offset, one.end)}
        mine.sort(key=lambda one: one.base_offset)
        end = 0
        for earlier, later in itertools.pairwise(mine):
            end = max(end, earlier.end if earlier.end != UNKNOWN_END else earlier.base_offset)
            missing = range(end, later.base_offset)
            if not missing or (earlier.end == UNKNOWN_END and not earlier.damaged):
                continue
            kind = HoleKind.CERTAIN
            if any(one.compacted for one in mine):
                kind = HoleKind.POSSIBLE
            if earlier.damaged:
                kind = HoleKind.AFTER_DAMAGE
            if have.issuperset(missing):
                kind = HoleKind.FILLED
            found.append((missing.start, missing.stop, kind.value))
    return found


def test_random_partitions_have_the_holes_of_brute_force() -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for _ in range(300):
        segments = []
        for replica in range(chance.randint(1, 4)):
            bases = sorted(chance.sample(range(30), chance.randint(1, 5)))
            for base in bases:
                damaged = chance.random() < 0.2
                unknown = chance.random() < 0.1
                end = UNKNOWN_END if unknown else base + chance.randint(0, 12)
                compacted = chance.random() < 0.1
                segments.append(Segment(base, end, damaged, compacted, replica, replica // 2))
        assert holes_of(segments) == by_brute_force(segments), f"seed {seed}"


# Which rows have offsets of an earlier one: a loop over all pairs.

FAR = 2**63 - 1


def found(rows: list[tuple[int, int, int]]) -> list[int]:
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    return overlaps(columns[0], columns[1], columns[2]).tolist()


ROW = st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(-1, 15) | st.just(FAR))


@given(st.lists(ROW, max_size=25))
def test_as_a_loop_over_all_earlier_rows(rows: list[tuple[int, int, int]]) -> None:
    rows = sorted(rows, key=lambda row: row[:2])
    expected = []
    for place, (partition, base, _) in enumerate(rows):
        earlier = [row for row in rows[:place] if row[0] == partition]
        overlapping = OVERLAP if any(base <= row[2] for row in earlier) else APART
        expected.append(SAME_BASE if any(base == row[1] for row in earlier) else overlapping)
    assert found(rows) == expected
