"""A large archive of which is known how many segments, holes and leftovers of each kind it has.

Each partition of `PARTITIONS` repeats: its number modulo ten says what is special about it.
"""

import os
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.builders.leftover_archive import DEAD, put
from tests.builders.segment_builder import Record, v2_batch

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
OFFSETS = 10  # of a segment
POLICY = """\
[defaults]
"cleanup.policy" = "delete"
"retention.ms" = "2d"
[topics."compacted-*"]
"cleanup.policy" = "compact"
"""


class Expected(NamedTuple):
    """What the archive has; leftovers are those beside the index files without a log."""

    segments: int
    by_status: dict[str, int]
    by_hole: dict[str, int]  # with POLICY
    missing_offsets: int
    leftovers: dict[str, tuple[int, int]]  # files and bytes by kind
    deleted_logs: list[Path]  # to delete between two builds


def write_log(partition: Path, base_offset: int, *, end: bytes = b"", step: int = 1) -> Path:
    """Write a segment of ten offsets, an hour after the one before."""
    now = START_MS + base_offset // OFFSETS * HOUR_MS
    records = [Record(now + i, offset_delta=i) for i in range(0, OFFSETS, step)]
    batch = v2_batch(base_offset, records, last_offset_delta=OFFSETS - 1)
    log = put(partition / f"{base_offset:020d}.log", batch + end)
    os.utime(log, ns=(0, (now + OFFSETS) * 1_000_000))
    return log


def counted_archive(root: Path, *, partitions: int, segments: int) -> Expected:
    """Write the archive below `root`; each partition has about `segments` segments."""
    status: Counter[str] = Counter()
    holes: Counter[str] = Counter()
    missing = 0
    deleted = []
    for number in range(partitions):
        special = number % 10
        topic = f"compacted-{number}" if special == 1 else f"topic-{number}"
        folder = root / f"broker-{number % 3}" / f"{topic}-{number % 5}"
        middle = segments // 2
        places = [place for place in range(segments) if special > 2 or place != middle]
        if special <= 2:  # the offsets of one segment
            kind = ("certain", "possible", "filled")[special]
            holes[kind] += 1
            missing += OFFSETS if special < 2 else 0
        for place in places:
            base, end, name = place * OFFSETS, b"", "ok"
            if special == 3 and place == 1:  # all its records are there
                end, name = b"\xff" * 70, "truncated"
            log = write_log(folder, base, end=end, step=3 if special == 1 else 1)
            if special == 4 and place == segments - 1:
                log.write_bytes(b"")
                name = "empty"
            if special == 5 and place == 2:  # after its first record all is lost
                log.write_bytes(v2_batch(base, [Record(START_MS)]) + b"\xff" * 70)
                name = "truncated"
                holes["after damage"] += 1
                missing += OFFSETS - 1
            if special == 6 and place == 3:  # offsets that go back
                large = Record(START_MS, value=bytes(5_000))
                log.write_bytes(b"".join(v2_batch(base + i, [large]) for i in (2, 5, 0)))
                name = "invalid"
                holes["after damage"] += 1  # where it ends is not known
                missing += OFFSETS
            status[name] += 1
        if special == 2:  # a replica that has the missing segment, and not the last
            replica = root / "replica" / folder.name
            for place in range(segments - 1):
                write_log(replica, place * OFFSETS)
                status["ok"] += 1
        if special == 7:  # a record from the future blocks those behind it
            future = v2_batch(0, [Record(START_MS + 10**12, offset_delta=OFFSETS - 1)])
            (folder / f"{0:020d}.log").write_bytes(future)
        if special == 8:  # before the middle: the front may be missing
            extra = write_log(root / "broker-0" / f"expired-{number}", 0)
            write_log(extra.parent, OFFSETS)
            status["ok"] += 1
            deleted.append(extra)
    leftovers = _leftovers(root / "broker-0")
    return Expected(sum(status.values()), dict(status), dict(holes), missing, leftovers, deleted)


def _leftovers(log_dir: Path) -> dict[str, tuple[int, int]]:
    """Write leftovers of each kind that Kafka's layout has."""
    found = {}
    partition = next(path for path in sorted(log_dir.iterdir()) if path.is_dir())
    for number, suffix in enumerate(("deleted", "cleaned", "swap"), 2):
        for one in range(number):
            put(partition / f"{900 + one:020d}.log.{suffix}", bytes(10))
        found[f".{suffix} file"] = (number, number * 10)
    for number, kind in enumerate(("delete", "stray", "future"), 1):
        for one in range(number):
            marked = log_dir / f"marked-{one}.{DEAD}-{kind}"
            put(marked / f"{0:020d}.log", bytes(100))
            put(marked / f"{0:020d}.index", bytes(8))
        found[f"-{kind} directory"] = (2 * number, number * 108)
    put(partition / f"{990:020d}.timeindex", bytes(12))
    put(partition / f"{991:020d}.index", bytes(8))
    found["index file without a log"] = (2, 20)
    put(log_dir / "notes.txt", bytes(5))
    put(partition / "core.1234", bytes(6))
    found["unknown file"] = (2, 11)
    return found
