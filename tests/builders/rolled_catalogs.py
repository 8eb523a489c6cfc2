"""Random catalog rows for the roll audit, with figures at and beside every limit."""

import random
from typing import Any

SEGMENT_MS = 1000
SEGMENT_BYTES = 1000
POLICY: dict[str, dict[str, Any]] = {
    "defaults": {"segment.ms": SEGMENT_MS, "segment.bytes": SEGMENT_BYTES},
    "topics": {
        "jitter": {"segment.jitter.ms": 300},
        "compacted": {"cleanup.policy": "compact", "max.compaction.lag.ms": 500},
        "small-index": {"segment.index.bytes": 48, "index.interval.bytes": 100},
    },
}
TOPICS = ("plain", "plain", "jitter", "jitter", "compacted", "small-index", None)
START_MS = 1_700_000_000_000


def rolled_rows(partitions: int, seed: int) -> list[dict[str, Any]]:
    """Return the rows of many partitions, in no order."""
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for number in range(partitions):
        rows += _partition(chance, number)
    chance.shuffle(rows)
    return rows


def _partition(chance: random.Random, number: int) -> list[dict[str, Any]]:
    topic = chance.choice(TOPICS)
    offset, now_ms = chance.choice([0, 5, 2**40]), START_MS
    found = []
    for segment in range(chance.randint(1, 6)):
        base = offset
        offset += chance.choice([1, 10, 10, 10, 2**31 - 1, 2**31])
        now_ms += chance.choice([0, 1, 400, 999, 1000, 1001, 1002, 5000, 90_000, -3000])
        row = _segment(chance, base, offset, now_ms)
        name = f"file:///a/{number}/{topic}-0/{segment:020d}.log"
        found.append(
            row
            | {
                "log_dir": chance.choice(["", f"b{number}"]) if segment == 0 else "",
                "topic": topic,
                "partition": number,
                "log_uri": name,
            }
        )
        offset += chance.choice([0, 0, 0, 0, 0, 0, 1, -1])
        if chance.random() < 0.03:
            offset = base
    for row in found:
        row["log_dir"] = found[0]["log_dir"]
    return found


def _segment(chance: random.Random, base: int, end: int, now_ms: int) -> dict[str, Any]:
    status = chance.choice(
        ["ok"] * 12 + ["truncated", "invalid", "unreadable", "unverified", "archived"]
    )
    size = chance.choice([100, 300, 303, 500, 900, 973, 974, 975, 1000, 1001])
    count = chance.choice([1, 1, 2, 3, 9])
    first = now_ms + chance.choice([0, 0, 0, 0, 50_000])
    largest = first + chance.choice([0, 1, 900, 1000, 1001])
    if chance.random() < 0.08:
        first = largest = -1
    row: dict[str, Any] = {
        "base_offset": base,
        "size_bytes": size,
        "status": status,
        "last_modified_ms": now_ms + chance.choice([0, 2000, 10_000_000]),
    }
    if chance.random() < 0.02:
        row |= {"base_offset": None, "status": "unreadable"}
    if row["status"] in ("invalid", "unreadable", "archived"):
        return row
    if status == "unverified":
        return row | {"first_batch_timestamp": first, "max_timestamp": largest}
    if chance.random() < 0.06:
        return row | {"size_bytes": 0, "valid_bytes": 0, "batch_count": 0, "max_timestamp": -1}
    records = chance.choice([end - base, end - base, None, end - base - 1])
    return row | {
        "valid_bytes": size,
        "batch_count": count,
        "record_count": records,
        "last_offset": end - 1,
        "first_batch_timestamp": first,
        "max_timestamp": largest,
        "smallest_timestamp": chance.choice([None, None, first, first - 700, -1]),
    }
