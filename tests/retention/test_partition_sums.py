"""The sums of a partition: what a log's end, its file times and its missing parts make of them."""

from typing import Any

from kip33.catalog.schema import SEGMENTS
from kip33.retention.evaluated_tables import partitions_table
from kip33.retention.evaluation import RetentionRequest
from kip33.rules.policies import Policies
from tests.builders.judged_catalogs import judged_of
from tests.builders.random_catalogs import DAY_MS, LONG_MAX, NOW_MS, POLICY
from tests.cases import each_case

Row = dict[str, Any]


def row(base_offset: int | None, last_offset: int | None, **fields: Any) -> Row:
    return dict.fromkeys(SEGMENTS.names) | {
        "log_dir": "broker-1",
        "topic": "default",
        "partition": 0,
        "base_offset": base_offset,
        "last_offset": last_offset,
        "log_uri": f"file:///archive/broker-1/default-0/{base_offset}.log",
        "size_bytes": 100,
        "largest_timestamp": NOW_MS - 9 * DAY_MS,
        "largest_timestamp_source": "log",
        "status": "ok",
        **fields,
    }


def summary_of(*rows: Row) -> list[Row]:
    judged = judged_of([*rows], RetentionRequest(Policies(POLICY), NOW_MS))
    return partitions_table(judged).to_pylist()


def test_only_the_first_ten_that_rest_on_the_files_time_are_named() -> None:
    by_file = {"largest_timestamp_source": "last_modified"}
    rows = [row(number, number, **(by_file if number % 2 else {})) for number in range(30, 0, -1)]
    [found] = summary_of(*rows)
    assert found["last_modified_segments"] == 15
    assert found["last_modified_base_offsets"] == list(range(1, 20, 2))


def test_an_empty_segment_is_none_without_timestamps() -> None:
    by_file = {"largest_timestamp_source": "last_modified"}
    [found] = summary_of(row(0, 9, **by_file), row(10, None, **by_file, **EMPTY))
    assert found["last_modified_segments"] == 1
    assert found["last_modified_base_offsets"] == [0]


def test_rows_of_no_partition_are_one_of_their_own() -> None:
    nowhere = {"topic": None, "partition": None, "status": "unreadable", "size_bytes": None}
    found = summary_of(
        row(None, None, **nowhere, log_uri="file:///archive/broker-1/a"),
        row(None, None, **nowhere, log_uri="file:///archive/broker-1/b"),
        row(0, 9),
    )
    assert [(one["topic"], one["partition"], one["segments"], one["mode"]) for one in found] == [
        (None, None, 2, "no_policy"),
        ("default", 0, 1, "delete"),
    ]
    assert (found[0]["bytes"], found[0]["doubtful_segments"], found[0]["first_base_offset"]) == (
        0,
        2,
        None,
    )


EMPTY = {"status": "empty", "size_bytes": 0}
ENDS: dict[str, tuple[list[tuple[int, int | None]], Row, int | None]] = {
    "after the last record": ([(0, 9), (10, 19)], {}, 20),
    "records were compacted away before the next segment": ([(0, 7), (10, 12)], {}, 13),
    "nothing is known of its last offset": ([(0, None)], {}, None),
    "where its empty last segment begins, as a broker has it": ([(0, 9), (50, None)], EMPTY, 50),
    "its end was not read": ([(0, 9), (10, None)], {"status": "unverified"}, None),
}


@each_case(("segments", "of_last", "end"), ENDS)
def test_where_a_log_ends(segments: Any, of_last: Row, end: int | None) -> None:
    *others, last = segments
    [found] = summary_of(*(row(*one) for one in others), row(*last, **of_last))
    assert found["log_end_offset"] == end


def test_the_largest_offset_there_is_ends_no_job() -> None:
    other = {"topic": "hourly", "log_uri": "file:///archive/broker-1/hourly-0/0.log"}
    found = summary_of(row(LONG_MAX, LONG_MAX), row(0, 9, **other))
    assert [one["topic"] for one in found] == ["default", "hourly"]
