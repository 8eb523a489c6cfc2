"""The audit of a tree: its logs, one by one, give what one pass over each partition gives."""

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kip33.audits.timestamp_plan import (
    TIMESTAMPS,
    AuditClock,
    PartitionProfile,
    TimestampQuestion,
    catalog_rows,
    execute_timestamps,
    plan_timestamps,
    topic_profiles,
)
from kip33.catalog.catalog import Catalog
from kip33.demo import COPIED_MS, START_MS, orders, write
from kip33.errors import LocationError
from kip33.formats.batch import BATCH
from kip33.local.local_engine import LocalEngine
from kip33.rules.timestamp_profile import LimitChoice, ProfileQuestion, TimestampProfile
from tests.builders.generated_segments import Written, random_segment, rows_of
from tests.builders.segment_builder import Record, v2_batch
from tests.cases import each_case
from tests.faults.builds import build_here
from tests.long_forms import short_and_long
from tests.rules.test_timestamp_profile import as_record

NOW = COPIED_MS
DAY = 86_400_000
QUESTION = TimestampQuestion(LimitChoice(before_max_ms=DAY), AuditClock.FILE_TIME, NOW)


def found_in(source: Path, question: TimestampQuestion = QUESTION, **how: Any) -> Any:
    return execute_timestamps(plan_timestamps(str(source), question, **how), LocalEngine(1))


def in_catalog(root: Path, name: str = "archive") -> tuple[Path, Any]:
    """Build a catalog of an archive; return its place and its snapshot."""
    build_here(root / name, root / "indexes", now_ms=COPIED_MS + DAY)
    catalog = Catalog.at(str(root / "indexes/_catalog"))
    return root / "indexes/_catalog", catalog.require_newest()


def make_random(root: Path, seed: int) -> dict[tuple[str, int], list[list[Written]]]:
    """Write partitions of segments whose timestamps go back and forth across segments."""
    rng = random.Random(seed)
    made: dict[tuple[str, int], list[list[Written]]] = {}
    for partition in range(4):
        segments, offset = [], 0
        for _ in range(rng.randrange(1, 5)):
            entries = random_segment(rng, base_offset=offset, entries=rng.randrange(0, 12))
            write(root, f"broker-1/orders-{partition}", offset, [one.wire for one in entries])
            segments.append(entries)
            offset = 1 + max([offset, *(one.last_offset for one in entries)])
        made["orders", partition] = segments
    return made


def one_pass(segments: list[list[Written]], question: TimestampQuestion) -> TimestampProfile:
    """Return the profile of a partition's batches, as if they were in one segment."""
    made = TimestampProfile()
    rows = [row for one in segments for row in rows_of(one)]
    limits = question.limits.of("orders")
    clock_ms = question.clock_ms(COPIED_MS)
    made.append(
        np.array(rows, BATCH), ProfileQuestion(limits, question.now_ms, clock_ms, COPIED_MS)
    )
    return made


@each_case("clock", AuditClock)
@pytest.mark.parametrize("logs", short_and_long(3, 20, "KIP33_TIMESTAMP_LOGS"))
def test_segments_one_by_one_give_what_one_pass_gives(
    logs: int, clock: AuditClock, tmp_path: Path
) -> None:
    limits = LimitChoice(before_max_ms=NOW - 30)  # timestamps are from 0 to 120
    question = TimestampQuestion(limits, clock, NOW)
    for seed in range(logs):
        root = tmp_path / str(seed)
        made = make_random(root / "archive", seed)
        catalog, snapshot = in_catalog(root)

        of_source = found_in(root / "archive", question)
        of_catalog = found_in(catalog, question, snapshot=snapshot)

        expected = {key: as_record(one_pass(made[key], question)) for key in made}
        for found in (of_source, of_catalog):
            profiles = {(one.topic, one.partition): as_record(one.profile) for one in found}
            assert profiles == expected, f"seed {seed}"
            assert [one.segments for one in found] == [len(made[key]) for key in sorted(made)]


def late(root: Path, *timestamps: int) -> None:
    """Write a segment for each timestamp, of one batch."""
    for number, timestamp in enumerate(timestamps):
        write(root, "broker-1/orders-0", number, [v2_batch(number, [Record(timestamp)])])


def test_a_log_is_read_twice_only_if_an_earlier_one_is_later(tmp_path: Path) -> None:
    late(tmp_path / "up/archive", START_MS, START_MS + 1, START_MS + 2)
    late(tmp_path / "level/archive", START_MS, START_MS, START_MS)
    late(tmp_path / "down/archive", START_MS + 2, START_MS + 1, START_MS)

    [up], [level], [down] = (
        found_in(tmp_path / f"{name}/archive") for name in ("up", "level", "down")
    )

    assert (up.profile.out_of_order, down.profile.out_of_order) == (0, 2)
    assert level.bytes_read == up.bytes_read
    assert down.bytes_read == up.bytes_read * 5 // 3  # two of three logs again


def test_with_a_catalog_each_log_is_read_once(tmp_path: Path) -> None:
    late(tmp_path / "archive", START_MS + 2, START_MS + 1, START_MS)
    catalog, snapshot = in_catalog(tmp_path)

    [found] = found_in(catalog, snapshot=snapshot)

    logs = sum(log.stat().st_size for log in tmp_path.glob("archive/*/*/*.log"))
    assert (found.profile.out_of_order, found.bytes_read) == (2, logs)


