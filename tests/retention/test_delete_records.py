"""What `kafka-delete-records.sh` is told to delete: a sentence and a topic a row.

All topics stand in one catalog, which is judged twice: the last segment kept, and as a broker does.
"""

import json
from typing import Any, Final, NamedTuple

import pytest

from kip33.catalog.schema import SEGMENTS
from kip33.retention.evaluated_tables import delete_records_of, partitions_table
from kip33.retention.evaluation import RetentionRequest
from kip33.rules.policies import Policies
from tests.builders.judged_catalogs import judged_of
from tests.builders.random_catalogs import DAY_MS, NOW_MS

OLD, NEW = NOW_MS - 10 * DAY_MS, NOW_MS - DAY_MS // 2
AHEAD = NOW_MS + 900 * DAY_MS
POLICIES = Policies(
    {
        "defaults": {"retention.ms": DAY_MS, "cleanup.policy": "delete"},
        "topics": {
            "compacted*": {"cleanup.policy": "compact"},
            "both": {"cleanup.policy": "compact,delete"},
            "kept*": {"retention.ms": -1},
            "sized": {"retention.ms": -1, "retention.bytes": 1_000},
            "__transaction_state": {"cleanup.policy": "delete", "retention.ms": 1},
        },
    }
)
Row = dict[str, Any]
KEEP, KAFKA = "keep", "kafka"
NONE: Final = None  # the partition is not named


class Segment(NamedTuple):
    """One segment of ten records, a thousand bytes."""

    base_offset: int
    largest_timestamp: int | None
    status: str = "ok"
    size_bytes: int = 1_000


def old(*base_offsets: int) -> list[Segment]:
    return [Segment(base, OLD) for base in base_offsets]


def new(*base_offsets: int) -> list[Segment]:
    return [Segment(base, NEW) for base in base_offsets]


class Case(NamedTuple):
    """A topic's only partition in one log directory or several, and the offset it gets."""

    sentence: str
    topic: str
    replicas: list[list[Segment]]
    keep: int | None  # the last segment is kept
    kafka: int | None  # it is judged as a broker does
    log_start_offset: int | None = None


CASES = [
    Case("what is old goes", "some-old", [old(0, 10) + new(20, 30)], 20, 20),
    Case("all is old: up to the log end offset", "all-old", [old(0, 10, 20)], 20, 30),
    Case("one segment, and it is old", "one-old", [old(7)], NONE, 17),
    Case("offsets that begin late", "late", [old(2**40) + new(2**40 + 10)], 2**40 + 10, 2**40 + 10),
    Case("a gap before what stays", "gap", [old(0) + new(500)], 500, 500),
    Case("a gap after the last one", "end-gap", [old(0, 500)], 500, 510),
    Case("no record", "empty", [[Segment(0, OLD, "empty", 0)]], NONE, NONE),
    Case(
        "an empty last segment stays, as a broker keeps one",
        *("rolled", [[*old(0), Segment(10, OLD, "empty", 0)]], 10, 10),
    ),
    Case("what is blocked stays", "blocked", [[Segment(0, AHEAD), *old(10, 20)]], NONE, NONE),
    Case("up to what blocks", "stuck", [[*old(0), Segment(10, AHEAD), *old(20, 30)]], 10, 10),
    Case("what lies before the log's start", "kept-from-20", [old(0, 10, 20)], 20, 20, 20),
    Case("the log starts within a segment", "kept-from-15", [old(0, 10, 20)], 10, 10, 15),
    Case(
        "compacted, and the log starts later: Kafka refuses",
        *("compacted-from-20", [old(0, 10, 20)], NONE, NONE, 20),
    ),
    Case("compacted and deleted: Kafka does not", "both", [old(0, 10, 20)], 20, 30),
    Case(
        "the replica that keeps most decides: the last",
        *("last-slow", [old(0, 10, 20) + new(30), old(0, 10) + new(20), old(0) + new(10)], 10, 10),
    ),
    Case(
        "a replica that began later, and keeps the same",
        *("began-later", [old(0, 10) + new(20), old(10) + new(20)], 20, 20),
    ),
    Case(
        "a replica that loses nothing, for it begins where the other one ends",
        *("none-left", [old(0, 10) + new(20), new(20, 30)], NONE, NONE),
    ),
    Case(
        "a replica that is blocked",
        *("one-blocked", [old(0, 10), [Segment(0, AHEAD), *old(10)]], NONE, NONE),
    ),
    Case(
        "all is old, one replica has less of it",
        *("less", [old(0, 10, 20), old(0, 10)], 10, 20),
    ),
    Case("Kafka's own topics are compacted", "__consumer_offsets", [old(0, 10, 20)], NONE, NONE),
    Case("the controllers' log", "__cluster_metadata", [old(0, 10, 20)], NONE, NONE),
]


def row_of(case: Case, log_dir: int, segment: Segment) -> Row:
    directory = f"file:///archive/broker-{log_dir}/{case.topic}-0"
    holds_records = segment.status != "empty"
    return catalog_row(
        log_dir=f"broker-{log_dir}",
        topic=case.topic,
        partition=0,
        log_uri=f"{directory}/{segment.base_offset:020d}.log",
        last_offset=segment.base_offset + 9 if holds_records else None,
        **segment._asdict(),
    )


