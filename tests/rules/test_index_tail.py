"""Ends of a `.timeindex` that are trusted without the log, one reason per row."""

from kip33.formats.batch import MAX_SEGMENT_BYTES, decode_header
from kip33.formats.time_index import TimeIndex
from kip33.rules.index_tail import LAST_HEADER_BYTES, distrust
from tests.builders.segment_builder import Record, v0_message, v1_message, v2_batch, wrapper
from tests.cases import each_case

BASE, LOG_BYTES = 1000, 5000
FIRST = v2_batch(BASE + 5, [Record(300), Record(250)])  # compaction took what came before


def why(
    entries: list[tuple[int, int]],
    first: bytes = FIRST,
    *,
    log_bytes: int = LOG_BYTES,
    next_base_offset: int | None = None,
) -> str | None:
    tail = TimeIndex.from_entries(entries, base_offset=BASE)
    header = decode_header((first + bytes(LAST_HEADER_BYTES))[:LAST_HEADER_BYTES], 0)
    return distrust(tail, header, log_bytes=log_bytes, next_base_offset=next_base_offset)


BELIEVED = {
    "one entry": ([(400, BASE + 9)], FIRST, None),
    "two of one batch": ([(400, BASE + 9), (401, BASE + 9)], FIRST, None),
    "the first batch is the latest": ([(300, BASE + 6)], FIRST, None),
    "its first record, as leaders recorded it": ([(300, BASE + 5)], FIRST, None),
    "the next segment goes on": ([(400, BASE + 9)], FIRST, BASE + 10),
    "the next segment leaves a hole": ([(400, BASE + 9)], FIRST, BASE + 99),
    "KIP-33's text: the next offset": ([(400, BASE + 10)], FIRST, BASE + 10),
    "v1": ([(400, BASE)], v1_message(BASE, 7), None),
    "v0 comes first": ([(400, BASE + 1)], v0_message(BASE), None),
    "an offset inside the first wrapper": ([(40, BASE + 1)],
        wrapper(BASE + 3, [v1_message(i, 9 * i) for i in range(4)]), None),
    "no timestamp at first": ([(1, BASE + 5)], v2_batch(BASE, [Record(-1)]), None),
    "the largest entry there is": ([(2**63 - 1, BASE + 2**31 - 1)], FIRST, None),
}  # fmt: skip


@each_case(("entries", "first", "next_base_offset"), BELIEVED)
def test_trusted_index_ends(
    entries: list[tuple[int, int]], first: bytes, next_base_offset: int | None
) -> None:
    assert why(entries, first, next_base_offset=next_base_offset) is None


NOT_BELIEVED = {
    "no entry": ([], FIRST, None, "it is empty"),
    "a zero entry": ([(0, BASE)], FIRST, None, "zeros"),
    "ends in zeros": ([(400, BASE + 9), (0, BASE)], FIRST, None, "zeros"),
    "no timestamp": ([(-1, BASE)], FIRST, None, "zeros"),
    "the same twice": ([(400, BASE + 9), (400, BASE + 9)], FIRST, None, "out of order"),
    "time goes back": ([(401, BASE + 8), (400, BASE + 9)], FIRST, None, "out of order"),
    "offset goes back": ([(400, BASE + 9), (401, BASE + 8)], FIRST, None, "out of order"),
    "earlier than the log": ([(299, BASE + 9)], FIRST, None, "before the first batch's"),
    "an offset before the log": ([(400, BASE + 4)], FIRST, None, "is before the first batch"),
    "beyond the next base": ([(400, BASE + 11)], FIRST, BASE + 10, "in the next segment"),
    "magic 3": ([(400, BASE + 9)], v2_batch(BASE, [Record(1)], magic=3), None, "magic 3"),
    "a log of zeros": ([(400, BASE + 9)], bytes(61), None, "below the base offset"),
    "another segment's log": ([(400, BASE + 9)], v2_batch(BASE - 9, [Record(1)]), None,
        "below the base offset"),
    "a batch longer than the log": (
        [(400, BASE + 9)], v2_batch(BASE, [Record(1)], size=LOG_BYTES), None,
        f"a batch of {LOG_BYTES + 12} bytes"),
    "a batch without a size": ([(400, BASE + 9)], v2_batch(BASE, [Record(1)], size=-12), None,
        "a batch of 0 bytes"),
    "a timestamp that Kafka refuses": (
        [(400, BASE + 9)], v2_batch(BASE, [], max_timestamp=-2), None, "timestamp -2"),
}  # fmt: skip


@each_case(("entries", "first", "next_base_offset", "reason"), NOT_BELIEVED)
def test_index_ends_that_are_not_trusted(
    entries: list[tuple[int, int]], first: bytes, next_base_offset: int | None, reason: str
) -> None:
    assert reason in (why(entries, first, next_base_offset=next_base_offset) or "believed")


def test_an_offset_below_the_base_is_not_trusted() -> None:
    tail = TimeIndex.from_bytes(bytes.fromhex("0000000000000190 ffffffff"), base_offset=BASE)
    header = decode_header(FIRST[:LAST_HEADER_BYTES], 0)
    assert distrust(tail, header, log_bytes=LOG_BYTES, next_base_offset=None)


@each_case(("log_bytes", "believed"), [(2**31 - 1, True), (2**31, False)])
def test_a_log_that_kafka_would_not_open_is_not_trusted(log_bytes: int, believed: bool) -> None:
    assert MAX_SEGMENT_BYTES == 2**31 - 1
    assert (why([(400, BASE + 9)], log_bytes=log_bytes) is None) is believed
