"""Searches with the index files of KIP-33's drafts: the same answers, or no use of the file."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from kip33.drafts.designs import DRAFTS, design_of
from kip33.rules.index_builder import IndexSettings
from kip33.search.answers import SearchOptions
from kip33.search.partition_search import search_partition
from kip33.search.searched_segment import SearchedSegment
from tests.builders.generated_segments import Written, plain_batch, wire_of
from tests.builders.searched_segments import Partition, of_file, write_segment
from tests.long_forms import one_in

MINUTE = 60_000
START = 1_700_000_000_000


@st.composite
def partitions_of_minutes(draw: st.DrawFn) -> Partition:
    """Draw segments whose batches are some seconds or minutes apart, in order or not."""
    base, second, drawn = draw(st.sampled_from((0, 77))), 0, []
    rises = draw(st.booleans())
    steps = st.sampled_from((0, 1, 20, 60, 61, 600) if rises else (-600, -61, -1, 0, 20, 60, 600))
    for _ in range(draw(st.integers(1, 3))):
        entries: list[Written] = []
        for _ in range(draw(st.integers(0, 12))):
            second += draw(steps)
            late = draw(st.lists(st.integers(0, 90), min_size=1, max_size=3))
            times = [START + 1000 * (second - by) for by in late]
            entries.append(plain_batch(base, times, bytes(draw(st.sampled_from((0, 90, 2_000))))))
            base = entries[-1].last_offset + 1
        drawn.append((base if not entries else entries[0].offset_field, tuple(entries)))
        base += 1
    return Partition(tuple(drawn))


@cache
def log_of(times: tuple[int, ...]) -> bytes:
    return wire_of([plain_batch(n, [time], bytes(400)) for n, time in enumerate(times)])


def bytes_read(rows: list[SearchedSegment], target: int, **how: Any) -> int:
    return search_partition(rows, [target], SearchOptions(**how))[0].bytes_read


IN_ORDER = tuple(START + n * 10_000 for n in range(800))


@pytest.mark.parametrize("name", one_in(2, DRAFTS))
def test_with_a_late_batch_only_the_drafts_that_need_no_order_are_used(
    tmp_path: Path, name: str
) -> None:
    late = (START + n for n in range(100))
    times = (START, START + 5 * MINUTE, *late, START + 6 * MINUTE)
    row = write_segment(tmp_path, 0, log_of(times), dialect=name)

    [answer] = search_partition([row], [START + 4 * MINUTE])

    assert (answer.offset, answer.timestamp) == (1, START + 5 * MINUTE)
    note = (
        f"{row.log_uri}: the index of dialect {name} is not used: it needs timestamps in order, "
        "and 100 batches may be earlier than one before them"
    )
    assert answer.note == (note if DRAFTS[name].needs_order else None)


@pytest.mark.parametrize("name", one_in(2, DRAFTS))
def test_a_file_that_has_changed_since_the_build_is_not_used(tmp_path: Path, name: str) -> None:
    row = write_segment(tmp_path, 0, log_of(IN_ORDER), dialect=name)
    file = tmp_path / f"{0:020d}.{design_of(name).file}"
    os.utime(file, ns=(0, 0))

    [answer] = search_partition([row], [IN_ORDER[-5]])

    assert answer.offset == 795
    assert answer.note and "not used: it has changed since the build" in answer.note


@pytest.mark.parametrize("name", one_in(2, DRAFTS))
def test_a_file_with_wrong_entries_of_the_same_size_and_time_is_noticed(
    tmp_path: Path, name: str
) -> None:
    """Each entry is compared with the log before it is used."""
    write_segment(tmp_path, 0, log_of(IN_ORDER), dialect=name)
    file = tmp_path / f"{0:020d}.{design_of(name).file}"
    entry = 16 if name == "inline" else 12
    data = file.read_bytes()
    rows = [data[at : at + entry] for at in range(0, len(data), entry)]
    row = write_segment(tmp_path, 0, log_of(IN_ORDER), dialect=name)
    # Times of the first half, offsets of the second: a search would begin too late.
    half, times = len(rows) // 2, slice(8, 16) if name == "inline" else slice(0, 8)
    for number in range(half):
        moved = bytearray(rows[number + half])
        moved[times] = rows[number][times]
        rows[number] = bytes(moved)
    file.write_bytes(b"".join(rows[:half]) + b"".join(rows[half:]))
    row = row._replace(**of_file_columns(file))

    [answer] = search_partition([row], [IN_ORDER[100]])

    assert (answer.offset, answer.timestamp) == (100, IN_ORDER[100])
    assert answer.note and "the index is not used" in answer.note


def of_file_columns(file: Path) -> dict[str, Any]:
    """Return a row's columns for a file as if the build had written it so."""
    return of_file("time_index", file, IndexSettings())


@pytest.mark.parametrize("name", one_in(2, DRAFTS))
def test_without_its_file_the_index_beside_the_log_is_used(tmp_path: Path, name: str) -> None:
    row = write_segment(tmp_path, 0, log_of(IN_ORDER), dialect=name)
    (tmp_path / f"{0:020d}.{design_of(name).file}").unlink()
    walked = bytes_read([row], IN_ORDER[-5])
    write_segment(tmp_path, 0, log_of(IN_ORDER), dialect="recover")

    [answer] = search_partition([row], [IN_ORDER[-5]])

    assert answer.offset == 795
    assert answer.bytes_read < walked / 5
