"""`kip33 verify` against Kafka's own DumpLogSegments, on good, damaged and merely unusual indexes.

Where the two agree a file is good for both or bad for both. Where they do not, the table says so
row by row: what the tool calls a fault and is none, and what it passes over in silence.
"""

import random
import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kip33 import verify_segment
from kip33.rules.index_verdict import GOOD
from tests.integration.kafka.batches import batch, record
from tests.integration.kafka.oracle import Dumped, Oracle
from tests.integration.kafka.random_segments import RandomSegment, random_segments
from tests.integration.kafka.test_differential import SEED
from tests.long_forms import short_and_long

pytestmark = pytest.mark.kafka

INTERVAL = 100
CLEAN = ""
MISMATCH = "Found timestamp mismatch"
OUT_OF_ORDER = "Found out of order timestamp"
NOT_FOUND = "The following indexed offsets are not found"
INDEX_MISMATCH = "Mismatches in"
NOT_FOUND_PAIR = re.compile(r"Indexed offset: (-?\d+), found log offset: (-?\d+)")


def entries(*pairs: tuple[int, int]) -> bytes:
    """Return a `.timeindex` of (timestamp, offset), in a segment whose base offset is 0."""
    return b"".join(struct.pack(">qi", *pair) for pair in pairs)


def positions(*pairs: tuple[int, int]) -> bytes:
    """Return an `.index` of (offset, position)."""
    return b"".join(struct.pack(">ii", *pair) for pair in pairs)


def run(*timestamps: int) -> bytes:
    """Return one 98-byte batch for each timestamp; its record bears the same timestamp."""
    return b"".join(batch(i, t, body=record(None, bytes(30))) for i, t in enumerate(timestamps))


TEN = run(*range(1000, 1010))
TEN_POSITIONS = positions((2, 196), (4, 392), (6, 588), (8, 784))
GOOD_ENTRIES = ((1002, 2), (1004, 4), (1006, 6), (1008, 8), (1009, 9))
HUMP = run(1000, 5000, 2000, 3000, 6000)
HUMP_POSITIONS = positions((2, 196), (4, 392))
AN_EMPTY_BATCH = run(1000, 1001) + batch(2, 9000, body=b"", records_count=0, base_timestamp=-1)


def three_records(base_offset: int) -> bytes:
    """Return a batch of three records, the second of which bears its max timestamp."""
    return batch(
        base_offset,
        5100,
        last_offset_delta=2,
        base_timestamp=5000,
        records_count=3,
        body=record(None, b"a")
        + record(None, b"b", offset_delta=1, timestamp_delta=100)
        + record(None, b"c", offset_delta=2, timestamp_delta=50),
    )


THREE_RECORDS = three_records(0)


@dataclass(frozen=True)
class Row:
    """A log, the `.timeindex` and `.index` beside it, what the tool says and what kip33 says."""

    meaning: str
    time_index: bytes
    complaint: str
    verdict: str
    log: bytes = TEN
    offset_index: bytes = TEN_POSITIONS
    dialect: str | None = None


AGREED = (
    Row("what recovery leaves", entries(*GOOD_ENTRIES), CLEAN, "identical", dialect="recover"),
    Row(
        "one entry is missing",
        entries((1002, 2), (1006, 6), (1008, 8), (1009, 9)),
        CLEAN,
        "consistent",
    ),
    Row(
        "a LogAppendTime batch whose records say otherwise",
        entries((5000, 0)),
        CLEAN,
        "identical",
        log=batch(0, 5000, attributes=0x08, base_timestamp=7777),
        offset_index=b"",
        dialect="recover",
    ),
    Row("a timestamp too large", entries((1002, 2), (9999, 9)), MISMATCH, "wrong"),
    Row(
        "an index by the KIP's text, which verify reads only where it is asked to",
        entries((1001, 2)),
        NOT_FOUND,
        "wrong",
        log=run(1000, 1001),
        offset_index=b"",
    ),
    Row("an offset behind the log's end", entries((1002, 2), (1009, 10)), NOT_FOUND, "wrong"),
    Row("two entries swapped", entries((1004, 4), (1002, 2), (1009, 9)), OUT_OF_ORDER, "wrong"),
    Row("nothing but 0xff", b"\xff" * 36, NOT_FOUND, "wrong"),
)

