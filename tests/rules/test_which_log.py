"""The log of a partition, read from the copies that have it; how certain each record is."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from kip33.rules.which_log import NEVER, NOT_KNOWN, Certainty, Copy, Segments, Status, which_log
from tests.builders.small_kafka import FAULTS, figures, worlds
from tests.long_forms import seeds, short_and_long


class Row(NamedTuple):
    base: int
    end: int
    epochs: Mapping[int, int] = {}  # epoch: first offset
    records: int | None = None  # None: of each offset
    status: Status = Status.OK
    crc: int = NOT_KNOWN


class Case(NamedTuple):
    name: str
    copies: Mapping[str, Sequence[Row]]  # "remote": the remote tier
    slices: str
    notes: str = ""
    of: Mapping[str, Mapping[str, Any]] = {}  # what else is known of copies
    options: Mapping[str, Any] = {}


B = Row
DEPOSED = {"b1": [B(0, 20, {0: 0})], "b2": [B(0, 12, {0: 0, 2: 5})]}
CASES = [
    Case("one copy is the log, whatever it shows", {"b1": [B(0, 9)]}, "b1 0-9"),
    Case(
        "of equal copies the first is read, local before remote",
        {"remote": [B(0, 9, {0: 0})], "b1": [B(0, 9, {0: 0})], "b2": [B(0, 9, {0: 0})]},
        "b1 0-9",
    ),
    Case(
        "a deposed leader has more records",
        DEPOSED,
        "b2 0-12",
        "b1 BEHIND 5-12, b1 DIFFER 5-20, b2 ALONE 5-12",
    ),
    Case(
        "its dead branch is read if it is asked for",
        DEPOSED,
        "b1 0-5, b1 5-20 DEAD",
        "b1 DIFFER 5-20, b1 BEHIND 5-20, b2 BEHIND 12-20",
        options={"replica": "b1"},
    ),
    Case(
        "a copy that ends earlier has more, because retention ran on the other one",
        {"b1": [B(0, 100, {0: 0})], "b2": [B(60, 150, {0: 60})]},
        "b1 0-60, b2 60-150",
        "b1 BEHIND 100-150, b2 EARLIER 0-60 b1, b2 ALONE 100-150",
    ),
    Case(
        "the new leader has no record yet: its checkpoint shows it",
        {"b1": [B(0, 20, {0: 0})], "b2": [B(0, 5, {0: 0})]},
        "b1 0-5",
        "b1 DIFFER 5-20",
        of={"b2": {"checkpoint": ((0, 0), (2, 5))}},
    ),
    Case(
        "no common epoch: the earlier one may have been cut anywhere",
        {"b1": [B(0, 99, {4: 0})], "b2": [B(100, 120, {5: 100})]},
        "b1 0-99 UNSURE, b2 100-120",
        "b1 BEHIND 99-120, b1 UNSURE 0-99, b2 EARLIER 0-99 b1, b2 ALONE 99-120, b2 HOLE 99-100",
    ),
    Case(
        "a checkpoint with the earlier epochs shows where",
        {"b1": [B(0, 99, {4: 0})], "b2": [B(100, 120, {5: 100})]},
        "b1 0-80, b2 100-120",
        "b1 BEHIND 80-120, b1 DIFFER 80-99, b2 EARLIER 0-80 b1, b2 ALONE 80-120, b2 HOLE 80-100",
        of={"b2": {"checkpoint": ((4, 0), (5, 80))}},
    ),
    Case(
        "epochs are hidden: after the last equal bytes nothing is known",
        {
            "b1": [B(0, 9, {0: 0}, crc=7), B(9, 20, {0: 9})],
            "b2": [B(0, 9, crc=7), B(9, 30)],
        },
        "b1 0-9, b1 9-20 UNKNOWN, b2 20-30 UNKNOWN",
        "b1 BEHIND 20-30, b2 UNKNOWN 9-30, b2 ALONE 20-30",
    ),
    Case(
        "all epochs are hidden: the farthest copy is read, and is unknown",
        {"b1": [B(0, 9)], "b2": [B(0, 12)]},
        "b2 0-12 UNKNOWN",
        "b1 BEHIND 9-12, b1 UNKNOWN 0-9, b2 ALONE 9-12",
    ),
    Case(
        "a hole and what damage took are given by another copy",
        {
            "b1": [B(0, 10, {0: 0}), B(20, 24, {0: 20}, status=Status.CUT), B(30, 40, {0: 30})],
            "b2": [B(0, 35, {0: 0})],
        },
        "b1 0-10, b2 10-20, b1 20-24, b2 24-30, b1 30-40",
        "b1 FILLED 10-20 b2, b1 FILLED 24-30 b2, b2 BEHIND 35-40, b1 ALONE 35-40",
    ),
    Case(
        "a lost segment that no copy has is a hole",
        {"b1": [B(0, 10, {0: 0}), B(10, 20, status=Status.LOST), B(20, 30, {0: 20})]},
        "b1 0-10, b1 20-30",
        "b1 HOLE 10-20",
    ),
    Case(
        "the gap of a compacted copy is not filled",
        {"b1": [B(0, 8, {0: 0}, 3), B(10, 30, {0: 10})], "b2": [B(0, 20, {0: 0})]},
        "b1 0-8, b1 10-30",
        "b1 POSSIBLE 8-10 b2, b2 BEHIND 20-30, b1 ALONE 20-30",
        options={"compacted": True},
    ),
    Case(
        "what fills the damage of a compacted copy may have been removed since",
        {
            "b1": [B(0, 4, {0: 0}, status=Status.CUT), B(10, 30, {0: 10}, 5)],
            "b2": [B(0, 20, {0: 0})],
        },
        "b1 0-4, b2 4-10 COMPACTED, b1 10-30",
        "b1 FILLED 4-10 b2, b2 BEHIND 20-30, b1 ALONE 20-30",
    ),
    Case(
        "below its log start a copy may keep what no leader had",
        {"b1": [B(0, 20, {1: 0})], "b2": [B(0, 30, {0: 0, 1: 8})]},
        "b2 8-30",
        "b1 BEHIND 20-30, b2 ALONE 20-30",
        of={"b1": {"log_start": 8}, "b2": {"log_start": 8}},
    ),
    Case(
        "a deposed leader had uploaded, and the local log begins later",
        {
            "b1": [B(15, 30, {1: 15, 3: 18})],
            "remote": [B(0, 10, {1: 0}), B(10, 20, {1: 10, 2: 16}), B(10, 18, {1: 10})],
        },
        "remote 0-10, remote 10-15, b1 15-30",
        "b1 EARLIER 0-15 remote, remote DIFFER 16-20, b1 ALONE 18-30",
    ),
    Case(
        "the remote tier has what the local log lost at its start; nothing shows that it was kept",
        {"b1": [B(20, 30, {3: 20})], "remote": [B(0, 10, {1: 0}), B(10, 20, {1: 10})]},
        "remote 0-10 UNSURE, remote 10-20 UNSURE, b1 20-30",
        "b1 EARLIER 0-20 remote, remote UNSURE 0-20, b1 ALONE 20-30",
    ),
    Case(
        "a segment whose epochs fall tells nothing after equal bytes",
        {"b1": [B(0, 9, {2: 0}, crc=1), B(9, 12)], "b2": [B(0, 10, {2: 0})]},
        "b2 0-9, b2 9-10 UNKNOWN, b1 10-12 UNKNOWN",
        "b1 UNKNOWN 9-12, b1 ALONE 10-12, b2 BEHIND 10-12",
    ),
    Case(
        "a remote segment below the log start shows nothing, so it may be of a later leader",
        {"b1": [B(0, 20, {5: 0})], "remote": [B(16, 22)]},
        "b1 0-20 UNKNOWN",
        "remote UNKNOWN 16-22",
        of={"remote": {"log_start": 27}},
    ),
    Case(
        "two segments of the same offsets and epoch have other bytes",
        {"b1": [B(0, 9, {0: 0}, crc=1)], "b2": [B(0, 9, {0: 0}, crc=2), B(9, 12, {0: 9})]},
        "b2 0-9 UNSURE, b2 9-12 UNSURE",
        "CONFLICT 0-, b1 BEHIND 9-12, b2 ALONE 9-12",
    ),
]


def range_text(begin: int, end: int) -> str:
    return f"{begin}-{end if end != NEVER else ''}"


def asked(case: Case) -> tuple[str, str]:
    names = list(case.copies)
    copies = [Copy(name, name == "remote", **case.of.get(name, {})) for name in names]
    rows = [(names.index(name), row) for name, rows in case.copies.items() for row in rows]
    epochs = [list(row.epochs.items()) for _, row in rows]
    columns = (
        *([copy for copy, _ in rows], [row.base for _, row in rows], [row.end for _, row in rows]),
        [row.end - row.base if row.records is None else row.records for _, row in rows],
        *([row.status for _, row in rows], [row.crc for _, row in rows]),
        [sum(map(len, epochs[:count])) for count in range(len(rows) + 1)],
        *([entry[at] for one in epochs for entry in one] for at in (0, 1)),
    )
    segments = Segments(*(np.array(column, np.int64) for column in columns))
    log = which_log(copies, segments, **case.options)
    slices = [
        f"{names[one.copy]} {range_text(*one[2:4])}"
        + (f" {one.certainty.name}" if one.certainty != Certainty.SURE else "")
        for one in log.slices
    ]
    notes = [
        " ".join(
            [
                *names[one.copy :][:1] * (one.copy >= 0),
                *(one.kind.name, range_text(*one[2:4])),
                *names[one.other :][:1] * (one.other >= 0),
            ]
        )
        for one in log.notes
    ]
    return ", ".join(slices), ", ".join(notes)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_a_log_of_several_copies(case: Case) -> None:
    slices, notes = asked(case)
    assert slices == case.slices
    assert sorted(notes.split(", ")) == sorted(case.notes.split(", "))


@pytest.mark.parametrize("many", short_and_long(1000, 60_000, "KIP33_WORLDS"))
def test_no_sure_record_is_wrong_and_no_difference_is_without_a_note(many: int) -> None:
    found = Counter[str]()
    for made in worlds(seeds(many)):
        counts = figures(made, made.answer())
        assert not any(counts[fault] for fault in FAULTS), (made.seed, counts)
        found += counts
    assert found["sure: true"] > 10 * many and found["offsets where copies differ"] > many / 2
