"""A catalog evaluated in this process, against plain loops over its rows and files."""

from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from kip33.catalog.catalog import Catalog
from kip33.catalog.schema import SEGMENTS
from kip33.retention.evaluated_tables import (
    freed_table,
    partitions_table,
    segment_rows,
    totals_of,
)
from kip33.retention.evaluation import JudgedRows, RetentionRequest, unmatched_lines
from kip33.retention.partition_texts import remarks_of
from kip33.retention.uploaded import Uploaded
from kip33.rules.policies import Policies
from kip33.rules.retention import WhatIf
from kip33.stores.locations import Location
from tests.builders.broker_archive import rows_with_files
from tests.builders.judged_catalogs import judged_at_once
from tests.builders.random_catalogs import (
    DAY_MS,
    NOW_MS,
    POLICY,
    LogStartOffsets,
    random_catalogs,
)
from tests.builders.snapshots import write
from tests.builders.summary_model import expected_of, partition_of, place
from tests.cases import each_case

SEED = 5
POLICIES = Policies(POLICY)
HOUR_MS = 3_600_000
SUMMED = ("what_if_deletable_bytes", "broker_deletable_bytes", "blocked_bytes", "doubtful_segments")
WHAT_IF_ASKED = WhatIf(retention_ms=HOUR_MS, ignore_future_ms=HOUR_MS)


class Archive(NamedTuple):
    """A catalog, its rows, log start offsets of some, and what was found."""

    catalog: Catalog
    rows: list[dict[str, Any]]
    starts: LogStartOffsets
    evaluated: JudgedRows
    judged: list[Any]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    root = tmp_path_factory.mktemp("evaluated")
    rows, starts = random_catalogs(150, SEED, doubled=0.01)
    rows = rows_with_files(rows, root / "archive", SEED)
    for row in rows:
        if row["base_offset"] is not None and row["status"] != "unverified":
            row["last_offset"] = row["base_offset"] + 9
    catalog = Catalog.at(str(root / "catalog"))
    write(catalog, rows[:300], [], rows[300:])
    evaluated = evaluate(catalog, starts, what_if=WHAT_IF_ASKED, broker_view=True)
    return Archive(catalog, rows, starts, evaluated, judged_rows(evaluated))


def evaluate(
    catalog: Catalog, starts: LogStartOffsets, topics: tuple[str, ...] = (), **asked: Any
) -> JudgedRows:
    request = RetentionRequest(POLICIES, NOW_MS, starts, topics, **asked)
    return judged_at_once(catalog, request)


def judged_rows(evaluated: JudgedRows) -> list[Any]:
    """Return the rows with their answers, as objects with these attributes and items."""
    return [Row(**row) for row in pa.concat_tables(segment_rows(evaluated)).to_pylist()]


class Row(SimpleNamespace):
    """A row whose columns are attributes and items."""

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


def test_rows_are_the_catalogs_in_order(archive: Archive) -> None:
    assert archive.judged == sorted(archive.judged, key=place)
    by_uri = {row["log_uri"]: row for row in archive.rows}
    assert len(archive.judged) == len(archive.rows) == len(by_uri)
    for row in archive.judged:
        assert {name: row[name] for name in SEGMENTS.names} == by_uri[row.log_uri]


def require_sums(table: pa.Table, judged: list[Any]) -> list[dict[str, Any]]:
    """Compare the sums of each partition with a loop over its judged rows; return the loop's."""
    expected = [expected_of(list(group)) for _, group in groupby(judged, partition_of)]
    differences = [
        (wanted["log_dir"], wanted["topic"], name, got[name], wanted[name])
        for got, wanted in zip(table.to_pylist(), expected, strict=True)
        for name in wanted
        if (dict(got[name]) if name == "suspicions" else got[name]) != wanted[name]
    ]
    assert not differences[:5]
    return expected


def test_every_sum_is_what_a_loop_finds(archive: Archive) -> None:
    table = partitions_table(archive.evaluated)
    expected = require_sums(table, archive.judged)
    assert {*table.column_names} == {*expected[0]}
    totals = totals_of(table)
    assert totals["segments"] == len(archive.rows)
    for name in SUMMED:
        assert totals[name] == sum(row[name] for row in expected) > 0, name


def test_sums_where_it_is_known_what_was_uploaded(archive: Archive) -> None:
    ranges = {("tiered", 0): (np.array([500]), np.array([2**41]))}
    below = frozenset(range(0, 500, 10))  # the remote tier has other records at these offsets
    other = {(row["log_dir"], "tiered", 0): below for row in archive.rows}
    tier = Uploaded(Location.of("/remote"), ranges, other)
    how = {"what_if": WHAT_IF_ASKED, "broker_view": True, "other_tier": tier}
    evaluated = evaluate(archive.catalog, archive.starts, **how)
    table = partitions_table(evaluated)
    require_sums(table, judged_rows(evaluated))
    for name in ("not_uploaded_segments", "other_records_segments"):
        assert totals_of(table)[name] > 0, name


