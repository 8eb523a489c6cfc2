"""`kip33 timestamps` as a user meets it: an archive with one mistake of each kind."""

from pathlib import Path
from typing import Any

import pytest

from kip33.audits.timestamp_plan import TIMESTAMPS
from kip33.demo import COPIED_MS, START_MS, write
from tests.builders.segment_builder import Record, v0_message, v2_batch
from tests.cli.console import Command, Finished, file_named, result_in
from tests.faults.builds import build_here

HOUR, DAY = 3_600_000, 86_400_000
NOW = ("--now", COPIED_MS + DAY)
LATENCIES_MS = (5, 20, 30, 900)


def created(*timestamps: int) -> list[bytes]:
    return [v2_batch(i, [Record(timestamp)]) for i, timestamp in enumerate(timestamps)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with a topic for each finding, and its catalog."""
    root = tmp_path_factory.mktemp("timestamps")
    archive = root / "archive"
    stamped = [
        v2_batch(i, [Record(START_MS - ms)], log_append_time=START_MS)
        for i, ms in enumerate(LATENCIES_MS)
    ]
    write(archive, "broker-1/stamped-0", 0, stamped)
    write(archive, "broker-1/orders-0", 0, created(START_MS, START_MS + 9, START_MS + 7))
    write(archive, "broker-1/orders-1", 0, created(START_MS))
    write(archive, "broker-1/units-0", 0, created(START_MS // 1000, START_MS * 1000))
    write(archive, "broker-1/ahead-0", 0, created(COPIED_MS + 3 * HOUR))
    write(archive, "broker-1/mixed-0", 0, [v0_message(0), *created(START_MS, START_MS)[1:]])
    write(archive, "broker-1/torn-0", 0, [created(START_MS)[0] + b"torn"])
    build_here(archive, root / "indexes", now_ms=COPIED_MS + DAY)
    return root


@pytest.fixture
def timestamps(command: Command, made: Path) -> Command:
    def run(*arguments: Any, source: Path = made / "archive") -> Finished:
        return command("timestamps", source, *NOW, "--result-line", *arguments)

    return run


def rows(done: Finished) -> dict[str, dict[str, Any]]:
    """Return the rows by topic and partition."""
    assert done.exit_code == 0, done
    lines = done.lines
    assert all(list(row) == TIMESTAMPS.names for row in lines)
    return {
        row["topic"] if row["partition"] is None else f"{row['topic']}-{row['partition']}": row
        for row in lines
    }


def test_each_partition_has_a_row(timestamps: Command) -> None:
    found = rows(timestamps("--format", "jsonl"))
    types = {name: row["timestamp_type"] for name, row in found.items()}
    assert types == {
        "ahead-0": "CreateTime", "mixed-0": "mixed", "orders-0": "CreateTime",
        "orders-1": "CreateTime", "stamped-0": "LogAppendTime", "torn-0": "CreateTime",
        "units-0": "CreateTime",
    }  # fmt: skip
    assert (found["units-0"]["seconds"], found["units-0"]["microseconds"]) == (1, 1)
    assert found["orders-0"]["behind"] == [
        {"up_to_ms": 0, "batches": 2}, {"up_to_ms": 10, "batches": 1},
    ]  # fmt: skip
    latency = {name: found["stamped-0"][f"latency_{name}"] for name in ("min_ms", "median_ms")}
    assert latency == {"min_ms": 5, "median_ms": 20}
    assert found["stamped-0"]["latency_p99_ms"] == found["stamped-0"]["latency_max_ms"] == 900
    assert "4 bytes left" in found["torn-0"]["problems"][0]


def rejected(done: Finished, name: str) -> tuple[int, int]:
    row = rows(done)[name]
    return row["rejected_before"], row["rejected_after"]


def test_limits_come_from_options_policies_and_kafka_configs(timestamps: Command) -> None:
    def at(name: str, *options: Any) -> tuple[int, int]:
        return rejected(timestamps("--format", "jsonl", "--topic", name[:-2], *options), name)

    before, after, difference = (
        f"--message-timestamp-{which}-max-ms" for which in ("before", "after", "difference")
    )
    assert at("ahead-0") == (0, 1)  # an hour, the default of Kafka 4
    assert at("ahead-0", after, "3h") == (0, 0)
    assert at("ahead-0", difference, "3h") == (0, 0)
    assert at("orders-0", before, 7 * DAY - 8) == (2, 0)
    assert at("stamped-0", before, 20) == (2, 0)  # by their own append times
    policy = file_named("p.toml", b'[topics.ahead]\nmessage.timestamp.after.max.ms = "3h"\n')
    assert at("ahead-0", "--policy", policy) == (0, 0)
    described = b"Dynamic configs for topic ahead are:\n  message.timestamp.after.max.ms=%d "
    line = described % (3 * HOUR) + b"sensitive=false synonyms={}\n"
    assert at("ahead-0", "--kafka-configs", file_named("configs.txt", line)) == (0, 0)
    assert at("ahead-0", "--policy", policy, after, "1h") == (0, 1)


def test_a_catalog_alone_reads_no_log(timestamps: Command, made: Path) -> None:
    options = ("--format", "jsonl", "--catalog-only")
    done = timestamps(*options, source=made / "indexes/_catalog")
    found = rows(done)
    assert found["units-0"]["microseconds"] == 1
    assert found["stamped-0"]["timestamp_type"] == "LogAppendTime"
    assert found["stamped-0"]["latency_max_ms"] is None
    assert result_in(done)["bytes_read"] == 0
    table = timestamps("--catalog-only", source=made / "indexes/_catalog").stdout
    assert "From the catalog alone: out of order and suspicious are lower limits." in table


def test_the_table_says_which_clock_was_used(timestamps: Command) -> None:
    done = timestamps()
    assert "LogAppendTime batches are compared with their own append time" in done.stdout
    assert "compared with the time of their file" in done.stdout
    assert "no limit before the clock, more than 1 h after the clock" in done.stdout
    assert "1 seconds, 1 microseconds" in done.stdout
    assert "torn-0/00000000000000000000.log: at byte" in done.stderr
    assert "compared with --now" in timestamps("--clock", "now").stdout


@pytest.mark.spark
def test_spark_gives_the_rows_of_the_local_engine(
    timestamps: Command, spark_command: Command, spark: Any, made: Path
) -> None:
    from kip33.spark import timestamp_profile

    local = timestamps("--format", "jsonl").lines
    on_spark = timestamps("--format", "jsonl", "--engine", "spark").lines
    frame = timestamp_profile(spark, str(made / "archive"), now_ms=NOW[1])
    catalog = timestamp_profile(spark, str(made / "indexes/_catalog"), now_ms=NOW[1])

    assert on_spark == local
    for found in (frame, catalog):
        assert [row.asDict(recursive=True) for row in found.collect()] == local


def test_a_topic_is_the_sum_of_its_partitions(timestamps: Command) -> None:
    found = rows(timestamps("--format", "jsonl", "--by", "topic", "--topic", "orders"))
    assert list(found) == ["orders"]
    assert (found["orders"]["batches"], found["orders"]["out_of_order_batches"]) == (4, 1)
    assert (found["orders"]["log_dir"], found["orders"]["segments"]) == (None, 2)
