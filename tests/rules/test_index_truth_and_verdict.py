"""The verdict on an index beside a log: every verdict, and every way to be true or wrong.

The log of most cases is ten batches of 98 bytes at offsets 0 to 9 with timestamps 1000 to 1009 and
an interval of 100, the worked example of kafka-semantics 4.5 and 4.7.
"""

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from kip33.indexing.segment import index_segment
from kip33.indexing.verification import Verification
from kip33.rules.index_builder import IndexSettings
from kip33.rules.index_verdict import GOOD, IndexVerdict
from tests.builders.generated_segments import LONG_MAX
from tests.builders.logs_in_memory import read_into_of
from tests.builders.segment_builder import Record, v0_message, v1_message, v2_batch, wrapper
from tests.cases import each_case

IDENTICAL, CONSISTENT, SPARSE, INCOMPLETE, PADDED, WRONG, MALFORMED, MISSING, *_ = IndexVerdict

BATCH_BYTES = 98
INTERVAL = 100
TEN = [(1000 + i,) for i in range(10)]


def log_of(timestamps: Sequence[tuple[int, ...]], first_offset: int = 0, **fields: object) -> bytes:
    """Return batches that follow each other, one tuple of record timestamps each."""
    entries, offset = [], first_offset
    for times in timestamps:
        bare = v2_batch(offset, [Record(t) for t in times])
        *others, last = (Record(t) for t in times)
        records = [*others, Record(last.timestamp, None, bytes(BATCH_BYTES - len(bare)))]
        entries.append(v2_batch(offset, records, **fields))  # type: ignore[arg-type]
        offset += len(times)
    return b"".join(entries)


