"""Why the segments of a catalog ended: a sentence for each case, and the columns together."""

from typing import Any, NamedTuple

import numpy as np

from kip33.rules.retention_rows import int64_column
from kip33.rules.roll_verdicts import (
    EARLY_ROLLS,
    ROLL_DOUBTS,
    ROLL_REASONS,
    UNSEEN,
    RollColumns,
    RollVerdicts,
    explaining_settings,
    judge_rolls,
    limit_columns,
    status_doubts,
)
from kip33.rules.rolling import RollSettings
from tests.cases import each_case

SETTINGS = RollSettings(segment_ms=1000, segment_bytes=1000)


class Row(NamedTuple):
    """A segment of a catalog; its offsets follow those of the row before unless given."""

    size: int | None = 500
    first: int | None = 10_000
    largest: int | None = 10_500
    batches: int | None = 5
    offsets: int = 10
    base: int | None = None
    records: int | None = None
    smallest: int | None = None
    modified: int | None = 2**40
    status: str = "ok"
    first_bytes: int | None = None
    first_last: int | None = None
    entries: int | None = None


def columns(*partitions: list[Row], is_largest: bool = False) -> RollColumns:
    """Return rows as columns, partition by partition."""
    values: dict[str, list[Any]] = {name: [] for name in (*Row._fields, "base_offset", "last")}
    starts = []
    for rows in partitions:
        starts.append(len(values["size"]))
        following = 0
        for row in rows:
            base = following if row.base is None else row.base
            following = base + row.offsets
            for name, value in zip(Row._fields, row, strict=True):
                values[name].append(value)
            values["base_offset"].append(base)
            has_batch = row.batches is not None and row.batches > 0
            values["last"].append(following - 1 if has_batch else None)
    numbers = {name: int64_column(column) for name, column in values.items() if name != "status"}
    start = numbers["largest"] if is_largest else numbers["first"]
    return RollColumns(
        np.array(starts, np.int64),
        *(numbers[name] for name in ("base_offset", "last", "size", "batches", "records")),
        start,
        *(numbers[name] for name in ("first", "largest", "smallest", "modified")),
        status_doubts(values["status"]),
        *(numbers[name] for name in ("first_bytes", "first_last", "entries", "entries")),
        is_largest,
    )


def judged(
    *partitions: list[Row], settings: RollSettings = SETTINGS, is_largest: bool = False
) -> RollVerdicts:
    rows = columns(*partitions, is_largest=is_largest)
    limits = limit_columns([settings], np.zeros(rows.doubt.size, np.int64))
    return judge_rolls(rows, limits)


def first_row(verdicts: RollVerdicts, number: int = 0) -> dict[str, Any]:
    """Return one row's verdict as texts and numbers."""
    doubt, unseen = verdicts.doubt[number], verdicts.not_seen[number]
    early = verdicts.early[number]
    return {
        "ended_by": ROLL_REASONS[verdicts.ended_by[number]].value,
        "doubt": None if doubt < 0 else ROLL_DOUBTS[doubt].value,
        "not_seen": None if unseen < 0 else UNSEEN[unseen].value,
        "early": None if early < 0 else EARLY_ROLLS[early].value,
        "waited": verdicts.waited_ms.to_list()[number],
        "rolls_at": verdicts.rolls_at_ms.to_list()[number],
        "overdue": verdicts.overdue_ms.to_list()[number],
        "early_ms": verdicts.early_ms.to_list()[number],
    }