FALSE_ALARMS = (
    Row(
        "a 0.11 to 3.6 leader's entry: the offset of the record, not of its batch",
        entries((5100, 1)),
        NOT_FOUND,
        "identical",
        log=THREE_RECORDS,
        offset_index=b"",
        dialect="live",
    ),
    Row(
        "a batch that compaction emptied holds the max",
        entries((9000, 2)),
        MISMATCH,
        "identical",
        log=AN_EMPTY_BATCH,
        offset_index=positions((2, 196)),
        dialect="recover",
    ),
)

SILENCES = (
    Row("no entry at all", b"", CLEAN, "incomplete"),
    Row("only the last entry", entries((1009, 9)), CLEAN, "sparse"),
    Row("the closing entry is absent", entries(*GOOD_ENTRIES[:-1]), CLEAN, "incomplete"),
    Row("all entries, then zeros", entries(*GOOD_ENTRIES) + bytes(120), CLEAN, "padded"),
    Row("some entries, zeros, then garbage", entries((1002, 2), (0, 0), (9, 9)), CLEAN, "wrong"),
    Row(
        "a later batch that has the same timestamp: a search would miss the earlier one",
        entries((1000, 1)),
        CLEAN,
        "wrong",
        log=run(1000, 1000),
        offset_index=b"",
    ),
    Row("half an entry at the end", entries(*GOOD_ENTRIES) + b"half", CLEAN, "malformed"),
    Row(
        "a batch's own timestamp, though an earlier batch has a larger one",
        entries((1000, 0), (3000, 3), (6000, 4)),
        CLEAN,
        "wrong",
        log=HUMP,
        offset_index=HUMP_POSITIONS,
    ),
)

OFFSET_INDEXES = (
    Row("what recovery leaves", TEN_POSITIONS, CLEAN, "identical"),
    Row("one entry is missing", positions((2, 196), (4, 392), (8, 784)), CLEAN, "consistent"),
    Row("an offset too small", positions((1, 196), (4, 392)), INDEX_MISMATCH, "wrong"),
)

OFFSET_INDEX_SILENCES = (Row("half of the entries", TEN_POSITIONS[:16], CLEAN, "sparse"),)

OFFSET_INDEX_FALSE_ALARMS = (
    Row(
        "a follower's entry before 3.9.1: the last offset of the chunk it fetched",
        positions((9, 490)),
        INDEX_MISMATCH,
        "consistent",
    ),
    Row(
        "an entry before 2.0: the first offset of the batch",
        positions((3, len(THREE_RECORDS))),
        INDEX_MISMATCH,
        "consistent",
        log=three_records(0) + three_records(3),
    ),
)


def lay_out(directory: Path, row: Row) -> Path:
    log = directory / f"{0:020d}.log"
    log.write_bytes(row.log)
    log.with_suffix(".timeindex").write_bytes(row.time_index)
    log.with_suffix(".index").write_bytes(row.offset_index)
    return log


def is_silent(dumped: Dumped) -> bool:
    return not dumped.complaints and dumped.exception is None


