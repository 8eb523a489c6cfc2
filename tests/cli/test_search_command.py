"""`kip33 search` as a user meets it: one time, files of them, ranges, what other tools take."""

import json
from pathlib import Path
from typing import Any

import pytest

from kip33.demo import START_MS
from kip33.search.time_search import ANSWERS
from tests.cli.console import Command, Finished, file_named

DAY_MS = 86_400_000
MINUTE_MS = 60_000
AT_107 = START_MS + 107 * MINUTE_MS  # a record of sensors-0 and sensors-1


@pytest.fixture
def search(command: Command, built: Path, no_spark: None) -> Command:
    """Return `kip33 search` of the built catalog; Spark is not to start."""

    def run(*arguments: Any) -> Finished:
        return command("search", built / "indexes/_catalog", *arguments)

    return run


def answers(done: Finished) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done
    return done.lines


def test_one_time_in_every_partition_of_a_topic(search: Command) -> None:
    found = answers(search("--time", AT_107, "--topic", "sens*", "--format", "jsonl"))

    assert [tuple(row) for row in found] == [(*ANSWERS.names, "target")] * 2
    assert [(row["partition"], row["offset"], row["timestamp"]) for row in found] == [
        (0, 107, AT_107),
        (1, 107, AT_107),
    ]
    assert all(row["result"] == "found" and row["exactness"] == "record" for row in found)
    assert all(0 < row["bytes_read"] < 64 * 1024 for row in found)


def test_times_may_be_relative_and_ends(search: Command) -> None:
    """Every way to say a moment: tests/cli/test_moments.py."""
    arguments = ("--topic", "sensors", "--partition", 0, "--now", AT_107 + 3_600_000)
    for time, offset in {"-1h": 107, "earliest": 0, "latest": 1200, "max-timestamp": 277}.items():
        [row] = answers(search("--time", time, *arguments, "--format", "jsonl"))
        assert row["offset"] == offset


def test_a_file_of_requests_is_answered_in_its_order(search: Command) -> None:
    text = (
        "topic,partition,time,log_dir\n"
        "sensors,,earliest,\n"
        f"orders,0,{START_MS + DAY_MS},broker-2\n"
        "orders,7,latest,\n"
        "none,0,2023-11-15,\n"
        "metrics,0,0,\n"
        "payments,0,2024-01-01,\n"
    )

    found = answers(search("--requests", file_named("r.csv", text.encode()), "--format", "jsonl"))

    assert [
        (r["log_dir"], r["topic"], r["partition"], r["offset"], r["result"]) for r in found
    ] == [
        ("broker-1", "sensors", 0, 0, "found"),
        ("broker-1", "sensors", 1, 0, "found"),
        ("broker-2", "orders", 0, 4000, "found"),
        (None, "orders", 7, None, "no_such_partition"),
        (None, "none", 0, None, "no_such_partition"),
        ("broker-2", "metrics", 0, None, "no_timestamps"),
        ("broker-1", "payments", 0, None, "after_end"),
    ]


def test_as_kafka_names_what_hides_a_record(search: Command) -> None:
    """The index of metrics-0 has nothing; its file's time is later than the time asked for."""
    arguments = ("--time", START_MS, "--topic", "metrics", "--format", "jsonl")

    [row] = answers(search(*arguments, "--as", "kafka"))

    assert (row["offset"], row["result"]) == (None, "no_timestamps")
    assert row["note"].startswith("file_time: Kafka searches only ")


def test_reset_offsets_has_a_line_a_partition_and_a_warning_for_ends(search: Command) -> None:
    done = search("--time", AT_107, "--topic", "sensors", "--topic", "payments", "--emit",
                  "reset-offsets")  # fmt: skip

    assert done.stdout == "payments,0,240\nsensors,0,107\nsensors,1,107\n"
    assert (
        done.stderr
        == "Warning: payments-0: after_end; the end of the partition is used, offset 240\n"
    )


def test_spark_takes_its_starting_offsets(search: Command) -> None:
    done = search("--time", AT_107, "--topic", "sensors", "--topic", "payments", "--emit", "spark")

    assert json.loads(done.stdout) == {"payments": {"0": -1}, "sensors": {"0": 107, "1": 107}}


def test_delete_records_takes_offsets_for_times(search: Command) -> None:
    done = search("--time", AT_107, "--topic", "sensors", "--emit", "delete-records")

    assert done.stderr.startswith("Newer records before the offsets: 0, in 2 partitions; ")
    without_a_time = search("--time", "earliest", "--topic", "sensors", "--emit", "delete-records")
    assert "Newer records" not in without_a_time.stderr
    assert json.loads(done.stdout)["partitions"] == [
        {"topic": "sensors", "partition": partition, "offset": 107} for partition in (0, 1)
    ]


def test_the_table_ends_with_what_was_found(search: Command) -> None:
    done = search("--time", AT_107, "--topic", "sensors")

    assert "broker-1/sensors-0" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("2 answers, 2 found; ")