def catalog_row(**fields: Any) -> Row:
    given = {"largest_timestamp_source": "log", "last_modified_ms": OLD} | fields
    return dict.fromkeys(SEGMENTS.names) | given


def unlistable(log_dir: str | None, topic: str | None, partition: int | None) -> Row:
    """Return the row of a directory that could not be listed."""
    uri = f"file:///archive/{log_dir}/{topic}-{partition}"
    place = {"log_dir": log_dir, "topic": topic, "partition": partition, "log_uri": uri}
    return catalog_row(**place, status="unreadable", largest_timestamp_source=None)


STARTS = {
    ("broker-0", case.topic, 0): case.log_start_offset for case in CASES if case.log_start_offset
}


def told(rows: list[Row], active_segment: str = KEEP) -> dict[str, Any]:
    """Return the JSON for a catalog's rows, after it went through text."""
    asked = RetentionRequest(POLICIES, NOW_MS, STARTS, active_segment=active_segment)
    partitions = partitions_table(judged_of(rows, asked)).to_pylist()
    document: dict[str, Any] = json.loads(json.dumps(delete_records_of(partitions)))
    return document


@pytest.fixture(scope="module", params=[KEEP, KAFKA])
def answer(request: Any) -> tuple[str, dict[str, Any]]:
    """How the last segment is judged, and what is told for all cases in one catalog."""
    rows = [
        row_of(case, log_dir, segment)
        for case in CASES
        for log_dir, segments in enumerate(case.replicas)
        for segment in segments
    ]
    rows += [
        unlistable("broker-0", "first-slow", 1),  # a partition of which nothing is known
        unlistable("broker-0", None, None),  # a folder that is no partition's
        unlistable(None, None, None),
    ]
    assert len({case.topic for case in CASES}) == len(CASES)
    return request.param, told(rows, request.param)


def parsed_by_kafka(document: dict[str, Any]) -> dict[tuple[str, int], int]:
    """Return what `DeleteRecordsCommand.parseJsonData` reads, refusing what it refuses.

    Its decoders take a number for no text, no text for a number, and null for neither.
    """
    assert type(document["version"]) is int
    assert document["version"] == 1
    offsets: dict[tuple[str, int], int] = {}
    for one in document["partitions"]:
        topic, partition, offset = one["topic"], one["partition"], one["offset"]
        assert (type(topic), type(partition), type(offset)) == (str, int, int), one
        assert 0 <= partition < 2**31
        assert 0 <= offset < 2**63  # -1 would be the high watermark: whatever was appended since
        assert (topic, partition) not in offsets, "Offset json file contains duplicate ..."
        offsets[topic, partition] = offset
    return offsets


def test_the_keys_are_those_that_kafkas_tool_parses(answer: tuple[str, dict[str, Any]]) -> None:
    active_segment, document = answer
    expected = {
        (case.topic, 0): offset
        for case in CASES
        if (offset := case.kafka if active_segment == KAFKA else case.keep) is not None
    }
    assert parsed_by_kafka(document) == expected
    assert list(document) == ["partitions", "version"]
    assert all(list(one) == ["topic", "partition", "offset"] for one in document["partitions"])


def test_partitions_are_in_order_of_their_numbers() -> None:
    case = Case("", "orders", [], NONE, NONE)
    rows = [
        row_of(case, 0, segment) | {"topic": topic, "partition": number}
        for topic in ("orders", "Orders", "a.b")
        for number in (10, 9, 100)
        for segment in old(0) + new(10)
    ]
    for row in rows:
        row["log_uri"] += f"#{row['topic']}-{row['partition']}"
    document = told(rows)
    assert [(one["topic"], one["partition"]) for one in document["partitions"]] == [
        (topic, number) for topic in ("Orders", "a.b", "orders") for number in (9, 10, 100)
    ]


def test_nothing_to_delete_is_an_empty_list() -> None:
    case = Case("", "orders", [], NONE, NONE)
    rows = [row_of(case, 0, segment) for segment in new(0, 10)]
    assert told(rows) == {"partitions": [], "version": 1}


def test_a_directory_that_cannot_be_listed_keeps_its_partition() -> None:
    """In this log directory or in another: what it holds is not known."""
    here, elsewhere = (Case("", topic, [], NONE, NONE) for topic in ("here", "elsewhere"))
    rows = [row_of(here, 0, segment) for segment in old(0) + new(10)]
    rows += [row_of(elsewhere, 0, segment) for segment in old(0) + new(10)]
    rows += [unlistable("broker-0", "here", 0), unlistable("broker-1", "elsewhere", 0)]
    assert told(rows, KAFKA)["partitions"] == []


def test_an_unread_end_is_not_null() -> None:
    """Rows of `--read tail` have no last offset; before the newest one's base offset is safe."""
    case = Case("", "tails", [], NONE, NONE)
    rows = [row_of(case, 0, segment) | {"last_offset": None} for segment in old(0, 10)]
    found = parsed_by_kafka(told(rows, KAFKA))
    assert found.items() <= {("tails", 0): 10}.items()


def test_internal_topics_are_left_out_whatever_their_policy() -> None:
    """`ReplicaManager.deleteRecordsOnLocalLog`: Cannot delete records of internal topic."""
    case = Case("", "__transaction_state", [], NONE, NONE)
    rows = [row_of(case, 0, segment) for segment in old(0, 10) + new(20)]
    assert told(rows)["partitions"] == []
