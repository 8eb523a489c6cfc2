"""Random catalogs, one per log directory, with partitions that are hard to judge.

Rows have the columns that retention needs; the rest is null. `POLICY` has a section for each topic.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kip33.catalog.schema import SEGMENTS
from kip33.formats.names import parse_partition_dir
from kip33.rules.retention_rows import SegmentFigures

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
LONG_MAX = 2**63 - 1

POLICY: dict[str, Any] = {
    "defaults": {"retention.ms": DAY_MS, "cleanup.policy": "delete"},
    "topics": {
        "hourly": {"retention.ms": 3_600_000},
        "forever": {"retention.ms": -1},
        "endless": {"retention.ms": LONG_MAX},
        "at-once": {"retention.ms": 0},
        "since-1970": {"retention.ms": NOW_MS + 1},
        "sized": {"retention.ms": -1, "retention.bytes": 2_500},
        "sized-and-timed": {"retention.bytes": 1_000},
        "no-bytes": {"retention.bytes": 0},
        "compacted": {"cleanup.policy": "compact"},
        "both": {"cleanup.policy": "compact,delete"},
        "tiered": {"remote.storage.enable": True, "local.retention.ms": 3_600_000},
    },
}
TOPICS = (*POLICY["topics"], "default", "__consumer_offsets", "__cluster_metadata")
STATUSES = ("truncated", "invalid", "unreadable", "unverified", "empty", "archived")

LogStartOffsets = dict[tuple[str, str, int], int]


def random_catalogs(
    count: int, seed: object, *, doubled: float = 0.0
) -> tuple[list[dict[str, Any]], LogStartOffsets]:
    """Return the shuffled rows of `count` log directories, and log start offsets of some.

    `doubled` is the probability that a segment is in orders-00 as well as in orders-0.
    """
    chance = random.Random(f"{seed}")
    rows: list[dict[str, Any]] = []
    starts: LogStartOffsets = {}
    for number in range(count):
        log_dir = f"broker-{number}"
        for topic in chance.sample(TOPICS, chance.randint(1, 3)):
            partition = list(_partition(chance, log_dir, topic, doubled))
            rows += partition
            if chance.random() < 0.3:
                bases = [row["base_offset"] or 0 for row in partition]
                starts[log_dir, topic, 0] = chance.choice([*bases, max(bases) + 50, 15])
    chance.shuffle(rows)
    return rows, starts


def _partition(
    chance: random.Random, log_dir: str, topic: str, doubled: float
) -> Iterator[dict[str, Any]]:
    base_offset = chance.choice((0, 0, 1_000, 2**40))
    directory = f"file:///archive/{log_dir}/{topic}-0"
    if chance.random() < 0.05:  # a directory that cannot be listed now
        yield _row(log_dir, topic, None, directory, status="unreadable")
    damage = chance.choice((0, 0, 0, 0.2))
    for _ in range(chance.randint(1, 8)):
        largest = _timestamp(chance)
        source = chance.choice(("log", "log", "log", "time_index", "last_modified"))
        status = chance.choice(STATUSES) if chance.random() < damage else "ok"
        row = _row(log_dir, topic, base_offset, f"{directory}/{base_offset:020d}.log", status)
        row |= {
            "size_bytes": chance.choice((0, 100, 500, 500, 1_000, 1_500)),
            "largest_timestamp": largest,
            "largest_timestamp_source": source,
            "last_modified_ms": NOW_MS - chance.choice((-DAY_MS, 0, 10, DAY_MS, 90 * DAY_MS)),
            "timestamp_types": chance.choice((["CreateTime"], ["LogAppendTime"], None)),
            "offset_of_max_timestamp": base_offset + 3,
        }
        if status in ("invalid", "unreadable", "archived"):
            row |= {"largest_timestamp": None, "largest_timestamp_source": None}
        elif chance.random() < 0.02:
            row["largest_timestamp"] = None
        if chance.random() < 0.03:
            row["size_bytes"] = None
        yield row
        if chance.random() < doubled:  # orders-00 beside orders-0
            yield row | {"log_uri": row["log_uri"].replace("-0/", "-00/")}
        if chance.random() < 0.02:  # 7.log beside 00000000000000000007.log
            yield row | {"log_uri": f"{directory}/{base_offset}.log"}
        base_offset += chance.choice((1, 10, 10, 500))


def _timestamp(chance: random.Random) -> int:
    """Return a timestamp near a limit, far ahead, or in another unit."""
    limit = chance.choice((0, 3_600_000, DAY_MS, NOW_MS + 1))
    return chance.choice(
        (
            NOW_MS - limit + chance.choice((-1, 0, 1)),
            NOW_MS - chance.randint(0, 3 * DAY_MS),
            NOW_MS - chance.randint(0, 3 * DAY_MS),
            NOW_MS - chance.randint(0, 900 * DAY_MS),
            NOW_MS + chance.choice((1, 3_600_000, 3_600_001, DAY_MS)),
            chance.choice((0, -5, LONG_MAX, LONG_MAX - 1, NOW_MS // 1000, NOW_MS * 1000)),
        )
    )


def _row(log_dir: str, topic: str, base: int | None, uri: str, status: str) -> dict[str, Any]:
    return dict.fromkeys(SEGMENTS.names) | {
        "log_dir": log_dir,
        "topic": topic,
        "partition": 0,
        "base_offset": base,
        "log_uri": uri,
        "status": status,
    }


def figures_of(row: dict[str, Any]) -> SegmentFigures:
    """Return what the rule needs of a row."""
    directory = None
    if row["base_offset"] is not None:
        name = row["log_uri"].rpartition("/")[0].rpartition("/")[2]
        if parse_partition_dir(name) == (row["topic"], row["partition"], ""):
            directory = name
    names = ("base_offset", "size_bytes", "largest_timestamp", "status")
    return SegmentFigures(*(row[name] for name in names), directory)


def write_rows(rows: list[dict[str, Any]], folder: Path) -> Path:
    """Write rows as one Parquet file, like a snapshot's folder; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, SEGMENTS), folder / "part-00000.parquet")
    return folder
