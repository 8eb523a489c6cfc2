"""What is wrong between two tiers, and which segments are where: columns in, rows out."""

from typing import Any

import pyarrow as pa

from kip33.catalog.schema import SEGMENTS
from kip33.catalog.tier_findings import (
    PARTITIONS,
    TIER_FINDINGS,
    findings_in,
    tier_partitions,
    worst_first,
)
from kip33.catalog.tiers import united
from kip33.rules.policies import Policies
from tests.builders.snapshots import row
from tests.cases import each_case

Segment = tuple[int, int | None, dict[str, Any]]  # base offset, end, what is unusual
WHOLE: dict[str, Any] = {}
SECOND = {"record_count": 11, "batches_crc32": 7}
NO_EPOCHS = {"leader_epochs": None, "leader_epoch_offsets": None}
UNREADABLE = {"status": "unreadable", **NO_EPOCHS}
CUT = {"status": "truncated"}


def epochs(starts: dict[int, int]) -> dict[str, Any]:
    return {"leader_epochs": [*starts], "leader_epoch_offsets": [*starts.values()]}


def rows(tier: str, segments: list[Segment], log_dir: str) -> list[dict[str, Any]]:
    of_all: dict[str, Any] = {
        "log_dir": log_dir,
        "topic": "orders",
        "partition": 0,
        "topic_id": "A" * 22,
        **dict.fromkeys(
            ("checkpoint_epochs", "checkpoint_epoch_offsets", "checkpoint_log_start_offset")
        ),
    }
    return [
        row(0)
        | of_all
        | epochs({0: base})
        | {"max_timestamp": 5, "batches_crc32": base if end is None else base + end}
        | {
            "base_offset": base,
            "last_offset": None if end is None else end - 1,
            "record_count": 10 if end is None else end - base,
            "log_uri": f"file:///{tier}/{base}.log",
        }
        | unusual
        for base, end, unusual in segments
    ]


def put_together(*replicas: list[Segment], remote: list[Segment]) -> pa.Table:
    """Return the rows of local replicas b1, b2, ... and of the remote tier."""
    local = [
        one
        for number, segments in enumerate(replicas, 1)
        for one in rows(f"b{number}", segments, f"b{number}")
    ]
    tables = (pa.Table.from_pylist(some, SEGMENTS) for some in (local, rows("r", remote, "")))
    return united(*tables)


def findings(table: pa.Table, **how: Any) -> list[tuple[Any, ...]]:
    found = worst_first(findings_in(table, **how))
    assert found.schema == TIER_FINDINGS
    return [
        (
            *(one[name] for name in ("finding", "log_dir", "first_offset", "last_offset")),
            " ".join(uri.removeprefix("file:///").removesuffix(".log") for uri in one["segments"]),
        )
        for one in found.to_pylist()
    ]


