"""What the catalog says of a segment's batches, and where its largest timestamp is from."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kip33.formats.batch import BATCH, CODEC_NAMES
from kip33.formats.native import compiler
from kip33.rules.segment_summary import (
    NO_RECORDS,
    TIMESTAMP_TYPES,
    largest_timestamp,
    names_of,
    new_summary,
    smallest_timestamp,
    summarize,
)
from tests.builders.generated_segments import LONG_MAX, Written, rows_of, segments
from tests.cases import each_case
from tests.long_forms import examples

NO_BATCHES = {
    "batch_count": 0, "record_count": 0, "wrappers": 0, "first_batch_timestamp": -1,
    "last_offset": -1, "max_timestamp": -1, "offset_of_max_timestamp": -1,
    "smallest_timestamp": NO_RECORDS, "unknown_smallest": 0,
    "out_of_order_batches": 0, "codecs": 0, "timestamp_types": 0, "marked": 0,
    "understated": 0, "latest_epoch": -1, "epoch_falls": 0,
}  # fmt: skip


def summary_of(
    rows: Sequence[Any], *, compiled: bool = False, step: int | None = None
) -> tuple[dict[str, int], list[int]]:
    """Return the summary by field and the magics seen."""
    batches = np.array(rows, BATCH)
    summary, seen = new_summary(), np.zeros(256, np.uint8)
    run = compiler.compiled(summarize) if compiled else summarize
    for at in range(0, len(batches), step or len(batches) or 1):
        run(batches[at : at + (step or len(batches))], summary, seen)
    values = summary[0].item()
    return dict(zip(summary.dtype.names, values, strict=True)), (
        np.flatnonzero(seen) - 128
    ).tolist()


def row(
    timestamp: int,
    offset: int = 0,
    *,
    records: int = 1,
    attributes: int = 0,
    magic: int = 2,
    base: int | None = None,
    epoch: int = 0,
) -> tuple[int, ...]:
    base = timestamp if base is None else base
    return (
        0,
        61,
        offset,
        offset,
        timestamp,
        offset,
        -1,
        epoch,
        records,
        attributes,
        magic,
        0,
        base,
        0,
    )


def test_no_batches() -> None:
    assert summary_of([]) == (NO_BATCHES, [])


CASES = {
    "batches of transactions and control batches are marked": (
        [row(5, 7), row(5, 8, attributes=16), row(5, 9, attributes=48), row(5, 10, attributes=32)],
        {"marked": 3}),
    "a max timestamp below the base timestamp is understated, unless the broker set either": (
        [row(5, base=6), row(5, base=5), *(row(5, base=6, attributes=a) for a in (8, 64, 4))],
        {"understated": 2}),
    "one batch": ([row(5, 7)], {"first_batch_timestamp": 5, "last_offset": 7}),
    "equal timestamps: the first batch that has the max": ([row(5, 1), row(9, 2), row(9, 3)],
        {"max_timestamp": 9, "offset_of_max_timestamp": 2}),
    "batches below an earlier max are out of order, an equal one is not": (
        [row(5), row(3), row(4), row(5), row(6)], {"out_of_order_batches": 2}),
    "-1 is not out of order": ([row(5), row(-1), row(6)], {"out_of_order_batches": 0}),
    "the first batch may have no timestamp": ([row(-1), row(8)],
        {"first_batch_timestamp": -1, "max_timestamp": 8}),
    "below -1 there is no max": ([row(-5), row(-1)],
        {"max_timestamp": -1, "offset_of_max_timestamp": -1, "first_batch_timestamp": -5}),
    "0 is a max": ([row(0, 4)], {"max_timestamp": 0, "offset_of_max_timestamp": 4}),
    "far": ([row(LONG_MAX), row(1)], {"max_timestamp": LONG_MAX, "out_of_order_batches": 1}),
    "records are counted": ([row(1, records=3), row(1, records=0), row(1, records=4)],
        {"record_count": 7, "wrappers": 0}),
    "a wrapper's are not": ([row(1, records=3), row(1, records=-1, magic=1)],
        {"record_count": 3, "wrappers": 1}),
    "the smallest of single records and of LogAppendTime": (
        [row(5), row(3), row(4, records=9, attributes=8)],
        {"smallest_timestamp": 3, "unknown_smallest": 0}),
    "several records with CreateTime may have any smaller timestamp": (
        [row(5), row(3, records=2), row(3, records=-1, magic=1)], {"unknown_smallest": 2}),
    "a record may have no timestamp": ([row(5), row(-1, magic=0)], {"smallest_timestamp": -1}),
    "the last one's offset": ([row(1, 9), row(1, 4)], {"last_offset": 4}),
    "a leader epoch below an earlier one is a fall, an unknown one is not": (
        [row(1, epoch=epoch) for epoch in (3, 3, 5, 4, 5, -1)],
        {"latest_epoch": 5, "epoch_falls": 1}),
    "codecs are bits": ([row(1, attributes=a) for a in (0, 4, 7)], {"codecs": 0b10010001}),
    "v0 has no type": ([row(-1, magic=0, attributes=8)], {"timestamp_types": 1}),
    "CreateTime": ([row(1)], {"timestamp_types": 2}),
    "LogAppendTime": ([row(1, attributes=0x0A)], {"timestamp_types": 4}),
}  # fmt: skip


@each_case(
    ("rows", "smallest"),
    {
        "no batches": ([], None),
        "single records": ([row(5), row(3)], 3),
        "one batch with several records": ([row(5), row(3, records=2)], None),
    },
)
def test_the_smallest_timestamp_is_known_or_none(
    rows: list[tuple[int, ...]], smallest: int | None
) -> None:
    assert smallest_timestamp(summary_of(rows)[0]) == smallest


@each_case("compiled", [False, True])
@each_case(("rows", "expected"), CASES)
def test_summary(rows: list[tuple[int, ...]], expected: dict[str, int], compiled: bool) -> None:
    summary, _ = summary_of(rows, compiled=compiled)
    assert {name: summary[name] for name in expected} == expected
    assert summary["batch_count"] == len(rows)


@each_case("compiled", [False, True])
def test_magics_seen_are_signed(compiled: bool) -> None:
    rows = [row(1, magic=magic) for magic in (2, -128, 0, 127, 2)]
    assert summary_of(rows, compiled=compiled)[1] == [-128, 0, 2, 127]


@settings(max_examples=examples(100))
@given(segments(), st.integers(1, 5))
def test_summary_of_any_log_in_any_pieces(entries: list[Written], step: int) -> None:
    plain = summary_of(rows_of(entries))
    assert summary_of(rows_of(entries), compiled=True, step=step) == plain
    summary, magics = plain
    times = [entry.max_timestamp for entry in entries]
    largest = max([-1, *times])
    assert summary["max_timestamp"] == largest
    assert summary["batch_count"] == len(entries)
    assert summary["record_count"] == sum(max(0, entry.records_count) for entry in entries)
    assert magics == sorted({entry.magic for entry in entries})
    if largest > -1:
        assert summary["offset_of_max_timestamp"] == entries[times.index(largest)].last_offset


@each_case(
    ("max_timestamp", "expected"),
    [(5, (5, "log")), (0, (0, "log")), (-1, (777, "last_modified")), (-7, (777, "last_modified"))],
)
def test_largest_timestamp_falls_back_to_the_modification_time(
    max_timestamp: int, expected: tuple[int, str]
) -> None:
    assert largest_timestamp(max_timestamp, 777) == expected


def test_names_of_bits() -> None:
    assert names_of(0b101, TIMESTAMP_TYPES) == ("NoTimestampType", "LogAppendTime")
    assert names_of(0b00010011, CODEC_NAMES) == ("none", "gzip", "zstd")
    assert names_of(0b11100000, CODEC_NAMES) == ("codec-5", "codec-6", "codec-7")
    assert names_of(0, CODEC_NAMES) == ()