def test_each_row(oracle: Oracle, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for row in AGREED + FALSE_ALARMS + SILENCES:
        with subtests.test(row.meaning):
            log = lay_out(tmp_path, row)
            dumped = oracle.dump(log.with_suffix(".timeindex"))
            found = verify_segment(str(log), index_interval_bytes=INTERVAL)
            assert dumped.exception is None
            assert (found.verdict, found.dialect) == (row.verdict, row.dialect), found.problems
            require_as_told(row, dumped, agreed=row in AGREED)
    for row in OFFSET_INDEXES + OFFSET_INDEX_SILENCES + OFFSET_INDEX_FALSE_ALARMS:
        with subtests.test(row.meaning):
            log = lay_out(tmp_path, row)
            log.with_suffix(".index").write_bytes(row.time_index)
            dumped = oracle.dump(log.with_suffix(".index"))
            found = verify_segment(str(log), index_interval_bytes=INTERVAL)
            assert found.offset_index_verdict == row.verdict, found.problems
            require_as_told(row, dumped, agreed=row in OFFSET_INDEXES)


def require_as_told(row: Row, dumped: Dumped, *, agreed: bool) -> None:
    """Assert what the tool says of a row, and whether kip33 agrees with it."""
    assert (row.complaint in dumped.complaints) and is_silent(dumped) == (row.complaint == CLEAN)
    assert (is_silent(dumped) == (row.verdict in GOOD)) == agreed


def one_wrong_entry(rng: random.Random, time_index: bytes) -> tuple[bytes, str]:
    """Return the index with one damage that makes no entry look like padding."""
    slots = [list(pair) for pair in struct.iter_unpack(">qi", time_index)]
    place = rng.randrange(len(slots))
    kind = rng.choice(("none", "timestamp", "offset", "twice", "swapped"))
    if kind == "timestamp":
        slots[place][0] ^= 1 << rng.randrange(40)
    elif kind == "offset":
        slots[place][1] += rng.choice((-1, 1, 100))
    elif kind == "twice":
        slots.insert(place, slots[place])
    elif kind == "swapped" and len(slots) > 1:
        other = (place + 1) % len(slots)
        slots[place], slots[other] = slots[other], slots[place]
    else:
        kind = "none"
    return b"".join(struct.pack(">qi", *slot) for slot in slots), kind


@pytest.mark.parametrize("count", short_and_long(150, 800, "KIP33_SEGMENTS"))
def test_random_indexes(count: int, oracle: Oracle, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    seen: Counter[tuple[str, bool]] = Counter()
    for segment in random_segments(oracle, seed=f"{SEED} dump", count=count, damage=False):
        recovered = oracle.recover(
            segment.log,
            tmp_path,
            base_offset=segment.base_offset,
            index_interval_bytes=segment.index_interval_bytes,
        )
        if not recovered.time_index:
            continue
        time_index, kind = one_wrong_entry(rng, recovered.time_index)
        log = tmp_path / f"{segment.base_offset:020d}.log"
        log.write_bytes(segment.log)
        log.with_suffix(".timeindex").write_bytes(time_index)
        log.with_suffix(".index").write_bytes(recovered.offset_index or b"")

        dumped = oracle.dump(log.with_suffix(".timeindex"))
        verdict = verify_segment(str(log), index_interval_bytes=segment.index_interval_bytes)

        good = verdict.verdict in GOOD
        if is_silent(dumped) != good:
            assert explained(segment, time_index, dumped), f"{segment}, {kind}: {dumped} {verdict}"
            kind = "explained"
        seen[kind, good] += 1
    assert seen["none", True] > count // 40
    assert (
        min(seen[kind, False] for kind in ("timestamp", "offset", "twice", "swapped"))
        > count // 150
    )


def explained(segment: RandomSegment, time_index: bytes, dumped: Dumped) -> bool:
    """Return whether one of the rows above is behind the two not agreeing."""
    pairs = [(t, segment.base_offset + o) for t, o in struct.iter_unpack(">qi", time_index)]
    if is_silent(dumped):
        # The tool ends at the first later entry with the base offset. It looks at the batch that an
        # entry names, not at those before it.
        ends = any(offset == segment.base_offset for _, offset in pairs[1:])
        return ends or set(pairs) <= set(last_records(segment.log))
    if MISMATCH in dumped.complaints:
        return "log timestamp: -1\n" in dumped.complaints
    named = NOT_FOUND_PAIR.findall(dumped.complaints)
    return bool(named) and all(in_one_batch(segment.log, int(a), int(b)) for a, b in named)


def last_records(log: bytes) -> Iterator[tuple[int, int]]:
    """Yield each batch's max timestamp and last offset."""
    position = 0
    while position < len(log):
        first, size = struct.unpack_from(">qi", log, position)
        if log[position + 16] == 2:
            (delta,) = struct.unpack_from(">i", log, position + 23)
            yield struct.unpack_from(">q", log, position + 35)[0], first + delta
        elif log[position + 16] == 1:
            yield struct.unpack_from(">q", log, position + 18)[0], first
        position += 12 + size


def in_one_batch(log: bytes, offset: int, last_offset: int) -> bool:
    """Return whether a v2 batch, or a wrapper, that ends at `last_offset` may hold `offset`."""
    position, previous = 0, -1
    while position < len(log):
        first, size = struct.unpack_from(">qi", log, position)
        delta = struct.unpack_from(">i", log, position + 23)[0] if log[position + 16] == 2 else 0
        if first + delta == last_offset:
            return (first if delta else previous + 1) <= offset < last_offset
        previous = first + delta
        position += 12 + size
    return False
