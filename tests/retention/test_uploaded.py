"""What a catalog of the remote tier proves about a broker's segments, by offsets and topic ids."""

from pathlib import Path
from typing import Any

import pytest

from kip33.catalog.catalog_columns import columns_of
from kip33.catalog.tiers import CatalogSnapshot
from kip33.errors import CatalogError
from kip33.retention.uploaded import Uploaded, uploaded_segments
from kip33.rules.policies import Policies
from kip33.rules.retention import REASONS
from tests.builders.snapshots import segment_row as segment
from tests.builders.snapshots import snapshot_of
from tests.cases import each_case

ID, OTHER_ID = "A" * 22, "B" * 22
TIERED = {"remote.storage.enable": True, "retention.ms": "7d"}
TOPICS = dict.fromkeys(("orders", "clicks", "ours"), TIERED)
POLICIES = Policies({"topics": {**TOPICS, "plain": {"retention.ms": 5}}})
Row = dict[str, Any]


def uploaded(root: Path, local: list[Row], remote: list[Row]) -> tuple[CatalogSnapshot, Uploaded]:
    here = snapshot_of(root / "local", local, "kafka")
    there = snapshot_of(root / "remote", remote, "aiven")
    return here, uploaded_segments(here, there, POLICIES)


LOCAL = [
    segment(0, 9, max_timestamp=7, magics=[2], leader_epochs=[0], leader_epoch_offsets=[0]),
    segment(10, 19, valid_bytes=7, leader_epochs=[2], leader_epoch_offsets=[10]),
    segment(20, 29),
    segment(30, None, status="empty"),
]
NO_ID = [segment(5, 9, topic="ours", topic_id=None)]
PROOF = {
    "all closed segments": ([segment(0, 9), segment(10, 19), segment(20, 29)], [0, 10, 20]),
    "nothing": ([], []),
    "the first ones": ([segment(0, 9), segment(10, 19)], [0, 10]),
    "other borders, as another leader rolled": ([segment(0, 4), segment(5, 24)], [0, 10]),
    "one inside of which ours lies": ([segment(0, 35)], [0, 10, 20]),
    "the same twice": ([segment(0, 9), segment(0, 9), segment(0, 19)], [0, 10]),
    "an upload that was cut": ([segment(0, 9), segment(10, 18), segment(20, 29)], [0, 20]),
    "a hole": ([segment(0, 9), segment(20, 29)], [0, 20]),
    "the newest only: retention has taken the others": ([segment(20, 29)], [20]),
    "rows that prove nothing": (
        [
            *(segment(0, 9, status=status) for status in ("truncated", "invalid", "unreadable")),
            *(segment(10, 19, status=status) for status in ("unverified", "archived")),
            segment(20, None, status="empty"),
        ],
        [],
    ),
    "another partition": ([segment(0, 29, partition=1)], []),
    "another topic": ([segment(0, 29, topic="clicks")], []),
    "an older topic of that name beside ours": (
        [segment(0, 9), segment(10, 29, topic_id=OTHER_ID)], [0],
    ),
    "rows without an id beside ours": ([segment(0, 9), segment(10, 19, topic_id=None)], [0, 10]),
    "no ids: the name matches, and the records": (
        [segment(0, 9, topic_id=None), segment(10, 19, topic_id=None)], [0, 10],
    ),
    "no ids: a longer segment may be of another topic of the name": (
        [segment(0, 19, topic_id=None), segment(20, 35, topic_id=None)], [],
    ),
    "no ids: a longer one beside an equal copy": (
        [segment(0, 35, topic_id=None), segment(10, 19, topic_id=None)], [10],
    ),
    "the topic of that name was created again: only leftovers are there": (
        [segment(0, 29, topic_id=OTHER_ID)], [],
    ),
    "ids of two topics of the name, of which one may be ours": (
        [segment(0, 9, topic="ours", topic_id=one * 22) for one in "CD"], [],
    ),
    "other records at the same offsets, as of another cluster": (
        [segment(0, 9, max_timestamp=9), segment(10, 19, valid_bytes=8), segment(20, 29)], [20],
    ),
    "other records, and an upload of ours": (
        [segment(0, 9, max_timestamp=9), segment(0, 9, max_timestamp=7, log_uri="file:///b")], [0],
    ),
    "records of a leader that the log does not have": (
        [segment(5, 24, leader_epochs=[1], leader_epoch_offsets=[5])], [],
    ),
    "rows of before schema 4: a copy alone, another leader may have lost the others": (
        [segment(0, 9, magics=[2]), segment(10, 24, magics=[2])], [0],
    ),
    "a magic that no broker writes": ([segment(0, 9, magics=[34]), segment(10, 24)], [10]),
    "offsets up to Long.MAX": ([segment(0, 2**63 - 1)], [0, 10, 20]),
}  # fmt: skip


