"""What brokers' checkpoints say of a log is in the row of its first segment, as of each night."""

from pathlib import Path
from typing import Any

import pytest

from kip33.archive.listing import CHECKPOINTS
from tests.builders.changing_archive import DAY_MS, ChangingArchive, batches
from tests.builders.segment_builder import Record, segment, v2_batch

NOTHING = (None, None, None)


def said(archive: ChangingArchive) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in CHECKPOINTS) for row in archive.rows()]


def write_epochs(archive: ChangingArchive, *entries: tuple[int, int]) -> Path:
    place = archive.source / "orders-0/leader-epoch-checkpoint"
    lines = ["0", str(len(entries)), *(f"{epoch} {offset}" for epoch, offset in entries)]
    archive.write(place, "".join(f"{line}\n" for line in lines).encode())
    return place


@pytest.fixture
def archive(tmp_path: Path) -> ChangingArchive:
    """Two closed segments of orders-0, and a partition without checkpoints."""
    archive = ChangingArchive(tmp_path)
    for base in (0, 40):
        archive.write(archive.log("orders-0", base), batches(base, 4), age_ms=DAY_MS)
    archive.write(archive.log("orders-1"), batches(0, 4), age_ms=DAY_MS)
    return archive


def test_rows_that_are_taken_over_have_the_checkpoints_of_this_night(
    archive: ChangingArchive,
) -> None:
    archive.build()
    assert said(archive) == [NOTHING] * 3
    write_epochs(archive, (0, 0), (3, 41))
    start = archive.source / "log-start-offset-checkpoint"
    archive.write(start, b"0\n1\norders 0 7\n")
    assert archive.build().reused == 3
    assert said(archive) == [([0, 3], [0, 41], 7), NOTHING, NOTHING]
    write_epochs(archive, (3, 41), (4, 99))
    archive.log("orders-0", 0).unlink()
    start.unlink()
    assert archive.build().reused == 2
    assert said(archive) == [([3, 4], [41, 99], None), NOTHING]
    assert archive.outcome() == archive.fresh()


@pytest.mark.parametrize(
    "damage", [b"x", b"0\n1\n2147483648 0\n", b"0\n1\n0 9223372036854775808\n"]
)
def test_a_damaged_checkpoint_is_a_warning_and_says_nothing(
    archive: ChangingArchive, damage: bytes
) -> None:
    epochs, start = write_epochs(archive), archive.source / "log-start-offset-checkpoint"
    archive.write(epochs, damage)
    archive.write(start, b"1\n")
    warnings = archive.build().warnings
    assert [one.partition(":")[0] for one in warnings] == [
        "1 leader-epoch-checkpoint file cannot be used, for example file",
        "file",
    ]
    assert epochs.as_uri() in warnings[0] and start.as_uri() in warnings[1]
    assert said(archive) == [NOTHING] * 3


def test_entries_that_a_broker_drops_say_nothing(archive: ChangingArchive) -> None:
    write_epochs(archive, (0, 0), (2, 40), (1, 50), (3, 40))
    archive.build()
    assert said(archive)[0] == ([0, 3], [0, 40], None)


def test_a_segment_says_whether_its_leader_epochs_fall(archive: ChangingArchive) -> None:
    for number, epochs in enumerate([(2, 2), (2, 3), (3, 2)]):
        log = segment(
            v2_batch(at, [Record(at)], leader_epoch=epoch) for at, epoch in enumerate(epochs)
        )
        archive.write(archive.log(f"falls-{number}"), log)
    archive.build()
    assert [archive.row(f"falls-{n}")["epochs_fall"] for n in range(3)] == [False, False, True]
