"""Verdicts on `.txnindex` files."""

from kip33.formats.transaction_index import TransactionIndex
from kip33.rules.index_verdict import Verdict
from kip33.rules.transaction_index import complete_transactions, transaction_index_verdict
from tests.cases import each_case
from tests.rules.test_transaction_index import summary_of
from tests.rules.test_transactions import Step, abort, commit, inside

P, Q = 5, 6
BASE = 10
STEPS: list[Step] = [inside(Q, 10), inside(P, 11), abort(Q, 12), abort(P, 13), abort(7, 14)]
ENTRIES = [(Q, 10, 12, 3), (P, 3, 13, 14)]  # P's began in an earlier segment
Entry = tuple[int, int, int, int]


def wire(entries: list[Entry]) -> bytes:
    return TransactionIndex.from_entries(entries, base_offset=BASE).to_bytes()


def verdict(
    data: bytes | None,
    start: dict[int, int] | None,
    steps: list[Step] = STEPS,
    *,
    is_expected: bool = True,
) -> Verdict | None:
    summary = summary_of(steps)
    done = complete_transactions(summary, start, base_offset=BASE)
    return transaction_index_verdict(data, summary, done, base_offset=BASE, is_expected=is_expected)


JUDGED = {
    "what recovery gives": (wire(ENTRIES), "identical", None),
    "no file": (None, "missing", "2 transactions were aborted"),
    "an empty file": (b"", "incomplete", "2 of 2 aborted transactions without an"),
    "one lost": (wire(ENTRIES[:1]), "incomplete", "5's from offset 3 to 13"),
    "half an entry": (wire(ENTRIES)[:-1], "malformed", "67 bytes"),
    "another version": (b"\0\1" + wire(ENTRIES)[2:], "malformed", "version 1"),
    "its data is compacted": (wire([*ENTRIES, (7, 2, 14, 15)]), "consistent", None),
    "covers more": (wire([(Q, 9, 12, 3), ENTRIES[1]]), "consistent", None),
    "a lower stable offset": (wire([(Q, 10, 12, 2), ENTRIES[1]]), "consistent", None),
    "begins later": (wire([(Q, 11, 12, 3), ENTRIES[1]]), "wrong", "offset 11 found, expected"),
    "too high a stable offset": (
        wire([(Q, 10, 12, 13), ENTRIES[1]]), "wrong", "last stable offset 13 found, expected 3"),
    "another producer": (
        wire([(8, 10, 12, 3), ENTRIES[1]]), "wrong", "has no ABORT marker of producer 8"),
    "entries that go back": (wire(ENTRIES[::-1]), "wrong", "12 is not above 13"),
    "zeros": (bytes(68), "wrong", "no ABORT marker of producer 0"),
}  # fmt: skip


@each_case(("data", "name", "says"), JUDGED)
def test_a_file_is_judged_by_what_recovery_gives(
    data: bytes | None, name: str, says: str | None
) -> None:
    found = verdict(data, {P: 3})
    assert found and found.verdict == name
    assert bool(found.problems) == bool(says)
    assert not says or says in found.problems[0]


def test_no_file_is_needed_where_nothing_was_aborted() -> None:
    steps = [inside(P, 10), commit(P, 11)]
    assert verdict(None, {}, steps) is None
    assert verdict(b"", {}, steps) == Verdict("identical")
    assert verdict(None, None, steps) is None


def test_no_file_is_expected_where_there_is_no_index() -> None:
    assert verdict(None, {P: 3}, is_expected=False) is None
    assert verdict(None, None, is_expected=False) is None


def test_without_the_start_a_wrong_entry_is_still_wrong() -> None:
    found = verdict(wire([(8, 10, 12, 3)]), None)
    assert found and found.verdict == "wrong"


@each_case("data", [None, b"", wire(ENTRIES), wire(ENTRIES[:1])])
def test_without_the_start_a_file_is_unknown(data: bytes | None) -> None:
    found = verdict(data, None)
    assert found and found.verdict == "unknown"
    assert "are not known" in found.problems[0]
    assert found.problems[0].startswith("the .txnindex is missing") == (data is None)


def test_no_flipped_bit_is_good_unless_a_reader_skips_as_much() -> None:
    true = wire(ENTRIES)
    for bit in range(8 * len(true)):
        damaged = bytearray(true)
        damaged[bit // 8] ^= 1 << bit % 8
        found = verdict(bytes(damaged), {P: 3})
        assert found
        if found.verdict == "consistent":  # a lower first or last stable offset
            entries = TransactionIndex.from_bytes(bytes(damaged), base_offset=BASE)
            for one, right in zip(entries, ENTRIES, strict=True):
                assert (one.producer_id, one.last_offset) == (right[0], right[2])
                assert one.first_offset <= right[1] and one.last_stable_offset <= right[3]
        else:
            assert found.verdict in ("wrong", "malformed", "incomplete")
