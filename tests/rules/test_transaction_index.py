"""Aborted transactions of segments that are scanned each by itself, against one pass over the log.

The model is that of tests/rules/test_transactions.py, fed a whole log in order. `KIP33_SEED`
chooses other logs, `KIP33_LOGS` how many.
"""

import os
import random
from collections.abc import Sequence

import numpy as np
import pytest

from kip33.formats.native import Speed, compiled, plain
from kip33.formats.transaction_index import AbortedTransaction
from kip33.rules.transaction_index import (
    START_UNKNOWN,
    UNCHANGED,
    CompletedTransactions,
    complete_transactions,
    open_as_json,
    open_from_json,
)
from kip33.rules.transactions import (
    NO_TRANSACTIONS,
    OpenTransactions,
    TransactionSummary,
)
from tests.cases import each_case
from tests.long_forms import short_and_long
from tests.rules.test_transactions import (
    SPEEDS,
    Model,
    Step,
    abort,
    columns,
    commit,
    data,
    inside,
)

SEED = os.environ.get("KIP33_SEED") or str(random.SystemRandom().randrange(2**32))


def summary_of(
    steps: Sequence[Step], speed: Speed = plain, piece: int | None = None
) -> TransactionSummary:
    transactions, batches = OpenTransactions(), columns(steps)
    for at in range(0, len(batches), piece or max(len(batches), 1)):
        assert transactions.append(batches[at : at + (piece or len(batches))], speed) is None
    return transactions.summary()


def completed(
    steps: Sequence[Step], start: dict[int, int] | None, speed: Speed = plain
) -> CompletedTransactions:
    base_offset = steps[0][1] if steps else 10
    return complete_transactions(summary_of(steps, speed), start, base_offset=base_offset)


CASES = {
    "no batches: what is open stays open": ([], {5: 3}, [], {5: 3}),
    "it began in an earlier segment": ([abort(5, 10)], {5: 3}, [(5, 3, 10, 11)], {}),
    "it began in an earlier segment and goes on in this one": (
        [inside(5, 10), abort(5, 11)], {5: 3}, [(5, 3, 11, 12)], {}),
    "the last stable offset is the first offset of what is still open": (
        [inside(5, 10), inside(6, 11), abort(5, 12), abort(6, 13)], {},
        [(5, 10, 12, 11), (6, 11, 13, 14)], {}),
    "only the first marker ends what was open at the start": (
        [commit(5, 10), abort(5, 11), inside(5, 12)], {5: 3}, [], {5: 12}),
    "two transactions of one producer while another's is open": (
        [inside(5, 10), abort(5, 11), inside(5, 12), abort(5, 13)], {5: 3, 6: 4},
        [(5, 3, 11, 4), (5, 12, 13, 4)], {6: 4}),
}  # fmt: skip


@each_case("speed", SPEEDS)
@each_case(("steps", "start", "entries", "end"), CASES)
def test_entries_and_what_is_open_at_the_end(
    steps: list[Step],
    start: dict[int, int],
    entries: list[tuple[int, int, int, int]],
    end: dict[int, int],
    speed: Speed,
) -> None:
    assert completed(steps, start, speed) == CompletedTransactions(
        tuple(AbortedTransaction(*entry) for entry in entries), end
    )


def test_a_segment_without_transactions_changes_nothing() -> None:
    assert summary_of([data(5, 0), data(-1, 1)]) is NO_TRANSACTIONS
    assert NO_TRANSACTIONS.changes_nothing
    assert not summary_of([abort(5, 0)]).changes_nothing
    assert not summary_of([inside(5, 0)]).changes_nothing


def test_without_the_start_only_segments_without_an_abort_are_known() -> None:
    assert completed([inside(5, 10), commit(5, 11)], None) == ((), None, None)
    assert completed([inside(5, 10), abort(5, 11)], None) == (None, None, START_UNKNOWN)
    assert completed([abort(5, 11)], None) == (None, None, START_UNKNOWN)


