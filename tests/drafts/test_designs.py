"""Which entries the drafts of KIP-33 have: one row, one sentence of the draft or of our choice.

A log is given as (first offset, last offset, max timestamp in seconds) of batches of 100 bytes.
With `every`, each batch but the first gets an entry in the offset index.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kip33.drafts.designs import (
    BUCKET,
    DRAFTS,
    INLINE,
    MINUTE,
    MINUTE_MAP,
    DraftBuilder,
    IndexDesign,
    design_of,
)
from kip33.drafts.lookup import slots_below, slots_for
from kip33.formats.batch import BATCH, BatchColumns
from kip33.rules.index_builder import IndexBuilder, IndexSettings
from kip33.rules.index_entries import DIALECTS, RECOVER
from tests.cases import each_case

NONE = -1  # no timestamp
Row = tuple[int, ...]


def log(*rows: Row) -> BatchColumns:
    """Return batches: (first offset, last offset, seconds); a first offset of None: a wrapper."""
    batches = np.zeros(len(rows), BATCH)
    for number, (batch, (first, last, seconds)) in enumerate(zip(batches, rows, strict=True)):
        batch["position"], batch["size_bytes"] = 100 * number, 100
        batch["base_offset"], batch["last_offset"] = first, last
        batch["max_timestamp"] = seconds * 1000 if seconds >= 0 else NONE
        batch["records_count"] = last - first + 1
    return batches


def entries_of(
    draft: IndexDesign,
    batches: BatchColumns,
    *,
    interval: int = 0,
    base: int = 0,
    before: int = NONE,
    bucket_ms: int = 60_000,
    step: int | None = None,
) -> list[Row]:
    builder = DraftBuilder(draft, base_offset=base, largest_before=before, interval_ms=bucket_ms)
    kafka = IndexSettings(index_interval_bytes=interval)
    indexes = IndexBuilder(RECOVER, kafka, base_offset=base, topic="t", others=(builder,))
    for at in range(0, len(batches), step or max(len(batches), 1)):
        indexes.append(batches[at : at + (step or len(batches))])
    indexes.close(100 * len(batches))
    assert indexes.refusal is None
    return [tuple(row) for row in builder.rows.tolist()]


class Case(NamedTuple):
    says: str
    draft: IndexDesign
    log: Sequence[Row]
    entries: list[Row]
    options: dict[str, int] = {}  # noqa: RUF012


IN_ORDER = ((0, 4, 10), (5, 9, 50), (10, 14, 61), (15, 19, 70), (20, 24, 125))
LATE = ((0, 0, 130), (1, 1, 10), (2, 2, 70), (3, 3, 140))
CASES = [
    Case(
        "minute: the first batch has no offset index entry, the next ones get one per minute",
        MINUTE,
        IN_ORDER,
        [(50_000, 9), (61_000, 14), (125_000, 24)],
    ),
    Case(
        "minute: without an offset index entry in a minute there is no entry for it",
        MINUTE,
        IN_ORDER,
        [(70_000, 19)],
        {"interval": 250},
    ),
    Case(
        "minute: a batch of an earlier minute gets no entry, although it has an index point",
        MINUTE,
        LATE,
        [(10_000, 1), (70_000, 2), (140_000, 3)],
    ),
    Case("minute: no timestamps, no entries", MINUTE, ((0, 4, NONE), (5, 9, NONE)), []),
    Case(
        "minute-map: the first offset of each minute, without regard to the offset index",
        MINUTE_MAP,
        IN_ORDER,
        [(0, 0), (60_000, 10), (120_000, 20)],
        {"interval": 10_000},
    ),
    Case(
        "minute-map: in order of arrival, so a late batch adds an earlier minute at the end",
        MINUTE_MAP,
        LATE,
        [(120_000, 0), (0, 1), (60_000, 2)],
    ),
    Case(
        "minute-map: no entry for batches without a timestamp",
        MINUTE_MAP,
        ((0, 4, NONE), (5, 9, 3)),
        [(0, 5)],
    ),
    Case(
        "bucket: the first batch of each later bucket, then the last one with the largest time",
        BUCKET,
        (*IN_ORDER, (25, 29, 125), (30, 34, 100)),
        [(0, 0), (60_000, 10), (120_000, 20), (125_000, 29)],
    ),
    Case(
        "bucket: a bucket may be of any length",
        BUCKET,
        IN_ORDER,
        [(0, 0), (100_000, 20), (125_000, 24)],
        {"bucket_ms": 100_000},
    ),
    Case(
        "bucket: times that earlier segments have seen give no entry",
        BUCKET,
        IN_ORDER,
        [(120_000, 20), (125_000, 24)],
        {"before": 70_000},
    ),
    Case(
        "bucket: in the bucket of the largest time before there is the closing entry only",
        BUCKET,
        IN_ORDER,
        [(125_000, 24)],
        {"before": 124_999},
    ),
    Case("bucket: empty if earlier segments are later", BUCKET, IN_ORDER, [], {"before": 125_000}),
    Case(
        "bucket: no closing entry with the time of the entry before",
        BUCKET,
        ((0, 4, 10), (5, 9, 60)),
        [(0, 0), (60_000, 5)],
    ),
    Case("bucket: no timestamps, no entries", BUCKET, ((0, 4, NONE),), []),
    Case(
        "inline: each entry of the offset index with the batch's own time, in any order",
        INLINE,
        LATE,
        [(1, 100, 10_000), (2, 200, 70_000), (3, 300, 140_000)],
    ),
    Case("inline: -1 without a timestamp", INLINE, ((0, 4, 1), (5, 9, NONE)), [(9, 100, -1)]),
]


@each_case("case", CASES)
@each_case("step", [None, 1])
def test_entries_of_a_draft(case: Case, step: int | None) -> None:
    assert entries_of(case.draft, log(*case.log), step=step, **case.options) == case.entries


def test_a_wrapper_counts_from_the_offset_after_the_batch_before_it() -> None:
    """Its header has only the last offset."""
    batches = log((0, 4, 10), (9, 9, 70), (10, 12, 130))
    batches["records_count"][1] = -1
    assert entries_of(MINUTE_MAP, batches) == [(0, 0), (60_000, 5), (120_000, 10)]


def test_offsets_in_files_are_relative() -> None:
    for draft, expected in ((MINUTE_MAP, "0000000000000000 00000005"), (MINUTE, "")):
        builder = DraftBuilder(draft, base_offset=100)
        batches = log((105, 109, 10))
        builder.append(batches, np.array([False]))
        builder.close()
        assert builder.data == bytes.fromhex(expected)


def test_each_dialect_has_its_own_file() -> None:
    assert {design_of(dialect).file for dialect in DIALECTS} == {"timeindex"}
    files = {design_of(name).file for name in DRAFTS}
    assert len(files) == len(DRAFTS)
    assert not files & {"timeindex", "index", "txnindex"}


def test_no_batches_no_entries() -> None:
    assert [entries_of(draft, log()) for draft in DRAFTS.values()] == [[]] * len(DRAFTS)


@each_case("draft", [MINUTE, BUCKET])
def test_the_slot_of_a_search_is_the_last_entry_below_the_time(draft: IndexDesign) -> None:
    rows = np.array([[10, 1], [20, 2], [30, 3]])
    times = np.array([5, 10, 11, 30, 31, 99])
    assert slots_for(draft, rows, times).tolist() == [-1, -1, 0, 1, 2, 2]


def test_the_slot_of_a_search_in_a_minute_map_is_the_lowest_offset_that_may_have_it() -> None:
    rows = np.array([[120_000, 0], [0, 10], [60_000, 20], [240_000, 30]])
    times = np.array([0, 60_000, 119_999, 120_000, 180_000, 299_999, 300_000])
    assert slots_for(MINUTE_MAP, rows, times).tolist() == [0, 0, 0, 0, 3, 3, -1]


def test_an_index_without_entries_is_searched_from_the_start() -> None:
    for draft in DRAFTS.values():
        rows = np.empty((0, len(draft.entry.names or ())), np.int64)
        assert slots_for(draft, rows, np.array([1, 2])).tolist() == [-1, -1]


@given(st.lists(st.integers(0, 50), max_size=30, unique=True).map(sorted), st.integers(-1, 51))
def test_the_binary_search_finds_the_last_one_below(times: list[int], target: int) -> None:
    found = slots_below(np.array(times, np.int64), np.array([target]))
    assert found.tolist() == [sum(time < target for time in times) - 1]
