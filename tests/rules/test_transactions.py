"""Producers and their transactions: where Kafka's producer state makes a log fail to load."""

from collections.abc import Sequence

import numpy as np
import pytest

from kip33.formats.batch import BATCH
from kip33.formats.walk import ABORT as ABORT_MARKER
from kip33.formats.walk import COMMIT as COMMIT_MARKER
from kip33.rules.leader_epochs import LeaderEpochs
from kip33.rules.transactions import OpenTransactions

PLAIN, TRANSACTIONAL, CONTROL = 0, 0x10, 0x30
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


def failure_of(steps: Sequence[Step], step: int | None = None) -> tuple[int, str] | None:
    batches = np.zeros(len(steps), BATCH)
    for i, (batch, (producer, offset, attributes, control)) in enumerate(
        zip(batches, steps, strict=True)
    ):
        batch["position"], batch["producer_id"] = i * BATCH_BYTES, producer
        batch["base_offset"], batch["attributes"] = offset, attributes
        batch["control"] = control
    transactions = OpenTransactions()
    for at in range(0, len(batches), step or max(len(batches), 1)):
        failure = transactions.append(batches[at : at + (step or len(batches))])
        if failure:
            return failure
    return None


FINE = [
    pytest.param([], id="no batches"),
    pytest.param([data(-1, 0), data(-1, 1)], id="no producer"),
    pytest.param([data(5, 0), data(5, 1)], id="an idempotent producer"),
    pytest.param([inside(5, 0), inside(5, 1), commit(5, 2)], id="a transaction"),
    pytest.param([inside(5, 0), abort(5, 1), inside(5, 2), abort(5, 3)], id="two aborted ones"),
    pytest.param(
        [inside(5, 0), inside(6, 1), abort(5, 2), commit(6, 3)], id="two producers, interleaved"
    ),
    pytest.param([commit(5, 0)], id="a marker of a transaction that began in an earlier segment"),
    pytest.param([abort(5, 0), abort(5, 1)], id="markers without data"),
    pytest.param([inside(5, 0), data(6, 1)], id="another producer's data meanwhile"),
    pytest.param([inside(5, 0), data(-1, 1)], id="data without a producer meanwhile"),
    pytest.param([inside(5, 0), commit(5, 1), data(5, 2)], id="plain data after the commit"),
    pytest.param([data(5, 0), inside(5, 1)], id="plain data before the transaction"),
    pytest.param([inside(5, 0), abort(5, 9), inside(5, 3), commit(5, 4)], id="offsets go back"),
    pytest.param([inside(5, 0), (5, 1, CONTROL, 4), inside(5, 2)], id="an empty control batch"),
]
FAILS = [
    pytest.param(
        [inside(5, 0), data(5, 1)], 1, "outside its open transaction", id="row 36: plain data"
    ),
    pytest.param(
        [inside(5, 0), inside(6, 1), commit(5, 2), data(5, 3), data(6, 4)],
        4, "producer 6 writes outside",
        id="row 36: of the producer whose transaction is open",
    ),
    pytest.param(
        [inside(5, 0), (5, 1, CONTROL, 4), data(5, 2)], 2, "outside its open transaction",
        id="row 36: an empty control batch ends nothing",
    ),
    pytest.param(
        [inside(5, 0), abort(5, 9), inside(5, 1), abort(5, 9)],
        3, "not above the last one", id="an abort marker at the last one's offset",
    ),
    pytest.param(
        [inside(5, 0), abort(5, 9), inside(5, 1), abort(5, 8)],
        3, "not above the last one", id="an abort marker below the last one",
    ),
    pytest.param(
        [inside(5, 7), inside(6, 7), commit(5, 8), commit(6, 9)],
        3, "two transactions begin at offset 7", id="two that begin at one offset",
    ),
]  # fmt: skip


@pytest.mark.parametrize("step", [None, 1])
@pytest.mark.parametrize("steps", FINE)
def test_a_log_that_loads(steps: list[Step], step: int | None) -> None:
    assert failure_of(steps, step) is None


@pytest.mark.parametrize("step", [None, 1])
@pytest.mark.parametrize(("steps", "at", "says"), FAILS)
def test_a_log_that_fails_to_load(steps: list[Step], at: int, says: str, step: int | None) -> None:
    failure = failure_of(steps, step)
    assert failure is not None
    assert failure[0] == at * BATCH_BYTES
    assert says in failure[1]


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


EPOCHS = [  # (leader epoch, base offset) of each batch
    pytest.param([(0, 0), (0, 1), (3, 2), (1, 3), (3, 4)], None, id="epochs that grow and fall"),
    pytest.param([(-1, -5), (-1, 0)], None, id="no epoch: nothing is noted"),
    pytest.param([(0, -5)], 0, id="the first epoch begins below 0"),
    pytest.param([(2, 0), (3, -1)], 1, id="a new epoch begins below 0"),
    pytest.param([(2, 0), (2, -1), (1, -1)], None, id="no new epoch there"),
    pytest.param([(2, 0), (1, -1), (3, -1)], 2, id="the latest is the highest seen"),
]


@pytest.mark.parametrize("step", [None, 1, 2])
@pytest.mark.parametrize(("epochs", "at"), EPOCHS)
def test_leader_epochs(epochs: list[tuple[int, int]], at: int | None, step: int | None) -> None:
    failure = epoch_failure_of(epochs, step)
    assert (failure and failure[0]) == (None if at is None else at * BATCH_BYTES)