def time_bytes(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def offset_bytes(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


class Judged(NamedTuple):
    """The verdicts on both files; `offset_index` is None where there is none."""

    verdict: str
    dialect: str | None = None
    problems: tuple[str, ...] = ()
    offset_verdict: str | None = None
    offset_problems: tuple[str, ...] = ()


def judge(
    log: bytes,
    time_index: bytes | None,
    offset_index: bytes | None = None,
    *,
    base: int = 0,
    topic: str = "orders",
    settings: IndexSettings | None = None,
    native: bool = False,
) -> Judged:
    settings = settings or IndexSettings(index_interval_bytes=INTERVAL)
    check = Verification(time_index, offset_index, base_offset=base, topic=topic, settings=settings)

    index = index_segment(
        read_into_of(log),
        len(log),
        base_offset=base,
        topic=topic,
        settings=settings,
        native=native,
        watcher=check.append,
    )
    times, offsets = check.time_verdict(index), check.offset_verdict(index)
    return Judged(*times, *(offsets and (offsets.verdict, offsets.problems)) or ())


@pytest.fixture(params=[False, True], ids=["plain", "compiled"])
def judged(request: pytest.FixtureRequest) -> Callable[..., Judged]:
    return lambda *files, **how: judge(*files, native=request.param, **how)


LOG = log_of(TEN)
RECOVERED = time_bytes((1002, 2), (1004, 4), (1006, 6), (1008, 8), (1009, 9))
KIP33 = time_bytes((1002, 3), (1004, 5), (1006, 7), (1008, 9), (1009, 10))
# What a follower left that truncated to offset 3, then was fed other batches: entries of before.
STALE = time_bytes((2004, 4), (2006, 6))
SLOTS = 16
TIME_PREALLOCATED = 12 * SLOTS
SMALL = IndexSettings(index_interval_bytes=INTERVAL, segment_index_bytes=TIME_PREALLOCATED + 5)
TIME_VERDICTS = {
    "no file": (None, MISSING, None),
    "recovery's bytes": (RECOVERED, IDENTICAL, "recover"),
    "one byte short": (RECOVERED[:-1], MALFORMED, None),
    "one byte more": (RECOVERED + b"\0", MALFORMED, None),
    "13 zero bytes: length before anything else": (bytes(13), MALFORMED, None),
    "the kip33 dialect's bytes, not asked for": (KIP33, WRONG, None),
    # 4.5: a restart after four batches; 4.7: what a follower wrote per chunk
    "a broker that was restarted": (
        time_bytes((1002, 2), (1003, 3), (1006, 6), (1008, 8), (1009, 9)),
        *(CONSISTENT, None)),
    "one entry is missing, as after a restart": (
        time_bytes((1002, 2), (1006, 6), (1008, 8), (1009, 9)),
        *(CONSISTENT, None)),
    "only the closing entry": (time_bytes((1009, 9)), SPARSE, None),
    "two entries in a row are missing": (time_bytes((1002, 2), (1008, 8), (1009, 9)),
        *(SPARSE, None)),
    "an entry a batch": (time_bytes(*((1000 + i, i) for i in range(10))), CONSISTENT, None),
    "the closing entry is absent": (RECOVERED[:-12], INCOMPLETE, None),
    "half of the entries": (RECOVERED[:24], INCOMPLETE, None),
    "an empty file": (b"", INCOMPLETE, None),
    "one zero entry more": (RECOVERED + bytes(12), PADDED, None),
    "ten zero entries more": (RECOVERED + bytes(120), PADDED, None),
    "zeros, the closing entry absent": (RECOVERED[:-12] + bytes(24), PADDED, None),
    "one zero entry only": (bytes(12), PADDED, None),
    "all zero, preallocated": (bytes(TIME_PREALLOCATED), PADDED, None),
    "all zero, of Kafka's default size": (bytes(10485756), PADDED, None),
    "stale entries, then zeros": (RECOVERED[:36] + STALE + bytes(24), PADDED, None),
    "stale entries to the end of a file of the preallocated size": (
        (RECOVERED[:36] + STALE * SLOTS)[:TIME_PREALLOCATED], *(PADDED, None)),
    "stale entries to the end of a file of another size": (
        (RECOVERED[:36] + STALE * SLOTS)[: TIME_PREALLOCATED - 12], *(WRONG, None)),
    "stale entries and no zeros": (RECOVERED[:36] + STALE, WRONG, None),
    "no entry is true, though zeros follow": (STALE + bytes(24), WRONG, None),
    "no entry is true in a file of the preallocated size": ((STALE * SLOTS)[:TIME_PREALLOCATED],
        *(WRONG, None)),
    "another batch's offset": (time_bytes((1002, 2), (1009, 8)), WRONG, None),
    "another batch's timestamp": (time_bytes((1001, 2), (1009, 9)), WRONG, None),
    "a timestamp nobody has": (time_bytes((1002, 2), (1010, 9)), WRONG, None),
    "true entries out of order": (time_bytes((1004, 4), (1002, 2), (1009, 9)), WRONG, None),
    "a true entry twice": (time_bytes((1002, 2), (1002, 2), (1009, 9)), WRONG, None),
    "the two meanings mixed": (time_bytes((1002, 2), (1004, 5), (1009, 9)), WRONG, None),
    "an entry of timestamp -1": (time_bytes((-1, 0), (1009, 9)), WRONG, None),
    "an offset below the base": (time_bytes((1002, -1), (1009, 9)), WRONG, None),
    "25 entries of ones": (b"\xff" * 12 * 25, WRONG, None),
}  # fmt: skip


@each_case(("time_index", "verdict", "dialect"), TIME_VERDICTS)
def test_time_index(
    judged: Callable[..., Judged], time_index: bytes | None, verdict: str, dialect: str | None
) -> None:
    seen = judged(LOG, time_index, settings=SMALL)
    assert (seen.verdict, seen.dialect) == (verdict, dialect), seen.problems
    assert bool(seen.problems) == (verdict not in GOOD)


def test_every_verdict_but_unreadable_is_seen_above() -> None:
    seen = {verdict for _, verdict, _ in TIME_VERDICTS.values()}
    assert seen == set(IndexVerdict) - {"unreadable", "archived", "unknown"}


ASKED_FOR_KIP33 = {
    "its bytes": (KIP33, IDENTICAL, "kip33"),
    "another density": (KIP33[12:], CONSISTENT, "kip33"),
    "entries are missing": (KIP33[:12] + KIP33[-12:], SPARSE, "kip33"),
    "without its closing entry": (KIP33[:-12], INCOMPLETE, "kip33"),
    "then zeros": (KIP33[:-12] + bytes(24), PADDED, None),
    "recovery's bytes": (RECOVERED, WRONG, None),
}


@each_case(("time_index", "verdict", "dialect"), ASKED_FOR_KIP33)
def test_a_file_of_the_kip33_dialect_where_that_is_asked_for(
    judged: Callable[..., Judged], time_index: bytes, verdict: str, dialect: str | None
) -> None:
    seen = judged(LOG, time_index, settings=SMALL._replace(dialect="kip33"))
    assert (seen.verdict, seen.dialect) == (verdict, dialect), seen.problems


def test_one_flipped_bit_in_a_brokers_only_entry_is_wrong(judged: Callable[..., Judged]) -> None:
    """(1000, 0) becomes (1000, 1): that is the kip33 dialect's own entry for this log."""
    log = log_of([(1000,)])
    assert judged(log, time_bytes((1000, 0))).verdict == IDENTICAL
    seen = judged(log, time_bytes((1000, 1)))
    assert seen.verdict == WRONG
    assert seen.problems[-1] == (
        "every entry is correct in another dialect; is this a file of --dialect kip33?"
    )


# (timestamps of the records, of each batch in turn), then base offset, index, verdict, dialect
THREE = log_of([(5000, 5100, 5050), (5100, 5200)], first_offset=100)
ONE = log_of([(5000, 5100, 5050)], first_offset=100)
PACKED = log_of([(5000, 5100, 5050)], first_offset=100, codec="gzip")
STAMPED = log_of([(5000, 5100, 5050)], first_offset=100, log_append_time=5100)
MAX_FIRST = log_of([(LONG_MAX,), (5,)])
FALLING = log_of([(9,), (8,), (7,), (6,)])
NO_TIMESTAMPS = log_of([(-1,)] * 5)
ZERO = log_of([(0,)] * 5)
FAR = log_of([(1000,), (1001,)], first_offset=2**31 - 1)
OTHER_LOGS = {
    # Leaders of 0.11 to 3.6 named the first record with the largest timestamp of its batch.
    "the batch's last offset": (THREE, 100, time_bytes((5200, 4)), IDENTICAL, "recover"),
    "the first with the max": (THREE, 100, time_bytes((5100, 1), (5200, 4)), CONSISTENT, None),
    "both kinds are true": (THREE, 100, time_bytes((5100, 2), (5200, 4)), CONSISTENT, None),
    "a record before the max": (THREE, 100, time_bytes((5100, 0), (5200, 4)), WRONG, None),
    "a later batch with the same max": (THREE, 100, time_bytes((5100, 3), (5200, 4)), WRONG, None),
    "not the max of its batch": (THREE, 100, time_bytes((5050, 2), (5200, 4)), WRONG, None),
    "a leader's own bytes": (ONE, 100, time_bytes((5100, 1)), IDENTICAL, "live"),
    "those of recovery": (ONE, 100, time_bytes((5100, 2)), IDENTICAL, "recover"),
    "of neither": (ONE, 100, time_bytes((5100, 3)), WRONG, None),
    "compressed: the last offset": (PACKED, 100, time_bytes((5100, 2)), IDENTICAL, "recover"),
    "compressed: another one": (PACKED, 100, time_bytes((5100, 1)), WRONG, None),
    "LogAppendTime: the last offset": (STAMPED, 100, time_bytes((5100, 2)), IDENTICAL, "recover"),
    "LogAppendTime: another one": (STAMPED, 100, time_bytes((5100, 1)), WRONG, None),
    "no timestamps: an empty file is right": (NO_TIMESTAMPS, 0, b"", IDENTICAL, "recover"),
    "no timestamps: zeros are padding": (NO_TIMESTAMPS, 0, bytes(12), PADDED, None),
    "no timestamps: an entry of -1": (NO_TIMESTAMPS, 0, time_bytes((-1, 0)), WRONG, None),
    "an empty log: an empty file is right": (b"", 0, b"", IDENTICAL, "recover"),
    "an empty log: zeros are padding": (b"", 0, bytes(24), PADDED, None),
    "an empty log: any entry is untrue": (b"", 0, time_bytes((5, 0)), WRONG, None),
    "timestamp 0 at offset 0: a true entry": (ZERO, 0, bytes(12), IDENTICAL, "recover"),
    "the same, then zeros": (ZERO, 0, bytes(24), PADDED, None),
    "Long.MAX": (MAX_FIRST, 0, time_bytes((LONG_MAX, 0)), IDENTICAL, "recover"),
    "below an earlier max": (FALLING, 0, time_bytes((8, 1)), WRONG, None),
    "the largest offset there is": (log_of([(5,)], LONG_MAX), 0, time_bytes((5, 0)), WRONG, None),
    "of a damaged last batch": (LOG[:-1], 0, RECOVERED, WRONG, None),
    "without the damaged last batch": (LOG[:-1], 0, RECOVERED[:-12], IDENTICAL, "recover"),
    "a log that Kafka refuses": (FAR, 0, time_bytes((1000, 2**31 - 1)), INCOMPLETE, None),
    "a log that Kafka refuses, and nothing": (FAR, 0, b"", INCOMPLETE, None),
}  # fmt: skip


@each_case(("log", "base", "time_index", "verdict", "dialect"), OTHER_LOGS)
def test_time_indexes_of_other_logs(
    judged: Callable[..., Judged],
    log: bytes,
    base: int,
    time_index: bytes,
    verdict: str,
    dialect: str | None,
) -> None:
    seen = judged(log, time_index, base=base)
    assert (seen.verdict, seen.dialect) == (verdict, dialect), seen.problems


SENTENCES = {
    "untrue offset": (time_bytes((1002, 2), (1009, 8)),
        "entry 1: timestamp 1009 at offset 8, but the batch that reaches it ends at offset 9"),
    "untrue timestamp": (time_bytes((1010, 9)),
        "entry 0: timestamp 1010 at offset 9, but no batch is the first to reach that"),
    "out of order": (time_bytes((1004, 4), (1002, 2)),
        "entry 1: timestamp 1002 at offset 2, out of order after (1004, 4)"),
    "zeros": (RECOVERED[:12] + bytes(24), "1 correct entry, then 24 zero bytes"),
    "stale": (RECOVERED[:12] + STALE + bytes(12),
        "1 correct entry, then stale entries; the file ends with 12 zero bytes of 48"),
    "incomplete": (RECOVERED[:12],
        "the closing entry is missing: the log's max timestamp is 1009, the last entry says 1002"),
    "incomplete and empty": (b"",
        "the closing entry is missing: the log's max timestamp is 1009, the index has no entry"),
    "malformed": (RECOVERED[:7], "7 bytes found, expected a multiple of 12"),
    "sparse": (RECOVERED[:12] + RECOVERED[-12:],
        "at least 2 entries missing: 588 bytes of the log from byte 294 on have no entry, "
        "although index.interval.bytes is 100"),
}  # fmt: skip


@each_case(("time_index", "problem"), SENTENCES)
def test_a_problem_is_one_sentence(time_index: bytes, problem: str) -> None:
    assert judge(LOG, time_index).problems == (problem,)


def test_many_problems_are_counted_after_ten() -> None:
    problems = judge(LOG, time_bytes(*[(5000, 1)] * 25)).problems
    assert len(problems) == 11
    assert problems[-1] == "and 15 other wrong entries"
    assert len(judge(LOG, time_bytes(*[(5000, 1)] * 10)).problems) == 10


# The `.index`: (relative offset, position)
PER_BATCH = offset_bytes((2, 196), (4, 392), (6, 588), (8, 784))
OFFSET_VERDICTS = {
    "recovery's bytes": (PER_BATCH, IDENTICAL),
    "empty: a chunk of ten looks like lost entries": (b"", SPARSE),
    "the first entry is missing: as after a restart": (PER_BATCH[8:], CONSISTENT),
    "the second half is missing": (PER_BATCH[:16], SPARSE),
    "two of four, one by one": (PER_BATCH[8:16] + PER_BATCH[24:], CONSISTENT),
    "two chunks of five: a last offset behind": (offset_bytes((9, 490)), CONSISTENT),
    "another density": (offset_bytes((1, 98), (2, 196), (4, 392), (5, 490), (7, 686), (8, 784)),
        *(CONSISTENT,)),
    "two appends of several batches": (offset_bytes((4, 196), (9, 490)), CONSISTENT),
    "an entry at byte 0": (offset_bytes((0, 0)) + PER_BATCH, CONSISTENT),
    "one byte short": (PER_BATCH[:-1], MALFORMED),
    "a zero entry more": (PER_BATCH + bytes(8), PADDED),
    "zeros after the first": (PER_BATCH[:8] + bytes(80), PADDED),
    "all zero": (bytes(16), PADDED),
    "stale, then zeros": (PER_BATCH[:8] + offset_bytes((40, 44), (50, 55)) + bytes(8), PADDED),
    "stale, of the preallocated size": (
        (PER_BATCH[:8] + offset_bytes((40, 44)) * 99)[: (TIME_PREALLOCATED + 5) // 8 * 8], PADDED),
    "no entry is true, though zeros follow": (offset_bytes((40, 44)) + bytes(80), WRONG),
    "no batch begins there": (offset_bytes((2, 197)), WRONG),
    "the batch that ends with it is before": (offset_bytes((2, 392)), WRONG),
    "an offset that no batch ends with": (offset_bytes((20, 196)), WRONG),
    "out of order": (offset_bytes((4, 392), (2, 196)), WRONG),
    "an entry twice": (offset_bytes((2, 196), (2, 196)), WRONG),
    "one offset, two positions": (offset_bytes((9, 490), (9, 784)), WRONG),
    "an append that reaches into the next one's": (offset_bytes((4, 98), (6, 392)), WRONG),
    "a negative position": (offset_bytes((2, -1)), WRONG),
}  # fmt: skip


@each_case(("offset_index", "verdict"), OFFSET_VERDICTS)
def test_offset_index(judged: Callable[..., Judged], offset_index: bytes, verdict: str) -> None:
    seen = judged(LOG, RECOVERED, offset_index, settings=SMALL)
    assert seen.offset_verdict == verdict, seen.offset_problems
    assert bool(seen.offset_problems) == (verdict not in GOOD)
    assert seen.verdict == IDENTICAL


PAIRS = log_of([(1000, 1001), (1002, 1003), (1004, 1005), (1006, 1007)])
BEFORE_2_0 = {
    "the first offset of the batch there": (offset_bytes((4, 196)), CONSISTENT),
    "the last offset, since 2.0": (offset_bytes((5, 196)), IDENTICAL),
    "first offsets": (offset_bytes((4, 196), (6, 294)), CONSISTENT),
    "a broker upgraded in between": (offset_bytes((2, 98), (5, 196)), CONSISTENT),
    "the first offset of the batch before": (offset_bytes((2, 196)), WRONG),
    "the first offset of the batch behind": (offset_bytes((6, 196)), WRONG),
}


@each_case(("offset_index", "verdict"), BEFORE_2_0)
def test_offset_indexes_of_before_2_0(
    judged: Callable[..., Judged], offset_index: bytes, verdict: str
) -> None:
    assert len(PAIRS) == 4 * BATCH_BYTES
    seen = judged(PAIRS, time_bytes((1005, 5), (1007, 7)), offset_index)
    assert (seen.verdict, seen.offset_verdict) == (IDENTICAL, verdict), seen.offset_problems


def sets_of(magic: int, codec: str = "gzip") -> bytes:
    """Return three compressed sets of three messages, offsets 10 to 12, 13 to 15 and 20 to 22."""
    entries = []
    for first in (10, 13, 20):
        inner = [
            v0_message(first + i, None, bytes(40)) if magic == 0 else v1_message(i, 1000 + first)
            for i in range(3)
        ]
        entries.append(wrapper(first + 2, inner, magic=magic, codec=codec))
    return b"".join(entries)


def starts_of(log: bytes) -> list[int]:
    """Return where the entries of a log begin."""
    starts, at = [], 0
    while at < len(log):
        starts.append(at)
        at += 12 + int.from_bytes(log[at + 8 : at + 12], "big")
    return starts


@each_case("magic", [0, 1])
def test_leaders_of_0_8_to_1_1_named_the_first_offset_inside_a_compressed_set(
    judged: Callable[..., Judged], magic: int
) -> None:
    log = sets_of(magic)
    first, second, third = starts_of(log)

    def verdict_on(*entries: tuple[int, int]) -> str | None:
        return judged(log, b"", offset_bytes(*entries), base=10).offset_verdict

    assert verdict_on((3, second), (10, third)) == CONSISTENT
    assert verdict_on((0, first), (3, second), (10, third)) == CONSISTENT
    assert verdict_on((5, second), (12, third)) == CONSISTENT  # followers: the set's own offset
    assert verdict_on((2, second)) == WRONG  # the last offset of the set before
    assert verdict_on((6, second)) == WRONG  # nobody's: behind this set, before the next
    assert verdict_on((9, third)) == CONSISTENT  # a hole before the set: it leads to the same batch
    assert verdict_on((-1, first)) == WRONG


def test_of_a_compressed_batch_of_magic_2_only_its_first_and_last_offsets_are_true(
    judged: Callable[..., Judged],
) -> None:
    log = log_of([(1000,) * 3, (1001,) * 3], codec="gzip")
    _, second = starts_of(log)
    for offset, is_true in ((3, True), (4, False), (5, True)):
        seen = judged(log, None, offset_bytes((offset, second)))
        assert seen.offset_verdict in (GOOD if is_true else (WRONG,))


def test_a_missing_offset_index_is_not_a_problem() -> None:
    assert judge(LOG, RECOVERED, None).offset_verdict is None