NEXT = Row(first=10_600, largest=10_900)
CASES: dict[str, tuple[list[Row], dict[str, Any]]] = {
    "the only segment is active": ([Row()], {"ended_by": "active", "waited": None}),
    "the next batch cannot fit, whatever its size": ([Row(size=980), NEXT], {"ended_by": "size"}),
    "the next batch is all of the next segment, and one byte too large": (
        [Row(size=900), NEXT._replace(size=101, batches=1)],
        {"ended_by": "size"},
    ),
    "it would fit exactly: nothing explains the end": (
        [Row(size=900), NEXT._replace(size=100, batches=1)],
        {"ended_by": "unexplained"},
    ),
    "the size of the next batch decides, and the catalog does not have it": (
        [Row(size=800), NEXT._replace(size=700, batches=3)],
        {"ended_by": "unknown", "not_seen": "next_batch_bytes"},
    ),
    "its header has been read: it is too large": (
        [Row(size=800), NEXT._replace(size=700, batches=3, first_bytes=201)],
        {"ended_by": "size"},
    ),
    "its header has been read: only several batches at once would not fit": (
        [Row(size=800), NEXT._replace(size=700, batches=3, first_bytes=200)],
        {"ended_by": "several_batches"},
    ),
    "the next batch is one ms beyond segment.ms": (
        [Row(), NEXT._replace(first=11_001, largest=11_001, size=100, batches=1)],
        {"ended_by": "time", "waited": 1001, "rolls_at": 11_001},
    ),
    "the next batch is at the limit, and nothing else explains the end": (
        [Row(), NEXT._replace(first=11_000, largest=11_000, size=100, batches=1)],
        {"ended_by": "unexplained", "waited": 1000},
    ),
    "by time, whatever the size of the next batch": (
        [Row(size=800), NEXT._replace(first=11_001, largest=11_001, size=700, batches=3)],
        {"ended_by": "time"},
    ),
    "a later record of the next segment is beyond the limit: several batches at once": (
        [Row(size=100), NEXT._replace(first=10_900, largest=11_900, size=100, batches=2)],
        {"ended_by": "several_batches"},
    ),
    "an empty segment does not end by time": (
        [Row(size=0, batches=0, offsets=0, first=None, largest=-1, base=5), NEXT._replace(base=5)],
        {"doubt": "same_base_offset", "ended_by": "unknown"},
    ),
    "the next segment is empty: what ended this one was not appended": (
        [Row(), Row(size=0, batches=0, first=None, largest=-1)],
        {"ended_by": "unknown", "not_seen": "next_batch"},
    ),
    "a segment that begins without a timestamp is dated by files": (
        [
            Row(modified=1000),
            Row(first=-1, largest=-1, modified=9000),
            NEXT._replace(size=100, batches=1),
        ],
        {"ended_by": "unexplained"},
    ),
    "the offsets go beyond an int32": (
        [Row(base=0, offsets=2**31), NEXT._replace(size=100, batches=1)],
        {"ended_by": "offset_range"},
    ),
    "only the end of the next segment is beyond an int32": (
        [Row(size=100, offsets=2**31 - 5), NEXT._replace(size=100, batches=2, offsets=10)],
        {"ended_by": "unknown", "not_seen": "next_batch_last_offset"},
    ),
    "its header has been read: the next batch is beyond it": (
        [
            Row(size=100, offsets=2**31 - 5),
            NEXT._replace(size=100, batches=2, offsets=10, first_last=2**31),
        ],
        {"ended_by": "offset_range"},
    ),
    "an offset is missing before the next segment": (
        [Row(), NEXT._replace(base=11)],
        {"doubt": "hole", "ended_by": "unknown", "not_seen": None, "waited": None},
    ),
    "the next segment begins inside this one": (
        [Row(), NEXT._replace(base=9)],
        {"doubt": "overlap", "ended_by": "unknown"},
    ),
    "the log is cut off": (
        [Row(status="truncated", size=100), NEXT],
        {"doubt": "truncated", "ended_by": "unknown"},
    ),
    "the log cannot be read": (
        [Row(None, None, None, None, status="unreadable"), NEXT],
        {"doubt": "unreadable", "ended_by": "unknown"},
    ),
    "the next log cannot be read": (
        [Row(), Row(None, None, None, None, status="unreadable")],
        {"doubt": None, "ended_by": "unknown", "not_seen": "next_batch"},
    ),
    "records are missing inside it: the cleaner rewrote it": (
        [Row(records=9), NEXT],
        {"doubt": "offsets_missing", "ended_by": "unknown"},
    ),
    "all records are there": ([Row(records=10, size=990), NEXT], {"ended_by": "size"}),
    "a batch of the segment is beyond the limit: it was kept open too long": (
        [Row(largest=11_300), NEXT._replace(size=100, batches=1)],
        {"overdue": 300, "rolls_at": 11_001},
    ),
    "an active segment can be overdue too": (
        [Row(largest=11_001)],
        {"overdue": 1, "ended_by": "active"},
    ),
    "the largest timestamp is at the limit: not overdue": (
        [Row(largest=11_000)],
        {"overdue": None},
    ),
    "the next batch's timestamp is later than the time of its file": (
        [Row(), NEXT._replace(first=50_000, largest=50_000, modified=20_000)],
        {"ended_by": "time", "early": "future_timestamp", "early_ms": 30_000},
    ),
    "a day passed without traffic: that is not early": (
        [Row(), NEXT._replace(first=90_000, largest=90_500)],
        {"ended_by": "time", "early": None},
    ),
    "the next batch is ahead of all records of the segment after the next": (
        [Row(), NEXT._replace(first=90_000, largest=90_000), Row(first=10_600, largest=10_950)],
        {"early": "ahead_of_later", "early_ms": 79_050},
    ),
    "a record of the next segment would not have ended it": (
        [Row(), NEXT._replace(first=11_500, largest=11_500, smallest=10_700)],
        {"early": "ahead_of_later", "early_ms": 800},
    ),
    "records out of order by less than a tenth of segment.ms are not early": (
        [Row(), NEXT._replace(first=11_050, largest=11_500, smallest=10_990)],
        {"ended_by": "time", "early": None},
    ),
}


@each_case(("rows", "expected"), CASES)
def test_why_the_first_segment_ended(rows: list[Row], expected: dict[str, Any]) -> None:
    found = first_row(judged(rows))
    assert {name: found[name] for name in expected} == expected


def test_an_old_first_timestamp_ends_a_segment_early() -> None:
    rows = [
        Row(first=10_000, largest=10_900),
        Row(first=9_000, largest=10_950),
        Row(first=11_000, largest=11_000),
    ]
    found = first_row(judged(rows), 1)
    assert (found["ended_by"], found["early"], found["early_ms"]) == ("time", "old_start", 1900)


