"""A snapshot judged some partitions at a time, against all of its rows at once."""

from typing import NamedTuple

import pyarrow as pa
import pytest

from kip33.catalog import draft, partitions
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.holes import read_holes
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.segment_order import PARTITION
from kip33.retention.evaluated_tables import freed_table, partitions_table, segment_rows
from kip33.retention.evaluation import RetentionRequest, judged_tables
from kip33.retention.snapshot_sums import sums_of, sums_of_all
from kip33.rules.policies import Policies
from kip33.rules.retention import WhatIf
from tests.builders.judged_catalogs import judged_at_once
from tests.builders.random_catalogs import NOW_MS, POLICY, LogStartOffsets
from tests.builders.ranged_catalogs import ranged_catalog

POLICIES = Policies(POLICY)
MOMENTS = (NOW_MS, NOW_MS + 40 * 86_400_000)
ROWS_EACH = 40
TOPICS = [(), ("!hourly",), ("none",)]


class Ranged(NamedTuple):
    catalog: Catalog
    snapshot: Snapshot
    starts: LogStartOffsets


@pytest.fixture(scope="module")
def ranged(tmp_path_factory: pytest.TempPathFactory) -> Ranged:
    with pytest.MonkeyPatch.context() as small:
        small.setattr(draft, "ROWS_PER_GROUP", ROWS_EACH)
        catalog, starts = ranged_catalog(tmp_path_factory.mktemp("ranged"))
    return Ranged(catalog, catalog.require_newest(), starts)


@pytest.fixture
def in_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "TABLE_ROWS", ROWS_EACH)


def request_of(ranged: Ranged, topics: tuple[str, ...]) -> RetentionRequest:
    names = partitions.names_in(ranged.catalog, ranged.snapshot)
    return RetentionRequest(
        POLICIES,
        NOW_MS,
        ranged.starts,
        topics,
        what_if=WhatIf(3_600_000),
        moments_ms=MOMENTS,
        reborn=partitions.topics_with_several_ids(names),
    )


@pytest.mark.parametrize("topics", TOPICS, ids=str)
def test_sums_and_holes_are_those_of_all_rows_at_once(
    topics: tuple[str, ...], ranged: Ranged, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, request = ranged[:2], request_of(ranged, topics)
    at_once = judged_at_once(ranged.catalog, request)
    holes = read_holes(*place, topics, policies=POLICIES)
    monkeypatch.setattr(partitions, "TABLE_ROWS", ROWS_EACH)

    parts = [sums_of(judged, request) for judged in judged_tables(*place, request, SEGMENTS.names)]
    found = sums_of_all(*place, request, parts)

    assert found.partitions == partitions_table(at_once)
    assert found.freed == freed_table(at_once, MOMENTS)
    assert found.holes == holes == read_holes(*place, topics, policies=POLICIES)
    assert topics == ("none",) or len(set(holes["hole"].to_pylist())) == 4


@pytest.mark.parametrize("topics", TOPICS, ids=str)
@pytest.mark.usefixtures("in_ranges")
def test_segments_come_in_order(topics: tuple[str, ...], ranged: Ranged) -> None:
    place, request = ranged[:2], request_of(ranged, topics)
    tables = judged_tables(*place, request, SEGMENTS.names)
    found = [rows for judged in tables for rows in segment_rows(judged)]
    assert len(found) > 5 or topics == ("none",)
    expected = segment_rows(judged_at_once(ranged.catalog, request))
    assert pa.concat_tables(found) == pa.concat_tables(expected)


@pytest.mark.usefixtures("in_ranges")
def test_a_table_has_few_rows_and_whole_partitions(ranged: Ranged) -> None:
    tables = list(partitions.partitions(*ranged[:2], SEGMENTS.names))
    assert pa.concat_tables(tables) == ranged.catalog.read(ranged.snapshot)
    names = [rows.select(PARTITION) for rows in tables]
    of = [set(map(tuple, zip(*rows, strict=True))) for rows in names]
    assert len(set().union(*of)) == sum(map(len, of))
    small = [rows for rows, some in zip(tables, of, strict=True) if len(some) > 1]
    assert len(small) > 5
    assert max(rows.num_rows for rows in small) < 3 * ROWS_EACH
