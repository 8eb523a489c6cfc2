"""Which entries the two indexes get: one row, one sentence of Kafka's behaviour.

A log is given as (last offset, max timestamp) of batches of 98 bytes each, so batch k begins at
byte 98 k. Entries are (timestamp, relative offset) and (relative offset, position). Every row is
run plain and compiled, at once and one batch at a time. Which entries recovery leaves of a sound
log is in the recorded vectors, and compared in `tests/golden/test_golden.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip33.formats.batch import BATCH, BatchColumns
from kip33.formats.native import compiler
from kip33.formats.time_index import TimeIndex
from kip33.formats.times import Milliseconds
from kip33.rules import index_entries as rule
from kip33.rules.index_entries import DEFAULT_SEGMENT_INDEX_BYTES, DIALECTS, REFUSALS
from tests.builders.generated_segments import LONG_MAX, Written, record_pairs, rows_of, segments
from tests.cases import each_case
from tests.long_forms import examples

BATCH_BYTES = 98
MAX_INT32 = 2**31 - 1
SPEEDS: dict[str, Callable[..., Any]] = {
    "plain": rule.append_batches,
    "compiled": compiler.compiled(rule.append_batches),
}


class Indexes(NamedTuple):
    """The entries of both indexes, and (refusal, position) where Kafka leaves none."""

    times: list[tuple[int, int]]
    offsets: list[tuple[int, int]]
    refused: tuple[int, int] | None = None


def columns(rows: Sequence[tuple[int, ...]], sizes: Sequence[int] | None = None) -> BatchColumns:
    """Return batches: (last offset, max timestamp[, first offset with the max])."""
    sizes = sizes or [BATCH_BYTES] * len(rows)
    batches = np.zeros(len(rows), BATCH)
    position = 0
    for batch, row, size in zip(batches, rows, sizes, strict=True):
        last_offset, timestamp, *first = row
        batch["position"], batch["size_bytes"] = position, size
        batch["base_offset"] = batch["last_offset"] = last_offset
        batch["max_timestamp"] = timestamp
        batch["offset_of_max_timestamp"] = first[0] if first else last_offset
        position += size
    return batches


def indexes_of(
    batches: BatchColumns,
    *,
    interval: int = 100,
    dialect: str = "recover",
    base: int = 0,
    index_bytes: int = DEFAULT_SEGMENT_INDEX_BYTES,
    topic: str = "orders",
    speed: str = "plain",
    step: int | None = None,
) -> Indexes:
    kind = DIALECTS[dialect]
    state = rule.new_state(
        kind, base_offset=base, interval_bytes=interval, segment_index_bytes=index_bytes
    )
    times: list[tuple[int, int]] = []
    offsets: list[tuple[int, int]] = []
    for at in range(0, len(batches), step or max(len(batches), 1)):
        piece = batches[at : at + (step or len(batches))]
        time_rows = np.full((len(piece), 2), -7, np.int64)
        offset_rows = np.full((len(piece), 2), -7, np.int64)
        recorded = kind.recorded_offsets(piece, topic)
        counts = SPEEDS[speed](piece, recorded, state, time_rows, offset_rows)
        times += map(tuple, time_rows[: counts[0]].tolist())
        offsets += map(tuple, offset_rows[: counts[1]].tolist())
        if state["refusal"][0]:
            break
    else:
        end = int(batches["position"][-1] + batches["size_bytes"][-1]) if len(batches) else 0
        closing = np.empty((1, 2), np.int64)
        times += map(tuple, closing[: rule.close_index(state, end, closing)].tolist())
    refusal = int(state["refusal"][0])
    refused = (refusal, int(state["refused_position"][0])) if refusal else None
    return Indexes(times, offsets, refused)


@pytest.fixture(params=[(speed, step) for speed in SPEEDS for step in (None, 1)], ids=str)
def built(request: pytest.FixtureRequest) -> Callable[..., Indexes]:
    speed, step = request.param
    return lambda rows, sizes=None, **how: indexes_of(
        columns(rows, sizes), speed=speed, step=step, **how
    )


def at_offsets(*timestamps: int, base: int = 0) -> list[tuple[int, int]]:
    """One batch of one record for each timestamp, at offsets base, base + 1, ..."""
    return [(base + i, timestamp) for i, timestamp in enumerate(timestamps)]


REFUSED = {
    "row 40: a last offset below the base": (
        [(100, 1), (99, 2)], {"base": 100}, (rule.OFFSET_BELOW_BASE, 98)),
    "row 40: a negative last offset": ([(-1, 1)], {}, (rule.OFFSET_BELOW_BASE, 0)),
    "row 42: relative offset 2^31": (
        [(100, 1), (100 + 2**31, 2)], {"base": 100}, (rule.OFFSET_BEYOND_INT32, 98)),
    "row 42: offset Long.MAX": ([(LONG_MAX, 1)], {}, (rule.OFFSET_BEYOND_INT32, 0)),
    "row 44: an offset equal to the last indexed one, at an index point": (
        [(0, 1), (1, 2), (9, 3), (8, 4), (9, 5)], {}, (rule.OFFSETS_GO_BACK, 392)),
    "row 44: an offset below the last indexed one, at an index point": (
        [(0, 1), (1, 2), (9, 3), (8, 4), (7, 5)], {}, (rule.OFFSETS_GO_BACK, 392)),
    "row 45: an offset that goes back carries the new max, at the closing entry": (
        [(0, 1), (1, 2), (9, 3), (8, 4)], {}, (rule.TIME_OFFSETS_GO_BACK, 392)),
    "row 45: the same, at the next index point": (
        [(0, 1), (1, 2), (9, 3), (5, 7), (10, 4)], {}, (rule.TIME_OFFSETS_GO_BACK, 392)),
    "row 47: three slots, the third is reserved for the closing entry": (
        at_offsets(*range(10)), {"index_bytes": 36}, (rule.TIME_INDEX_FULL, 98 * 6)),
    "row 48: 47 bytes are three slots": (
        at_offsets(*range(10)), {"index_bytes": 47}, (rule.TIME_INDEX_FULL, 98 * 6)),
    "row 47: one slot: an index point is refused even if nothing would be written": (
        at_offsets(5, 4, 3, 2, 1, 0, 0, 0), {"index_bytes": 12}, (rule.TIME_INDEX_FULL, 196)),
    "row 47: four slots of the offset index, without any time entry": (
        at_offsets(*[-1] * 40), {"index_bytes": 36, "interval": 0},
        (rule.OFFSET_INDEX_FULL, 98 * 5)),
}  # fmt: skip


@each_case(("batches", "how", "refused"), REFUSED)
def test_kafka_leaves_no_index(
    built: Callable[..., Indexes],
    batches: list[tuple[int, int]],
    how: dict[str, int],
    refused: tuple[int, int],
) -> None:
    assert built(batches, **how).refused == refused
    assert REFUSALS[refused[0]]


FITS_EXACTLY = {
    "row 47: the closing entry takes the reserved slot": (
        at_offsets(*range(6)), 36, [(2, 2), (4, 4), (5, 5)]),
    "row 47: one slot is enough where no point is reached": (at_offsets(0, 1), 12, [(1, 1)]),
    "row 48: 48 bytes are four slots, three of them for index points": (
        at_offsets(*range(8)), 48, [(2, 2), (4, 4), (6, 6), (7, 7)]),
}  # fmt: skip


@each_case(("batches", "index_bytes", "times"), FITS_EXACTLY)
def test_a_small_index_that_is_just_large_enough(
    built: Callable[..., Indexes],
    batches: list[tuple[int, int]],
    index_bytes: int,
    times: list[tuple[int, int]],
) -> None:
    seen = built(batches, index_bytes=index_bytes)
    assert (seen.times, seen.refused) == (times, None)


# (last offset, max timestamp, offset of the first record that has it)
DIALECT_ENTRIES = {
    "recover: the last offset of the batch": ("recover", [(102, 5100, 101)], [(5100, 2)]),
    "live: the first record with the max": ("live", [(102, 5100, 101)], [(5100, 1)]),
    "live: the batch that first reached the max": (
        "live", [(102, 5100, 101), (105, 5100, 103)], [(5100, 1)]),
    "live: at an index point the batch at hand has been taken": (
        "live", [(102, 9, 101), (105, 8, 103), (108, 10, 106)], [(10, 6)]),
    "kip33: the offset after the last": ("kip33", [(102, 5100, 101)], [(5100, 3)]),
    "kip33: at an index point, the offset after the batch at hand, whoever has the max": (
        "kip33", [(102, 9), (105, 8), (108, 7)], [(9, 9)]),
    "kip33: a new max gets its entry at the next index point": (
        "kip33", [(102, 9), (105, 8), (108, 7), (111, 10), (119, 6)], [(9, 9), (10, 20)]),
    "kip33: the closing entry has the last offset of the segment, plus one": (
        "kip33", [(102, 9), (105, 8), (108, 7), (111, 10)], [(9, 9), (10, 12)]),
    "kip33: no closing entry where the max is indexed": (
        "kip33", [(102, 9), (105, 8), (108, 7), (111, 9)], [(9, 9)]),
    "kip33: no timestamps, no entry": ("kip33", [(102, -1)], []),
    "kip33: the last that fits int32": ("kip33", [(100 + MAX_INT32 - 1, 5)], [(5, MAX_INT32)]),
}  # fmt: skip


@each_case(("dialect", "batches", "times"), DIALECT_ENTRIES)
def test_dialect(
    built: Callable[..., Indexes],
    dialect: str,
    batches: list[tuple[int, ...]],
    times: list[tuple[int, int]],
) -> None:
    assert built(batches, dialect=dialect, base=100) == Indexes(
        times, built(batches, base=100).offsets
    )


@each_case(
    ("batches", "position"),
    {
        "at the closing entry": ([(100 + MAX_INT32, 5)], 98),
        "at an index point": ([(100, 1), (101, 2), (100 + MAX_INT32, 5)], 196),
    },
)
def test_kip33_refuses_a_next_offset_beyond_int32(
    built: Callable[..., Indexes], batches: list[tuple[int, int]], position: int
) -> None:
    assert built(batches, dialect="recover", base=100).refused is None
    refused = built(batches, dialect="kip33", base=100).refused
    assert refused == (rule.OFFSET_BEYOND_INT32, position)


def test_kip33_at_the_largest_offset_there_is(built: Callable[..., Indexes]) -> None:
    seen = built([(LONG_MAX, 5)], dialect="kip33", base=LONG_MAX)
    assert seen == Indexes([(5, 1)], [])


def test_live_takes_the_last_offset_in_cluster_metadata(built: Callable[..., Indexes]) -> None:
    batches = [(102, 5100, 101)]
    assert built(batches, dialect="live", base=100).times == [(5100, 1)]
    metadata = built(batches, dialect="live", base=100, topic="__cluster_metadata")
    assert metadata.times == [(5100, 2)]
    assert built(batches, dialect="live", base=100, topic="x__cluster_metadata").times == [
        (5100, 1)
    ]


# Properties, over segments of every kind of entry and the records that are in them.

BASE = 1000
written_segments = segments(base_offset=BASE)
dialects = st.sampled_from(sorted(DIALECTS))
intervals = st.one_of(st.integers(0, 400), st.just(4096))


def time_index_of(entries: Sequence[Written], interval: int, dialect: str) -> TimeIndex:
    seen = indexes_of(
        np.array(rows_of(entries, seek=True), BATCH), interval=interval, dialect=dialect, base=BASE
    )
    assert seen.refused is None
    return TimeIndex.from_entries(((t, BASE + o) for t, o in seen.times), base_offset=BASE)


@settings(max_examples=examples(200))
@given(written_segments, intervals, dialects)
def test_entries_are_sound_and_grow_up_to_the_largest_timestamp(
    entries: list[Written], interval: int, dialect: str
) -> None:
    """No record later than T comes before o; where o is the next offset, it may be at o."""
    index = time_index_of(entries, interval, dialect)
    for timestamp, offset in index:
        later = [o for o, t in record_pairs(entries) if t > timestamp]
        assert all(o >= offset if dialect == "kip33" else o > offset for o in later)
    assert (np.diff(index.timestamps) > 0).all()
    assert (np.diff(index.offsets) >= 0).all()
    assert (index.timestamps > -1).all()
    assert index.last_entry.timestamp == max([-1, *(entry.max_timestamp for entry in entries)])


@settings(max_examples=examples(300))
@given(written_segments, intervals, dialects, st.data())
def test_lookup_and_a_scan_forward_find_what_a_full_scan_finds(
    entries: list[Written], interval: int, dialect: str, data: st.DataObject
) -> None:
    """Kafka's search: the first record with timestamp >= T, by offset."""
    index = time_index_of(entries, interval, dialect)
    records = record_pairs(entries)
    near = st.sampled_from([t + by for _, t in records or [(0, 0)] for by in (-1, 0, 1)])
    target = Milliseconds(data.draw(st.one_of(near, st.integers(0, 40), st.integers(0, LONG_MAX))))
    expected = next(((o, t) for o, t in records if t >= target), None)

    # An entry may name the last of several records of a batch, and several batches may have T:
    # the batch that holds the offset is scanned from its first record, as the offset index has it.
    start = index.lookup_before(target) if dialect == "kip33" else index.lookup(target)
    scanned = [record for entry in entries if entry.last_offset >= start.offset
               for record in entry.records]  # fmt: skip
    assert next(((o, t) for o, t in scanned if t >= target), None) == expected


@settings(max_examples=examples(150))
@given(
    st.lists(st.tuples(st.integers(-2, 12) | st.integers(), st.integers(-3, 9)), max_size=20).map(
        lambda rows: [(o % 2**40, t) if abs(o) > 2**40 else (o, t) for o, t in rows]
    ),
    st.integers(0, 400),
    dialects,
    st.sampled_from([12, 24, 60, DEFAULT_SEGMENT_INDEX_BYTES]),
    st.integers(1, 20),
)
def test_compiled_and_plain_agree_on_anything(
    rows: list[tuple[int, int]], interval: int, dialect: str, index_bytes: int, step: int
) -> None:
    batches = columns(rows)
    how: dict[str, Any] = {"interval": interval, "dialect": dialect, "index_bytes": index_bytes}
    plain = indexes_of(batches, **how)
    assert indexes_of(batches, speed="compiled", step=step, **how) == plain