def test_a_catalog_that_is_behind_the_logs_is_not_believed(tmp_path: Path) -> None:
    late(tmp_path / "archive", START_MS, START_MS + 5)
    catalog, snapshot = in_catalog(tmp_path)
    late(tmp_path / "archive", START_MS + 9)  # the first segment was replaced

    [found] = found_in(catalog, snapshot=snapshot)

    assert found.profile.furthest_behind_ms == 4


def test_replicas_do_not_mix(tmp_path: Path) -> None:
    late(tmp_path / "archive", START_MS)
    write(tmp_path / "archive", "broker-2/orders-0", 1, [v2_batch(1, [Record(START_MS - 5)])])

    found = found_in(tmp_path / "archive")
    [topic] = topic_profiles(found)

    assert [one.log_dir for one in found] == ["broker-1", "broker-2"]
    assert topic[:4] == (None, "orders", None, 2)
    assert (topic.profile.batches, topic.profile.out_of_order) == (2, 0)


def test_the_time_of_each_file_is_its_own(tmp_path: Path) -> None:
    late(tmp_path / "archive", START_MS, START_MS)
    [first, _] = sorted(tmp_path.glob("archive/*/*/*.log"))
    os.utime(first, ns=(0, (START_MS + DAY) * 1_000_000))

    [found] = found_in(tmp_path / "archive")

    assert found.profile.rejected_before == 1  # the other file is a week later
    assert found.profile.before_file.sum() == 2


def problems(found: list[PartitionProfile]) -> list[str]:
    return [problem for one in found for problem in one.problems]


def test_a_log_that_cannot_be_read_is_a_problem_of_its_partition(tmp_path: Path) -> None:
    late(tmp_path / "archive", START_MS, START_MS + 1)
    catalog, snapshot = in_catalog(tmp_path)
    [first, second] = sorted(tmp_path.glob("archive/*/*/*.log"))
    first.unlink()
    second.write_bytes(second.read_bytes() + b"torn")

    found = found_in(catalog, snapshot=snapshot)

    assert [one.profile.batches for one in found] == [1]
    [missing, torn] = problems(found)
    assert first.name in missing and "No such file" in missing
    assert second.name in torn and "4 bytes left" in torn


def test_a_segment_that_kafka_does_not_keep_is_a_problem(tmp_path: Path) -> None:
    backwards = orders(5000, START_MS, 20) + orders(0, START_MS, 20)
    write(tmp_path / "archive", "broker-1/orders-0", 0, backwards)
    catalog, snapshot = in_catalog(tmp_path)

    [found] = found_in(catalog, snapshot=snapshot)

    assert found.profile.batches == 0
    assert "invalid: " in found.problems[0]


def test_an_unlistable_directory_is_a_problem(tmp_path: Path) -> None:
    late(tmp_path / "archive", START_MS)
    (tmp_path / "archive/loop").symlink_to(".")

    found = found_in(tmp_path / "archive")

    assert [one.topic for one in found] == ["orders", None]
    assert "a link to a directory above itself" in problems(found)[0]


def test_topics_are_chosen(tmp_path: Path) -> None:
    late(tmp_path / "archive", START_MS)
    catalog, snapshot = in_catalog(tmp_path)
    for source, how in ((tmp_path / "archive", {}), (catalog, {"snapshot": snapshot})):
        assert len(found_in(source, topics=["ord*"], **how)) == 1
        with pytest.raises(LocationError, match="no segments of topics other"):
            found_in(source, topics=["other"], **how)


def test_a_catalog_alone_tells_types_order_and_suspicions(tmp_path: Path) -> None:
    late(tmp_path / "archive", START_MS, START_MS // 1000, START_MS + 3 * DAY)
    backwards = [v2_batch(3 + i, [Record(START_MS - i)]) for i in range(3)]
    write(tmp_path / "archive", "broker-1/orders-0", 3, backwards)
    catalog, snapshot = in_catalog(tmp_path)
    plan = plan_timestamps(str(catalog), QUESTION, snapshot=snapshot)
    for log in tmp_path.glob("archive/*/*/*.log"):
        log.unlink()

    [row] = catalog_rows(Catalog.at(str(catalog)), plan)

    assert list(row) == TIMESTAMPS.names
    told = {name: value for name, value in row.items() if value}
    assert told == {
        "log_dir": "broker-1", "topic": "orders", "segments": 4, "batches": 6,
        "timestamp_type": "CreateTime", "largest_timestamp": START_MS + 3 * DAY,
        "out_of_order_batches": 2, "before_max_ms": DAY, "after_max_ms": 3_600_000,
        "clock": "file-time", "seconds": 1,
    }  # fmt: skip
    assert row["behind"] is None and row["rejected_after"] is None


def test_a_catalog_alone_knows_that_1970_is_a_time(tmp_path: Path) -> None:
    late(tmp_path / "archive", 0)
    catalog, snapshot = in_catalog(tmp_path)
    plan = plan_timestamps(str(catalog), QUESTION, snapshot=snapshot)

    [row] = catalog_rows(Catalog.at(str(catalog)), plan)

    assert (row["largest_timestamp"], row["timestamp_type"]) == (0, "CreateTime")
    assert row["before_1990"] == 1
