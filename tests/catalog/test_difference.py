"""What changed between two snapshots: a table of segments before and after."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kip33.archive.listing import CHECKPOINTS
from kip33.catalog.catalog import Catalog
from kip33.catalog.difference import DIFFERENCE, count_changes, difference
from kip33.catalog.draft import ROWS_PER_GROUP
from kip33.catalog.schema import BUILD_SETTINGS, SEGMENTS
from kip33.catalog.segment_order import KEY, side_by_side
from kip33.errors import CatalogError
from tests.builders.snapshots import part_path, row, write
from tests.cases import each_case

URI = "file:///archive/0.log"
UNLISTABLE = {"log_uri": "file:///archive/orders-0", "status": "unreadable", "error": "no"}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog.at(str(tmp_path / "_catalog"))


def changes(
    catalog: Catalog, before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> dict[str, list[str]]:
    """Return the changes of each segment, by its URI."""
    found = difference(catalog, write(catalog, before), write(catalog, after))
    assert found.schema == DIFFERENCE
    return {one["log_uri"]: one["changes"] for one in found.to_pylist()}


CHANGES = [
    ({}, {}, None, "nothing"),
    ({}, {"size_bytes": 11}, ["grown"], "one byte more"),
    ({}, {"size_bytes": 9}, ["shrunk"], "one byte less"),
    (
        {}, {"size_bytes": 2**62, "last_modified_ms": 9, "last_offset": 7, "record_count": 9},
        ["grown"], "what follows from another size is not told again",
    ),
    (
        {}, {"size_bytes": 11, "status": "truncated"}, ["grown", "status changed"],
        "several changes",
    ),
    ({}, {"status": "truncated"}, ["status changed"], "another status"),
    (
        {}, {"status": "invalid", "last_offset": None, "batch_count": None, "error": "bad"},
        ["status changed"], "what follows from another status is not told again",
    ),
    (
        {}, {"status": "invalid", "last_modified_ms": 9}, ["status changed", "modified"],
        "another status and written again",
    ),
    ({}, {"last_modified_ms": 9}, ["modified"], "written again"),
    ({}, {"record_count": None}, ["modified"], "records no longer counted"),
    ({"error": "a"}, {"error": "b"}, ["modified"], "another error"),
    ({"error": "a"}, {"error": None}, ["modified"], "no error any more"),
    ({"size_bytes": None}, {}, ["modified"], "a size that was not known"),
    ({}, {"size_bytes": None}, ["modified"], "a size that is not known"),
    (
        {"size_bytes": None, "batch_count": None}, {"size_bytes": None, "batch_count": None},
        None, "unknown stays unknown",
    ),
    (
        {}, {"time_index_entries": 9, "bytes_version": 2, "index_file": "kept",
             "notes": ["x"], "index_uri": "x", "active_segment": True, "time_index_bytes": 24},
        None, "what a build decides is no change of a segment",
    ),
]  # fmt: skip


@each_case(("before", "after", "expected", "name"), CHANGES)
def test_a_segment_that_was_there_has(
    before: Any, after: Any, expected: Any, name: str, catalog: Catalog
) -> None:
    found = changes(catalog, [row(0, **before)], [row(0, **after)])
    assert found == ({URI: expected} if expected else {})


def test_a_row_says_what_was_and_what_is(catalog: Catalog) -> None:
    before = write(catalog, [row(0), row(1, size_bytes=5), row(3)])
    after = write(catalog, [row(2, size_bytes=7, status="empty")], [row(0), row(1, status="bad")])
    rows = [list(one.values()) for one in difference(catalog, before, after).to_pylist()]
    assert rows == [
        ["file:///archive/1.log", ["grown", "status changed"], 5, 10, "ok", "bad"],
        ["file:///archive/2.log", ["added"], None, 7, None, "empty"],
        ["file:///archive/3.log", ["gone"], 10, None, "ok", None],
    ]


def test_segments_are_matched_across_row_groups(catalog: Catalog) -> None:
    """Forty thousand segments in another order, in other parts; every hundredth has grown."""
    number = 2 * ROWS_PER_GROUP + 3
    rows = [row(n, size_bytes=n, codecs=None, magics=None) for n in range(number)]
    before = write(catalog, rows[:7], rows[7:])
    moved = [one | {"size_bytes": n + (n % 100 == 0)} for n, one in enumerate(rows)]
    after = write(catalog, list(reversed(moved)))
    found = difference(catalog, before, after)
    uris = [one["log_uri"] for one in rows[::100]]
    assert found["log_uri"].to_pylist() == uris
    sizes = (found[name].to_pylist() for name in ("size_bytes_before", "size_bytes_after"))
    by_uri = {one["log_uri"]: one["size_bytes"] for one in rows}
    assert list(zip(*sizes, strict=True)) == [(by_uri[uri], by_uri[uri] + 1) for uri in uris]
    assert count_changes(found) == {"grown": len(uris)}


def test_a_log_of_another_partition_is_another_segment(catalog: Catalog) -> None:
    """Another --layout may read the same path in another way."""
    before = write(catalog, [row(0, partition=7), row(1)])
    after = write(catalog, [row(0, partition=8), row(1)])
    found = difference(catalog, before, after)
    assert found["log_uri"].to_pylist() == [URI, URI]
    assert found["changes"].to_pylist() == [["gone"], ["added"]]


def test_one_table_of_each_snapshot_is_read_ahead() -> None:
    numbers = [range(0, 90, 10), range(5, 90, 30)]
    ahead: Counter[int] = Counter()  # rows

    def run(which: int) -> Iterator[pa.Table]:
        for number in numbers[which]:
            ahead[which] += 2
            rows = [row(number), row(number + 3)]
            yield pa.Table.from_pylist(rows, SEGMENTS).select(KEY)

    seen = []
    for some in side_by_side([run(0), run(1)], SEGMENTS.empty_table().select(KEY)):
        for which, rows in enumerate(some):
            seen += rows["partition"].to_pylist()
            ahead[which] -= rows.num_rows
        assert max(ahead.values()) <= 2
    assert seen == sorted(number + more for each in numbers for number in each for more in (0, 3))


UNLISTED = [
    ([UNLISTABLE], [UNLISTABLE], {}),
    ([], [UNLISTABLE], {UNLISTABLE["log_uri"]: ["added"]}),
    ([UNLISTABLE], [row(0)], {URI: ["added"], UNLISTABLE["log_uri"]: ["gone"]}),
    (
        [UNLISTABLE],
        [UNLISTABLE | {"error": "why"}],
        {UNLISTABLE["log_uri"]: ["modified"]},
    ),
]


@each_case(("before", "after", "expected"), UNLISTED)
def test_a_directory_that_cannot_be_listed(
    before: Any, after: Any, expected: Any, catalog: Catalog
) -> None:
    assert changes(catalog, before, after) == expected


WITHOUT_ROWS = [
    ([], [], []),
    ([], [[]], []),
    ([[]], [[row(0), row(1)]], ["added", "added"]),
    ([[row(0), row(1)]], [], ["gone", "gone"]),
]


@each_case(("before", "after", "expected"), WITHOUT_ROWS)
def test_a_snapshot_without_rows(before: Any, after: Any, expected: Any, catalog: Catalog) -> None:
    found = difference(catalog, write(catalog, *before), write(catalog, *after))
    assert found.schema == DIFFERENCE
    assert [name for names in found["changes"].to_pylist() for name in names] == expected


def test_a_damaged_part_is_reported(catalog: Catalog) -> None:
    before, after = write(catalog, [row(0)]), write(catalog, [row(0)])
    part_path(catalog, before).unlink()
    with pytest.raises(CatalogError, match=r"part-00000\.parquet: this part is missing"):
        difference(catalog, before, after)


def test_every_column_is_compared_or_left_out_on_purpose(catalog: Catalog) -> None:
    """A new column of the catalog has to be thought of here."""
    left_out = {"log_dir", "topic", "partition", "base_offset"}  # the URI says them
    left_out |= {"index_uri", "time_index_entries", "active_segment"}  # a build's
    left_out |= {"index_file", "kip33_version", "open_transactions", *BUILD_SETTINGS}
    left_out |= {"index_error", "notes", "file_time_offset"}
    for kind in ("time", "offset", "transaction"):
        left_out |= {
            f"{kind}_index_{what}" for what in ("bytes", "matches", "modified_ms", "crc32c")
        }
    left_out |= {"timestamp_types", "magics", "codecs"}  # no batch changes without other figures
    left_out |= {"topic_id", "partition_metadata_modified_ms"}  # of a file beside the log
    left_out |= {"leader_epochs", "leader_epoch_offsets", "batches_crc32"}  # as the magics
    left_out |= {"epochs_fall", *CHECKPOINTS}  # likewise, and of files beside the log
    left_out |= {"largest_timestamp_source", "smallest_timestamp"}
    other: dict[str, Any] = {"int64": 3, "string": "other"}
    for field in SEGMENTS:
        if field.name not in left_out | {"log_uri"}:
            found = changes(catalog, [row(0)], [row(0, **{field.name: other[str(field.type)]})])
            assert list(found) == [URI], field.name