FINDINGS = {
    "nothing uploaded": ([(0, 10, WHOLE)], [], []),
    "not on these brokers": ([], [(0, 10, WHOLE)], []),
    "one after the other, as at a follower of KIP-1023": ([(10, 20, WHOLE)], [(0, 10, WHOLE)], []),
    "a copy": ([(10, 20, WHOLE)], [(0, 10, WHOLE), (10, 20, WHOLE)], []),
    "other boundaries": ([(5, 20, WHOLE)], [(0, 10, WHOLE)], []),
    "a front that retention took": ([(500, 510, WHOLE)], [(400, 500, WHOLE)], []),
    "lost before the upload": (
        [(15, 20, WHOLE)],
        [(0, 10, WHOLE)],
        [("hole between tiers", "b1", 10, 14, "r/0 b1/15")],
    ),
    "an object is gone": (
        [(30, 40, WHOLE)],
        [(0, 10, WHOLE), (20, 30, WHOLE)],
        [("hole", None, 10, 19, "r/0 r/20")],
    ),
    "the remote tier has what is gone locally": (
        [(0, 10, WHOLE), (20, 30, WHOLE)],
        [(0, 10, WHOLE), (10, 20, WHOLE)],
        [],
    ),
    "a hole of compaction": ([(15, 20, WHOLE)], [(0, 10, {"record_count": 7})], []),
    "not the same records": (
        [(0, 10, WHOLE)],
        [(0, 10, SECOND)],
        [("difference", "b1", 0, 9, "b1/0 r/0")],
    ),
    "a damaged copy": ([(0, 10, WHOLE)], [(0, 10, UNREADABLE)], []),
    "a damaged upload": (
        [(10, 20, WHOLE)],
        [(0, None, UNREADABLE)],
        [("damage", None, 0, 9, "r/0")],
    ),
    "the last upload is damaged": (
        [],
        [(0, 10, WHOLE), (10, None, UNREADABLE)],
        [("damage", None, 10, None, "r/10")],
    ),
    "a part of an upload": ([(10, 20, WHOLE)], [(0, 4, CUT)], [("damage", None, 4, 9, "r/0")]),
    "an unfinished upload, and another one": (
        [],
        [(0, None, UNREADABLE), (0, 10, WHOLE), (10, 20, WHOLE)],
        [],
    ),
    "cut, and uploaded": ([(0, 4, CUT), (10, 20, WHOLE)], [(0, 10, WHOLE)], []),
    "cut, and not uploaded": ([(0, 4, CUT), (10, 20, WHOLE)], [], [("damage", "b1", 4, 9, "b1/0")]),
    "the last records of a leader were lost": (
        [(5, 30, epochs({0: 5, 2: 15}))],
        [(0, 10, epochs({0: 0})), (10, 20, epochs({0: 10}))],
        [("earlier leader", None, 15, 19, "r/10")],
    ),
    "other boundaries, and no leader epochs": (
        [(0, 5, NO_EPOCHS)],
        [(0, 10, NO_EPOCHS), (7, 20, NO_EPOCHS)],
        [
            ("unknown epochs", None, 5, 9, "r/0"),
            ("unknown epochs", None, 7, 19, "r/7"),
            ("unknown epochs", "b1", 0, 4, "b1/0"),
        ],
    ),
    "the end of a log that is written": ([(0, 4, CUT)], [], []),
    "nothing": ([], [], []),
}


@each_case(("local", "remote", "found"), FINDINGS)
def test_what_is_wrong_between_the_tiers(local: Any, remote: Any, found: Any) -> None:
    assert findings(put_together(local, remote=remote)) == found


def test_what_concerns_the_remote_tier_alone_is_found_once_for_all_replicas() -> None:
    remote: list[Segment] = [(0, 10, WHOLE), (20, 30, WHOLE)]
    table = put_together([(30, 40, WHOLE)], [(30, 50, WHOLE)], [(35, 50, WHOLE)], remote=remote)
    assert findings(table) == [("hole", None, 10, 19, "r/0 r/20")]  # 30 to 34 are on b1


def test_a_hole_between_the_tiers_may_come_from_an_old_remote_catalog() -> None:
    table = put_together([(15, 20, WHOLE)], remote=[(0, 10, WHOLE)])
    for is_older in (False, True):
        [found] = findings_in(table, is_remote_older=is_older)
        assert ("build the remote catalog again" in found["advice"]) == is_older


def test_policies_say_which_topics_are_compacted() -> None:
    table = put_together([(15, 20, WHOLE)], remote=[(0, 10, WHOLE)])
    policies = Policies({"defaults": {"cleanup.policy": "compact"}})
    assert findings(table, policies=policies) == []


def test_which_segments_are_in_which_tier() -> None:
    table = put_together(
        [(10, 20, WHOLE), (20, 30, WHOLE), (30, None, {"status": "empty"})],
        [],
        [(25, 40, WHOLE)],
        remote=[(0, 10, WHOLE), (10, 20, WHOLE), (20, 30, WHOLE)],
    )
    found = tier_partitions(table)
    assert found.schema == PARTITIONS
    figures = [tuple(one.values())[3:] for one in found.to_pylist()]
    assert [one["log_dir"] for one in found.to_pylist()] == ["b1", "b3"]
    assert figures == [
        (3, 30, 10, 29, 3, 30, 0, 29, 1, 1, 2),
        (1, 10, 25, 39, 3, 30, 0, 29, 1, 3, 0),
    ]
    assert tier_partitions(put_together([], remote=[])).num_rows == 0