def test_a_future_timestamp_before_does_not_make_a_start_old() -> None:
    rows = [Row(largest=90_000), Row(first=10_600), Row(first=11_700, largest=11_700)]
    found = first_row(judged(rows), 1)
    assert (found["ended_by"], found["early"]) == ("time", None)


def test_without_timestamps_the_times_of_files_are_shown_and_nothing_is_concluded() -> None:
    rows = [
        Row(first=-1, largest=-1, modified=1000),
        Row(first=-1, largest=-1, modified=4000),
        Row(size=100, batches=1, first=-1, largest=-1, modified=9000),
    ]
    verdicts = judged(rows)
    assert first_row(verdicts, 0)["waited"] is None  # no file is before it
    found = first_row(verdicts, 1)
    assert (found["ended_by"], found["not_seen"]) == ("unknown", "creation_time")
    assert (found["waited"], bool(verdicts.is_by_file_time[1])) == (3000, True)


def test_within_the_jitter_the_end_may_be_by_time() -> None:
    settings = SETTINGS._replace(segment_jitter_ms=200)
    for first, reason in ((10_801, "unexplained"), (10_802, "jitter"), (11_001, "time")):
        following = NEXT._replace(first=first, largest=first, size=100, batches=1)
        assert first_row(judged([Row(), following], settings=settings))["ended_by"] == reason


def test_full_indexes_are_known_from_their_entries_or_excluded_by_the_size() -> None:
    settings = SETTINGS._replace(segment_index_bytes=48, index_interval_bytes=100)
    following = NEXT._replace(size=100, batches=1)
    for row, reason in (
        (Row(size=303, batches=9), "unknown"),  # 3 entries of 101 bytes are possible, 3 are enough
        (Row(size=302, batches=9), "unexplained"),
        (Row(size=900, batches=2), "unexplained"),
        (Row(size=600, batches=9, entries=3), "index_full"),
        (Row(size=600, batches=9, entries=2), "unexplained"),
    ):
        found = first_row(judged([row, following], settings=settings))
        assert found["ended_by"] == reason, row
        assert found["not_seen"] == ("index_entries" if reason == "unknown" else None)


def test_a_compacted_topic_has_no_ends_that_can_be_explained() -> None:
    found = judged([Row(size=990), NEXT], settings=SETTINGS._replace(is_compacted=True))
    assert first_row(found)["doubt"] == "compacted"
    assert first_row(found, 1)["ended_by"] == "active"


def test_by_the_largest_timestamp_the_last_record_counts() -> None:
    rows = [Row(largest=10_900), Row(first=11_500, largest=11_500, size=100, batches=1)]
    found = first_row(judged(rows, is_largest=True))
    assert (found["waited"], found["ended_by"], found["rolls_at"]) == (600, "unexplained", 11_901)
    late = first_row(judged([Row(largest=11_900)], is_largest=True))
    assert late["overdue"] is None  # the steps between its records are not in a catalog


def test_the_first_segment_of_the_next_partition_does_not_count() -> None:
    verdicts = judged([Row(size=990)], [Row(first=99_999, largest=99_999)])
    assert [first_row(verdicts, number)["ended_by"] for number in (0, 1)] == ["active", "active"]


def test_a_timestamp_near_the_end_of_int64_does_not_wrap() -> None:
    found = first_row(judged([Row(first=2**63 - 5, largest=2**63 - 5)]))
    assert found["rolls_at"] == 2**63 - 1


def test_no_rows_give_no_verdicts() -> None:
    assert judged().ended_by.size == 0


@each_case(
    ("rows", "expected"),
    [
        (
            [Row(size=480), Row(size=500), Row(size=30, batches=1)],
            (None, None),  # of the next batch of the first segment, only bounds are known
        ),
        (
            [
                Row(size=480, first_bytes=90),
                Row(size=500, first_bytes=25),
                Row(size=30, first_bytes=20),
            ],
            (500, 504),
        ),
        (
            [Row(size=480), Row(size=400, first_bytes=9), Row(size=30, first_bytes=20)],
            (None, None),  # 480 to 488, and 400 to 419
        ),
        ([Row(size=480)], (None, None)),
    ],
)
def test_one_value_of_segment_bytes_explains_all_ends(
    rows: list[Row], expected: tuple[int | None, int | None]
) -> None:
    held = columns(rows)
    limits = limit_columns([SETTINGS], np.zeros(held.doubt.size, np.int64))
    found = explaining_settings(held, judge_rolls(held, limits))
    assert (found.segment_bytes_from.to_list()[0], found.segment_bytes_to.to_list()[0]) == expected


def test_one_value_of_segment_ms_explains_all_ends() -> None:
    rows = [Row(first=0, largest=90), Row(first=105, largest=205), Row(first=210, largest=220)]
    held = columns(rows)
    limits = limit_columns([SETTINGS], np.zeros(held.doubt.size, np.int64))
    found = explaining_settings(held, judge_rolls(held, limits))
    assert (found.segment_ms_from.to_list(), found.segment_ms_to.to_list()) == ([100], [104])
