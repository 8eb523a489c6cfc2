"""`kip33 search` where records are lost or cut off: what --emit leaves out, where a log starts."""

import json
import os
from pathlib import Path

import pytest

from tests.builders.generated_segments import plain_batch, wire_of
from tests.cli.console import Command, Finished
from tests.faults.builds import build_here

OLD_NS = 1_600_000_000 * 10**9
AT_150, AT_250, AT_450 = (f"1970-01-01T00:00:00.{ms}Z" for ms in (150, 250, 450))


def write_log(directory: Path, base: int, times: list[int], *, broken: bool = False) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    log = bytearray(wire_of([plain_batch(base + i, [time]) for i, time in enumerate(times)]))
    if broken:
        log[40] ^= 1
    path = directory / f"{base:020d}.log"
    path.write_bytes(log)
    os.utime(path, ns=(OLD_NS, OLD_NS))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Topics: `sound`; `torn`, whose last segment is damaged; `bare`, without timestamps."""
    write_log(tmp_path / "a" / "sound-0", 0, [100, 200, 300])
    write_log(tmp_path / "a" / "torn-0", 0, [100, 200, 300])
    write_log(tmp_path / "a" / "torn-0", 3, [400, 500, 600], broken=True)
    write_log(tmp_path / "a" / "torn-0", 6, [700])
    write_log(tmp_path / "a" / "end-0", 0, [100, 200])
    write_log(tmp_path / "a" / "end-0", 2, [300], broken=True)
    write_log(tmp_path / "a" / "bare-0", 0, [-1, -1])
    return tmp_path


@pytest.fixture
def search(place: Path, command: Command) -> Command:
    """Return `kip33 search` of the place, built anew."""

    def run(*arguments: object) -> Finished:
        build_here(place / "a", place / "i")
        return command("search", place / "i/_catalog", *arguments)

    return run


def test_partitions_with_an_unsafe_answer_are_left_out_and_named(
    search: Command, subtests: pytest.Subtests
) -> None:
    for emit in ["reset-offsets", "delete-records"]:
        with subtests.test(f"{emit}"):
            done = search("--time", AT_250, "--emit", emit)

            assert done.exit_code == 0
            assert "sound" in done.stdout
            for name in ("bare", "end"):
                assert name not in done.stdout
                assert f"{name}-0: " in done.stderr
            assert "torn" in done.stdout, "its answer, 2, comes before the damage"
            assert done.stderr.count("the output leaves it out, --allow-unsafe prints it") == 2


def test_spark_gets_every_partition_or_none(search: Command) -> None:
    done = search("--time", AT_250, "--emit", "spark")
    allowed = search("--time", AT_250, "--emit", "spark", "--allow-unsafe")

    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "Spark refuses startingOffsets without every partition of a topic; " in done.stderr
    assert done.stderr.endswith("--allow-unsafe prints it; and 1 more\n")
    assert json.loads(allowed.stdout).keys() == {"bare", "end", "sound", "torn"}


def test_a_partition_without_records_is_emitted(place: Path, search: Command) -> None:
    write_log(place / "a" / "some-0", 0, [100, 200])
    write_log(place / "a" / "some-1", 0, [])
    write_log(place / "a" / "some-2", 7, [])

    asked = ("--time", AT_150, "--topic", "some", "--emit")
    of_spark, of_groups = search(*asked, "spark"), search(*asked, "reset-offsets")

    assert json.loads(of_spark.stdout) == {"some": {"0": 1, "1": -1, "2": -1}}
    assert of_groups.stdout.splitlines() == ["some,0,1", "some,1,0", "some,2,7"]
    assert "some-1: after_end; the end of the partition is used, offset 0" in of_groups.stderr


@pytest.mark.parametrize("emit", ["reset-offsets", "delete-records"])
def test_an_end_behind_records_without_timestamps_is_unsafe(
    place: Path, search: Command, emit: str
) -> None:
    write_log(place / "a" / "tail-0", 0, [100, 200, -1, -1])
    write_log(place / "a" / "tail-1", 0, [100, 200])

    done = search("--time", AT_450, "--topic", "tail", "--emit", emit)

    assert "tail-0: the record at offset 2 has no timestamp" in done.stderr
    assert "tail-1: after_end; the end of the partition is used, offset 2" in done.stderr
    assert done.stdout.strip() in (
        "tail,1,2",
        '{"version": 1, "partitions": [{"topic": "tail", "partition": 1, "offset": 2}]}',
        '{"partitions": [{"topic": "tail", "partition": 1, "offset": 2}], "version": 1}',
    )


@pytest.mark.parametrize("emit", ["reset-offsets", "delete-records"])
def test_an_answer_behind_a_record_without_a_timestamp_is_unsafe(
    place: Path, search: Command, emit: str
) -> None:
    write_log(place / "a" / "found-0", 0, [100, -1, 300, 400])
    write_log(place / "a" / "found-1", 0, [100, 200, 300, -1])

    done = search("--time", AT_250, "--topic", "found", "--emit", emit)

    assert "found-0: the record at offset 1 has no timestamp, so 2 could be behind" in done.stderr
    assert done.stderr.count("the output leaves it out") == 1
    assert done.stdout.strip() in (
        "found,1,2",
        '{"version": 1, "partitions": [{"topic": "found", "partition": 1, "offset": 2}]}',
        '{"partitions": [{"topic": "found", "partition": 1, "offset": 2}], "version": 1}',
    )


def test_a_skipped_segment_makes_an_offset_unsafe(search: Command) -> None:
    asked = ("--time", AT_450, "--topic", "torn", "--emit", "delete-records")
    done, allowed = search(*asked), search(*asked, "--allow-unsafe")

    assert json.loads(done.stdout)["partitions"] == []
    assert "torn-0: unsure, " in done.stderr
    [emitted] = json.loads(allowed.stdout)["partitions"]
    assert emitted == {"topic": "torn", "partition": 0, "offset": 6}
    assert "torn-0: unsure, " in allowed.stderr
    assert "offset 6 would be deleted (" in allowed.stderr


def test_a_broker_does_not_look_below_the_log_start_of_its_checkpoint(
    place: Path, search: Command
) -> None:
    checkpoint = place / "a" / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\nsound 0 2\n")
    arguments = ("--time", AT_150, "--topic", "sound", "--format", "jsonl")

    [kafkas] = search(*arguments, "--as", "kafka").lines
    [ours] = search(*arguments).lines

    assert (kafkas["offset"], ours["offset"]) == (2, 1)
    (place / "starts.csv").write_text("topic,partition,offset\nsound,0,1\n")
    [given] = search(*arguments, "--as", "kafka", "--log-start-offsets", "starts.csv").lines
    assert given["offset"] == 1
    alone = search(*arguments, "--log-start-offsets", "starts.csv")
    assert (alone.exit_code, alone.stderr.count("\n")) == (2, 1)
    assert "--log-start-offsets requires --as kafka" in alone.stderr
    older = search(*arguments, "--as", "kafka:4.3", "--max-decompressed-message-bytes", "1MiB")
    assert (older.exit_code, older.stderr.count("\n")) == (2, 1)
    assert "only brokers from Kafka 4.4 on have this limit" in older.stderr