def test_what_is_freed_by_a_moment_is_what_is_deletable_then(archive: Archive) -> None:
    moments = [NOW_MS - DAY_MS, NOW_MS, NOW_MS + DAY_MS, NOW_MS + 40 * DAY_MS]

    freed = freed_table(archive.evaluated, [*moments, NOW_MS]).to_pylist()

    assert freed == sorted(freed, key=lambda row: (row["at_ms"], row["topic"]))
    for moment in moments:
        for topic in {row.topic for row in archive.judged}:
            then = [
                row.size_bytes or 0
                for row in archive.judged
                if row.topic == topic
                and row.deletable_at_ms is not None
                and row.deletable_at_ms <= moment
            ]
            so_far = [row for row in freed if row["at_ms"] <= moment and row["topic"] == topic]
            assert sum(row["segments"] for row in so_far) == len(then)
            assert sum(row["bytes"] for row in so_far) == sum(then)


def test_topics_are_chosen_before_anything_is_asked(archive: Archive) -> None:
    topics = ("s*", "!*-timed")
    evaluated = evaluate(archive.catalog, archive.starts, topics)
    rows = judged_rows(evaluated)
    assert {row.topic for row in rows} == {"sized", "since-1970"}
    alone = [row for row in archive.judged if row.topic in ("sized", "since-1970")]
    assert [row.reason for row in rows] == [row.reason for row in alone]


@pytest.mark.parametrize("rows", [None, []], ids=["no part", "no row"])
def test_nothing_of_nothing(rows: list[Any] | None, tmp_path: Path) -> None:
    catalog = Catalog.at(str(tmp_path))
    write(catalog, *([] if rows is None else [rows]))
    evaluated = evaluate(catalog, {("b", "t", 0): 5}, what_if=WHAT_IF_ASKED, broker_view=True)
    assert judged_rows(evaluated) == []
    assert not (evaluated.broker_differs | evaluated.misread).any()
    assert freed_table(evaluated, [NOW_MS]).num_rows == 0
    totals = totals_of(partitions_table(evaluated))
    assert totals.pop("suspicions") == {}
    assert set(totals.values()) == {0}


NO_REMARKS: Any = {
    "suspicions": {},
    "last_modified_segments": 0,
    "last_modified_base_offsets": [],
    "active_expired_segments": 0,
    "unverified_segments": 0,
    "doubtful_segments": 0,
    "tiered_segments": 0,
    "not_uploaded_segments": 0,
    "other_records_segments": 0,
    "unreferenced_segments": 0,
}


REMARKS = [
    ({}, []),
    (
        {"last_modified_segments": 3, "last_modified_base_offsets": [0, 40]},
        [
            "3 segments without timestamps: judged by their files' modification time "
            "(base offsets 0 40 ...)"
        ],
    ),
    ({"active_expired_segments": 1}, ["expired, but kept: it is the active segment"]),
    ({"unverified_segments": 2, "tiered_segments": 1}, ["2 unverified", "1 tiered"]),
    (
        {
            "not_uploaded_segments": 2,
            "not_uploaded_base_offset": 40,
            "upload_before_ms": 1_700_000_000_000,
        },
        ["2 not uploaded, from base offset 40 on, to be uploaded before 2023-11-14T22:13:20.000Z"],
    ),
    (
        {"other_records_segments": 1, "other_records_base_offset": 7},
        ["1 of which the remote tier has other records at these offsets, from base offset 7 on"],
    ),
    ({"unreferenced_segments": 2}, ["2 unreferenced: not of this log"]),
]


@each_case(("row", "expected"), REMARKS)
def test_the_remarks_on_a_partition(row: Any, expected: Any) -> None:
    assert list(remarks_of(NO_REMARKS | row)) == expected


UNMATCHED: list[tuple[dict[str, Any], list[str], str]] = [
    ({"orders": {}, "pay*": {}}, [], "all match"),
    ({"order": {}}, ['"order" matches no topic, so it judges nothing; did you mean orders?'],
     "a name that is nearly a topic's"),
    ({"ordrs*": {}}, ['"ordrs*" matches no topic, so it judges nothing; did you mean orders?'],
     "a glob that is nearly a topic's name"),
    ({"order": {}, "orders": {}}, ['note: "order"'], "that topic has a section of its own"),
    ({"clicks": {}, "x*": {}}, ['note: "clicks", "x*"'], "nothing is near"),
    ({"__consumer_offsets": {}}, [], "a topic of Kafka's own"),
]  # fmt: skip


@each_case(("sections", "lines", "name"), UNMATCHED)
def test_a_section_that_matches_no_topic_is_named(
    sections: dict[str, Any], lines: list[str], name: str
) -> None:
    warnings, notes = unmatched_lines(Policies({"topics": sections}), ["orders", "payments"])
    found = [one.removeprefix("the policy's section ") for one in warnings]
    found += [one.replace("sections of the policy that match no topic:", "note:") for one in notes]
    assert found == lines


def test_a_topic_of_the_cluster_that_the_archive_lacks_is_no_mistake() -> None:
    policies = Policies({"topics": {"order": {}}}, of_tools=["order"])
    assert unmatched_lines(policies, ["orders"]) == ((), ())