@each_case(("remote", "expected"), PROOF)
def test_a_segment_is_uploaded_if_all_its_offsets_are_in_whole_segments(
    remote: Any, expected: Any, tmp_path: Path
) -> None:
    local, found = uploaded(tmp_path, [*LOCAL, *NO_ID], remote)
    columns = columns_of(local.catalog.read(local.snapshot))

    flags = dict(zip(columns.int64("base_offset").to_list(), found.has(columns), strict=True))

    assert [base for base in flags if flags[base]] == expected


def test_one_line_names_a_topic_of_another_id_and_the_others_are_judged(tmp_path: Path) -> None:
    clicks = segment(0, 9, topic="clicks", topic_id="C" * 22)
    remote = [segment(0, 9, topic_id=OTHER_ID), clicks]
    _, found = uploaded(tmp_path, [*LOCAL, clicks], remote)
    [warning] = found.warnings
    assert warning.startswith(f"topic orders: topic id {ID} in file://")
    assert f", {OTHER_ID} in " in warning
    assert found.ranges.keys() == {("clicks", 0)}


def test_a_segment_that_an_upload_contradicts_is_told_apart(tmp_path: Path) -> None:
    remote = [segment(0, 9, max_timestamp=9), segment(10, 19, valid_bytes=7)]
    local, found = uploaded(tmp_path, LOCAL, remote)
    codes, _ = found.of_segments(columns_of(local.catalog.read(local.snapshot)))
    reasons = [REASONS[code] if code >= 0 else None for code in codes]
    assert reasons == ["other_records", None, "not_uploaded", "not_uploaded"]


def test_records_that_only_a_replica_that_was_left_behind_has_prove_nothing(tmp_path: Path) -> None:
    lost, kept = ({"leader_epochs": [n], "leader_epoch_offsets": [10]} for n in (1, 2))
    local = [
        segment(20, 29, log_dir="1", log_uri="file:///1/20.log", **lost),
        segment(10, 19, log_dir="2", **kept),
        segment(20, 29, log_dir="2", **kept),
    ]
    here, found = uploaded(tmp_path, local, [segment(10, 19, **lost)])
    columns = columns_of(here.catalog.read(here.snapshot))
    assert not found.has(columns).any()


def test_topics_without_tiered_storage_are_not_looked_at(tmp_path: Path) -> None:
    remote = [segment(0, 99, topic="plain")]
    _, found = uploaded(tmp_path, [*LOCAL, segment(0, 9, topic="plain")], remote)
    assert found.ranges == {}


def test_the_judged_catalog_is_one_of_log_directories(tmp_path: Path) -> None:
    judged = snapshot_of(tmp_path / "remote", LOCAL, "aiven")
    local = snapshot_of(tmp_path / "local", LOCAL, "kafka")
    with pytest.raises(CatalogError, match=r"directories, which lose what was uploaded$"):
        uploaded_segments(judged, local, POLICIES)
