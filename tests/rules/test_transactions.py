"""Producers and their transactions: where Kafka's producer state makes a log fail to load.

Every log is given plain and compiled, at once and one batch at a time; random ones are held
against a model that keeps what is open in two dicts.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import count, islice

import numpy as np
import pytest

from kip33.formats.batch import BATCH, BatchColumns
from kip33.formats.native import Speed, compiled, plain
from kip33.formats.transaction_index import AbortedTransaction
from kip33.formats.walk import ABORT as ABORT_MARKER
from kip33.formats.walk import COMMIT as COMMIT_MARKER
from kip33.rules.leader_epochs import LeaderEpochs
from kip33.rules.transactions import (
    ABORT_COLUMNS,
    FEWEST_SLOTS,
    NO_ROOM,
    OFFSET,
    SLOT_KEY,
    TAKEN,
    TRANSACTION_STATE,
    USED,
    OpenTransactions,
    Table,
    append_batches,
    home_of,
    new_table,
    put,
    remove,
    slot_of,
)
from tests.cases import each_case
from tests.long_forms import short_and_long

PLAIN, TRANSACTIONAL, CONTROL = 0, 0x10, 0x30
OTHER_CONTROL = 0x20  # not transactional
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
SPEEDS = {"plain": plain, "compiled": compiled}
BATCH_BYTES = 100
Step = tuple[int, int, int, int]  # producer id, base offset, attributes, control


def data(producer: int, offset: int) -> Step:
    return producer, offset, PLAIN, 0


def inside(producer: int, offset: int) -> Step:
    """Data of a transaction."""
    return producer, offset, TRANSACTIONAL, 0


def commit(producer: int, offset: int) -> Step:
    return producer, offset, CONTROL, COMMIT_MARKER


def abort(producer: int, offset: int) -> Step:
    return producer, offset, CONTROL, ABORT_MARKER


def columns(steps: Sequence[Step]) -> BatchColumns:
    batches = np.zeros(len(steps), BATCH)
    batches["position"] = np.arange(len(steps)) * BATCH_BYTES
    for k, name in enumerate(("producer_id", "base_offset", "attributes", "control")):
        batches[name] = [step[k] for step in steps]
    return batches


def failure_of(
    steps: Sequence[Step], step: int | None = None, speed: Speed = plain
) -> tuple[int, str] | None:
    batches = columns(steps)
    transactions = OpenTransactions()
    for at in range(0, len(batches), step or max(len(batches), 1)):
        failure = transactions.append(batches[at : at + (step or len(batches))], speed)
        if failure:
            return failure
    return None


FAILS = {
    "row 36: plain data": ([inside(5, 0), data(5, 1)], 1, "outside its open transaction"),
    "row 36: of the producer whose transaction is open": (
        [inside(5, 0), inside(6, 1), commit(5, 2), data(5, 3), data(6, 4)],
        4, "producer 6 writes outside"),
    "row 36: an empty control batch ends nothing": (
        [inside(5, 0), (5, 1, CONTROL, 4), data(5, 2)], 2, "outside its open transaction"),
    "an abort marker at the last one's offset": (
        [inside(5, 0), abort(5, 9), inside(5, 1), abort(5, 9)], 3, "not above the last one"),
    "an abort marker below the last one": ([inside(5, 0), abort(5, 9), inside(5, 1), abort(5, 8)],
        3, "not above the last one"),
    "two that begin at one offset": ([inside(5, 7), inside(6, 7), commit(5, 8), commit(6, 9)],
        3, "two transactions begin at offset 7"),
}  # fmt: skip


@each_case("speed", SPEEDS)
@each_case("step", [None, 1])
@each_case(("steps", "at", "says"), FAILS)
def test_a_log_that_fails_to_load(
    steps: list[Step], at: int, says: str, step: int | None, speed: Speed
) -> None:
    failure = failure_of(steps, step, speed)
    assert failure is not None
    assert failure[0] == at * BATCH_BYTES
    assert says in failure[1]


@each_case("speed", SPEEDS)
@each_case("step", [None, 1000])
def test_thousands_of_open_transactions_are_all_kept(step: int | None, speed: Speed) -> None:
    producers = range(5000)
    steps = [inside(producer, producer * 3) for producer in producers]
    steps += [commit(producer, 20_000) for producer in producers if producer != 4321]
    steps += [data(producer, 30_000) for producer in producers]
    assert failure_of(steps, step, speed) == (
        (5000 + 4999 + 4321) * BATCH_BYTES,
        "producer 4321 writes outside its open transaction; Kafka fails to load",
    )


@each_case("speed", SPEEDS)
def test_an_ended_transaction_frees_its_slot(speed: Speed) -> None:
    fit = FEWEST_SLOTS // 2
    steps: list[Step] = []
    for first in range(0, 50 * fit, fit):
        steps += [inside(producer, producer) for producer in range(first, first + fit)]
        steps += [commit(producer, producer) for producer in range(first, first + fit)]
    steps += [inside(producer, -producer) for producer in range(fit + 1)]
    run, state = speed(append_batches), np.zeros(1, TRANSACTION_STATE)
    room = len(steps)  # for what is not reused: first offsets, producers that ended one

    def others() -> tuple[np.ndarray, ...]:
        enders = new_table(1 << (2 * room).bit_length())
        return np.empty(room, np.int64), enders, np.empty((room, ABORT_COLUMNS), np.int64)

    row, outcome = run(columns(steps), 0, state, new_table(), new_table(), *others())
    assert (row, outcome) == (len(steps) - 1, NO_ROOM)
    again = run(columns(steps[:-1]), row, state, new_table(), new_table(), *others())
    assert again == (row, TAKEN)


@each_case("speed", SPEEDS)
def test_appending_after_failures_has_room(speed: Speed) -> None:
    transactions = OpenTransactions()
    assert transactions.append(columns([inside(0, 0), abort(0, 0)]), speed) is None
    for offset in range(1, 3 * FEWEST_SLOTS):
        failure = transactions.append(columns([inside(0, offset), abort(0, 0)]), speed)
        assert failure and "not above the last one" in failure[1]


class Model:
    """The same in Python's dicts, read off Kafka's code line by line."""

    def __init__(self) -> None:
        self.first_offset_of: dict[int, int] = {}  # producer id -> its open transaction
        self.ongoing: dict[int, int] = {}  # first offset -> producer id, as in Kafka's sorted map
        self.last_abort: int | None = None
        self.aborted: list[AbortedTransaction] = []

    def append(self, batches: BatchColumns) -> tuple[int, str] | None:
        names = ["producer_id", "base_offset", "attributes", "control", "position"]
        for producer_id, base_offset, attributes, control, position in batches[names].tolist():
            if producer_id < 0:
                continue
            is_open, failure = producer_id in self.first_offset_of, None
            if attributes & 0x20:
                if control in (ABORT_MARKER, COMMIT_MARKER) and is_open:
                    first_offset = self.first_offset_of.pop(producer_id)
                    failure = self.complete(producer_id, first_offset, base_offset, control)
                    failure = failure and f"producer {producer_id}: {failure}"
            elif attributes & 0x10 and not is_open:
                self.first_offset_of[producer_id] = base_offset
                self.ongoing[base_offset] = producer_id
            elif is_open and not attributes & 0x10:
                failure = f"producer {producer_id} writes outside its open transaction"
            if failure:
                return position, f"{failure}; Kafka fails to load"
        return None

    def complete(
        self, producer_id: int, first_offset: int, marker_offset: int, control: int
    ) -> str | None:
        if control == ABORT_MARKER:
            if self.last_abort is not None and marker_offset <= self.last_abort:
                return f"the abort marker at offset {marker_offset} is not above the last one"
            self.last_abort = marker_offset
            others = (first for first, producer in self.ongoing.items() if producer != producer_id)
            stable = min(others, default=marker_offset + 1)
            self.aborted.append(
                AbortedTransaction(producer_id, first_offset, marker_offset, stable)
            )
        if first_offset not in self.ongoing:
            return f"two transactions begin at offset {first_offset}"
        del self.ongoing[first_offset]
        return None


def random_steps(dice: random.Random, producers: Sequence[int], offsets: int) -> Iterator[Step]:
    """Yield steps that mostly make sense; `offsets` 0 is a log's, else that many are chosen from.

    How many transactions are open at once rises and falls with how rare markers are.
    """
    chosen = [0, LONG_MIN, LONG_MAX, -1, *(dice.randrange(LONG_MIN, LONG_MAX) for _ in range(96))]
    markers, offset = 0.3, 0
    for i in count():
        if i % 500 == 0:
            markers = dice.choice([0.03, 0.3, 0.6])
        producer = dice.choice(producers)
        offset = dice.choice(chosen[:offsets]) if offsets else offset + dice.randint(1, 9)
        if dice.random() < 0.003:
            yield data(producer, offset)
        elif dice.random() < 0.05:
            yield data(-1, offset)
        elif dice.random() < 0.03:
            attributes = dice.choice([CONTROL, OTHER_CONTROL])
            yield producer, offset, attributes, dice.choice([0, 3, 4, 5, 6])
        elif dice.random() < markers:
            marker = dice.choice([ABORT_MARKER, COMMIT_MARKER, COMMIT_MARKER])
            yield producer, offset, dice.choice([CONTROL, OTHER_CONTROL]), marker
        else:
            yield inside(producer, offset)


def random_pieces(dice: random.Random, batches: BatchColumns) -> Iterator[BatchColumns]:
    """Cut `batches` anywhere, sometimes twice at one place."""
    longest = dice.choice([1, 30, 1000, 6000])
    at = 0
    while at < len(batches):
        size = dice.randint(0, longest)
        yield batches[at : at + size]
        at += size


STREAMS = {
    "few producers": (range(1000, 1003), 0),
    "hundreds of producers": (range(1000, 1200), 0),
    "thousands of producers": (range(0, 5000 << 40, 1 << 40), 0),
    "first offsets that collide, at the edges of int64": (range(40), 4),
    "thousands of producers on few offsets": (range(2000), 100),
    "ids at the edges of int64": ([0, 1, 2**31, 2**32, LONG_MAX - 1, LONG_MAX], 10),
}


@pytest.mark.slow
@pytest.mark.parametrize("steps", short_and_long(1_500, 20_000, "KIP33_TRANSACTION_STEPS"))
@each_case(("producers", "offsets"), STREAMS)
def test_random_logs_fail_where_the_model_fails(
    producers: Sequence[int], offsets: int, steps: int
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    batches = columns(list(islice(random_steps(dice, producers, offsets), steps)))
    model, as_written, machine_code = Model(), OpenTransactions(), OpenTransactions()
    for piece in random_pieces(dice, batches):  # on after a failure, from the next piece
        expected = model.append(piece)
        assert as_written.append(piece, plain) == expected
        assert machine_code.append(piece, compiled) == expected


def epoch_failure_of(
    epochs: Sequence[tuple[int, int]], step: int | None = None
) -> tuple[int, str] | None:
    batches = np.zeros(len(epochs), BATCH)
    batches["position"] = np.arange(len(epochs)) * BATCH_BYTES
    batches["leader_epoch"] = [epoch for epoch, _ in epochs]
    batches["base_offset"] = [offset for _, offset in epochs]
    cache = LeaderEpochs()
    for at in range(0, len(batches), step or len(batches)):
        failure = cache.append(batches[at : at + (step or len(batches))])
        if failure:
            return failure
    return None


EPOCHS = {  # (leader epoch, base offset) of each batch
    "epochs that grow and fall": ([(0, 0), (0, 1), (3, 2), (1, 3), (3, 4)], None),
    "no epoch: nothing is noted": ([(-1, -5), (-1, 0)], None),
    "the first epoch begins below 0": ([(0, -5)], 0),
    "a new epoch begins below 0": ([(2, 0), (3, -1)], 1),
    "no new epoch there": ([(2, 0), (2, -1), (1, -1)], None),
    "the latest is the highest seen": ([(2, 0), (1, -1), (3, -1)], 2),
}


@each_case("step", [None, 1, 2])
@each_case(("epochs", "at"), EPOCHS)
def test_leader_epochs(epochs: list[tuple[int, int]], at: int | None, step: int | None) -> None:
    failure = epoch_failure_of(epochs, step)
    assert (failure and failure[0]) == (None if at is None else at * BATCH_BYTES)


# The hash table (int64 to offset) contains the same as a dict, plain and compiled.

EDGES = [LONG_MIN, LONG_MIN + 1, -(2**32), -1, 0, 1, 2**31, 2**32, LONG_MAX - 1, LONG_MAX]


def keys_at_home_in(home: int, most: int) -> list[int]:
    """Return keys that all want one slot of the smallest table."""
    keys = (key for key in range(10**6) if home_of(key, FEWEST_SLOTS) == home)
    return list(islice(keys, most))


def contents(table: Table) -> dict[int, int]:
    used = table[table[:, USED] == 1]
    return dict(zip(used[:, SLOT_KEY].tolist(), used[:, OFFSET].tolist(), strict=True))


def steps_to(table: Table, key: int) -> int:
    """Return how many slots a search for `key` passes."""
    return (slot_of(table, key) - home_of(key, len(table))) % len(table)


KEYS = {
    "neighbours": list(range(1000, 1040)),
    "the edges of int64": EDGES,
    "all at home in the last slot": keys_at_home_in(63, 20),
    "homes before and behind the end": [
        *keys_at_home_in(62, 8),
        *keys_at_home_in(63, 8),
        *keys_at_home_in(0, 8),
    ],
}


@each_case("speed", SPEEDS)
@each_case("keys", KEYS)
def test_a_table_keeps_what_a_dict_keeps(keys: list[int], speed: Speed) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    table, model = new_table(), dict[int, int]()
    for _ in range(600):
        key = dice.choice(keys)
        at = speed(slot_of)(table, key)
        assert table[at, USED] == (key in model)
        if key in model:
            speed(remove)(table, at)
            del model[key]
        elif len(model) < FEWEST_SLOTS // 2:
            model[key] = dice.choice(EDGES)
            speed(put)(table, at, key, model[key])
        assert contents(table) == model
        assert all(table[slot_of(table, key), USED] for key in model)


@each_case("start", [0, 1_000_000_007, -(2**40)])
def test_a_half_full_table_of_evenly_spaced_keys_is_searched_in_few_steps(start: int) -> None:
    for bits in range(54):  # 512 keys reach 2^62
        for odd in (1, 3):
            table = new_table(1024)
            keys = [start + (i * odd << bits) for i in range(512)]
            keys = [key for key in keys if key <= LONG_MAX]
            for key in keys:
                put(table, slot_of(table, key), key, 0)
            steps = np.array([steps_to(table, key) for key in keys])
            assert steps.mean() < 3, (start, bits, odd)
