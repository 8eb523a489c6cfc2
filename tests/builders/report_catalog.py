"""A catalog of 10,000 segments, made of rows alone, with all that a report can say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kip33.catalog.catalog import Catalog
from tests.builders.snapshots import row, write

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
OFFSETS = 1_000  # of a segment
HOSTILE = "<img src=x onerror=alert(1)>'\"&amp;{{7*7}}\u202ex"
POLICY = """\
[defaults]
"retention.ms" = "14d"
"cleanup.policy" = "delete"
[topics."compacted*"]
"cleanup.policy" = "compact"
"""

Rows = list[dict[str, Any]]


def make_catalog(folder: Path, *, partitions: int = 100, segments: int = 100) -> Catalog:
    """Return a catalog with two snapshots; the second has rows that changed."""
    (folder / "archive").mkdir(parents=True, exist_ok=True)
    catalog = Catalog.at(str(folder / "catalog"))
    rows = list(_rows(partitions, segments))
    earlier = [dict(one) for one in rows[: max(0, len(rows) - 50)]]
    if earlier:
        earlier[0]["size_bytes"] += 17  # shrunk since then
        earlier.append(earlier[-1] | {"log_uri": "file:///archive/b1/old-0/0.log", "topic": "old"})
    write(catalog, earlier, now_ms=NOW_MS - DAY_MS)
    half = len(rows) // 2
    write(catalog, rows[:half], rows[half:], now_ms=NOW_MS)
    return catalog


def _rows(partitions: int, segments: int) -> Iterator[dict[str, Any]]:
    for number in range(partitions):
        log_dir, topic = f"broker-{number % 3}", f"topic-{number // 6}"
        if number == 0:
            topic = HOSTILE
        if number == 1:
            topic = "compacted"
        rows = _partition(log_dir, topic, number, segments)
        yield from _with_problems(number, rows)
        if number == 8:  # a replica that has what number 7 lacks
            yield from _partition("broker-0", "replicated", 0, segments)
        if number == 7:
            replica = _partition("broker-1", "replicated", 0, segments)
            yield from replica[: segments // 2] + replica[segments // 2 + 1 :]


def _partition(log_dir: str, topic: str, number: int, segments: int) -> Rows:
    """Return the segments of 30 days, the last of them until now."""
    step = 30 * DAY_MS // segments
    rows = []
    for place in range(segments):
        base, begin = place * OFFSETS, NOW_MS - (segments - place) * step
        uri = f"file:///archive/{log_dir}/{topic}-{number}/{base:020d}.log"
        rows.append(
            row(
                number,
                log_dir=log_dir,
                topic=topic,
                base_offset=base,
                last_offset=base + OFFSETS - 1,
                log_uri=uri,
                size_bytes=(number + 1) * 1_000_003 + place,
                batch_count=100,
                record_count=OFFSETS,
                first_batch_timestamp=begin + 1_000,
                smallest_timestamp=begin,
                max_timestamp=begin + step,
                largest_timestamp=begin + step,
                offset_of_max_timestamp=base + OFFSETS - 1,
                last_modified_ms=begin + step + 5_000,
                out_of_order_batches=place % 3 if number % 2 else 0,
                active_segment=place == segments - 1,
                timestamp_types=["CreateTime"],
            )
        )
    return rows


def _with_problems(number: int, rows: Rows) -> Rows:
    """Return the rows of a partition with the problem of its number."""
    middle = len(rows) // 2
    if number in (0, 1):  # certain in the hostile topic, possible in the compacted one
        return rows[:middle] + rows[middle + 1 :]
    if number == 2:  # after damage, and it blocks
        rows[3] |= {"status": "truncated", "last_offset": rows[3]["base_offset"] + 10}
        rows[3]["error"] = "the CRC of a batch differs"
    elif number == 3:  # a timestamp from the future blocks
        rows[2]["largest_timestamp"] = rows[2]["max_timestamp"] = NOW_MS + 4_000 * DAY_MS
    elif number == 4:
        for one in rows[:5]:
            one |= {"largest_timestamp_source": "last_modified", "max_timestamp": -1}
            one |= {"first_batch_timestamp": -1}
    elif number == 5:
        for one in rows[:7]:
            one["status"] = "unverified"
    elif number == 6:
        for one, status in zip(rows[middle:], ("invalid", "unreadable"), strict=False):
            one |= {"status": status, "last_offset": None, "largest_timestamp": None}
            one |= {"largest_timestamp_source": None, "batch_count": None}
            one |= {"first_batch_timestamp": None, "record_count": None, "max_timestamp": None}
    elif number == 9:
        rows[0]["largest_timestamp"] = NOW_MS // 1_000  # seconds
    return rows