@each_case(
    ("steps", "start", "says"),
    {
        "two at one offset": ([abort(5, 10)], {5: 3, 6: 3}, "at the same offset"),
        "it begins in this segment": ([abort(5, 10)], {5: 10}, "begins at 10"),
        "back": ([inside(6, 10), inside(5, 2), abort(5, 11)], {7: 3}, "begins at 2, before"),
        "two markers at one offset": ([inside(6, 9), abort(6, 20), abort(5, 20)], {5: 3},
            "the abort marker at offset 20 is not above the last one, 20: Kafka fails to load"),
    })  # fmt: skip
def test_what_cannot_be_is_not_written(steps: list[Step], start: dict[int, int], says: str) -> None:
    found = completed(steps, start)
    assert found.aborted is None and found.open_at_end is None
    assert found.problem and says in found.problem


def random_log(dice: random.Random) -> list[list[Step]]:
    """Return the batches of a sane log, cut into segments anywhere."""
    producers = range(dice.choice([1, 2, 5, 40, 400]))
    markers, steps, offset = dice.choice([0.05, 0.3, 0.6]), [], 0
    idempotent = range(1000, 1003)
    for _ in range(dice.choice([5, 50, 500, 3000])):
        producer = dice.choice(producers)
        kind = dice.random()
        if kind < 0.1:
            steps.append(data(dice.choice([-1, *idempotent]), offset))
        elif kind < 0.1 + 0.9 * markers:
            steps.append(dice.choice([abort, abort, commit])(producer, offset))
        else:
            steps.append(inside(producer, offset))
        offset += dice.randint(1, 5)
    cuts = sorted(dice.randrange(len(steps) + 1) for _ in range(dice.randrange(6)))
    return [steps[a:b] for a, b in zip([0, *cuts], [*cuts, len(steps)], strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("logs", short_and_long(50, 3_000, "KIP33_LOGS"))
def test_segments_scanned_apart_give_what_one_pass_gives(logs: int) -> None:
    carried = 0
    for number in range(logs):
        dice = random.Random(f"{SEED}/{number}")
        model, open_at_end = Model(), {}
        for steps in random_log(dice):
            speed = compiled if dice.random() < 0.8 else plain
            summary = summary_of(steps, speed, dice.choice([None, 1, 7, 500]))
            base_offset = steps[0][1] if steps else 10**6
            assert model.append(columns(steps)) is None
            expected, model.aborted = model.aborted, []
            found = complete_transactions(summary, open_at_end, base_offset=base_offset)
            assert found.problem is None, f"KIP33_SEED={SEED}, log {number}"
            assert list(found.aborted or ()) == expected, f"KIP33_SEED={SEED}, log {number}"
            assert found.open_at_end == model.first_offset_of, f"KIP33_SEED={SEED}, log {number}"
            carried += sum(one.first_offset < base_offset for one in expected)
            open_at_end = dict(found.open_at_end)
    assert carried > logs / 10


# The catalog's column of open transactions.


@each_case("state", [{}, {5: 1000}, {2**63 - 1: 0, 0: 2**63 - 1}])
def test_the_column_is_read_as_it_is_written(state: dict[int, int]) -> None:
    assert open_from_json(open_as_json(state), None) == state


def test_a_segment_without_transactions_leaves_open_what_was_open() -> None:
    assert open_from_json(UNCHANGED, {5: 1}) == {5: 1}
    assert open_from_json(UNCHANGED, None) is None
    assert open_from_json(None, {5: 1}) is None
    assert open_as_json(None) is None


def test_a_summary_is_read_as_it_is_written() -> None:
    rows = np.array([[5, 1, 2, 3, 1], [6, 1, 4, 5, 3]], np.int64)
    summary = TransactionSummary(rows, {5: 2, 6: 4}, {7: 2**63 - 1}, 1)
    read = TransactionSummary.from_json(summary.to_json())
    assert read.aborts.tolist() == rows.tolist()
    assert read[1:] == summary[1:]
