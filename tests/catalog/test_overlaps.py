"""Duplicates and overlaps: counted by `kip33 catalog`, noted where an answer depends on them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kip33.catalog.catalog import Catalog
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.topic_totals import topic_totals
from kip33.demo import START_MS, orders
from kip33.formats.kafka_configs import GroupOffset
from kip33.search.catalog_search import by_partition
from kip33.search.group_lag import group_lags
from kip33.search.range_size import range_size
from tests.builders import layouts as archives
from tests.builders.layout_segments import DAY_MS
from tests.builders.layouts import MODIFIED_MS, Stored, local_tiered
from tests.builders.segment_builder import segment
from tests.faults.builds import build_here, outcome

NOW_MS = MODIFIED_MS + DAY_MS
FIRST = Stored("orders", 0, 0, segment(orders(0, START_MS, 30)))  # offsets 0 to 299
INSIDE = Stored("orders", 0, 200, segment(orders(200, START_MS + 60_000, 30)))  # 200 to 499
LAST = Stored("orders", 0, 500, segment(orders(500, START_MS + 120_000, 30)))
ALONE = Stored("clicks", 0, 0, segment(orders(0, START_MS, 5)))
NOTE = "overlaps an earlier segment"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    local_tiered(tmp_path / "a", [FIRST, FIRST._replace(upload=1), INSIDE, LAST, ALONE])
    build_here(tmp_path / "a", tmp_path / "i", now_ms=NOW_MS, layout="local-tiered")
    return tmp_path / "i"


def rows(place: Path) -> list[dict[str, Any]]:
    return [row for row in outcome(place).rows if row["topic"] == "orders"]


def partitions(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    return by_partition(pa.Table.from_pylist(list(rows), SEGMENTS))


def test_counted_by_topic(place: Path) -> None:
    catalog = Catalog.at(str(place / "_catalog"))
    expected = {"orders": {"overlapping": 1, "same base offset": 1}}
    clicks, orders = topic_totals(catalog, catalog.require_newest())
    assert (clicks.overlaps, orders.overlaps) == ({}, expected["orders"])


def test_replicas_in_several_log_directories_are_not_a_finding(tmp_path: Path) -> None:
    for broker in ("b1", "b2"):
        archives.kafka(tmp_path / "a" / broker, [FIRST, LAST])
    build_here(tmp_path / "a", tmp_path / "i", now_ms=NOW_MS)
    catalog = Catalog.at(str(tmp_path / "i" / "_catalog"))
    assert [one.overlaps for one in topic_totals(catalog, catalog.require_newest())] == [{}]


def test_an_archive_that_cannot_be_listed_has_no_overlaps(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "again").symlink_to(tmp_path / "a")
    archives.kafka(tmp_path / "a", [ALONE])
    build_here(tmp_path / "a", tmp_path / "i", now_ms=NOW_MS)
    catalog = Catalog.at(str(tmp_path / "i" / "_catalog"))
    assert [one.overlaps for one in topic_totals(catalog, catalog.require_newest())] == [{}, {}]


def test_lag_notes_it(place: Path) -> None:
    offsets = [GroupOffset("g", "orders", 0, offset) for offset in (100, 250, 600, 800)]
    found = group_lags(partitions(rows(place)), offsets, now_ms=NOW_MS)
    assert [one.lag_records for one in found] == [700, 550, 200, 0]
    assert [NOTE in (one.note or "") for one in found] == [True, True, False, False]


def test_a_short_segment_inside_a_long_one_does_not_end_the_log(tmp_path: Path) -> None:
    inside = Stored("orders", 0, 100, segment(orders(100, START_MS, 3)))
    local_tiered(tmp_path / "a", [FIRST, inside])
    build_here(tmp_path / "a", tmp_path / "i", now_ms=NOW_MS, layout="local-tiered")
    offset = [GroupOffset("g", "orders", 0, 200)]
    (lag,) = group_lags(partitions(rows(tmp_path / "i")), offset, now_ms=NOW_MS)
    assert (lag.log_end_offset, lag.lag_records) == (300, 100)


def test_a_count_says_what_it_counted_twice(place: Path) -> None:
    size = range_size(rows(place), 0, 800)
    assert size.records == 300 + 300 + 300 + 300
    assert "counted twice" in (size.note or "")
    assert range_size(rows(place), 500, 800).note is None
