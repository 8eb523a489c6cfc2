"""`kip33 repair` on a real broker's log directory, which belongs to another user than kip33's.

Each fixture goes a step further: a broker has produced, its files were damaged, kip33 repaired
them, the broker was started again. What consumers read and what ListOffsets answers is compared.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.console import KIP33, Finished, subprocess_of
from tests.integration.kafka import broker as brokers
from tests.integration.kafka.broker import (
    JARS,
    Broker,
    running_broker,
)
from tests.integration.kafka.cluster_answers import Answers
from tests.integration.kafka.kafka_jars import kafka_or_skip

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

KAFKA_USER = 4711
BROKER = {
    "log.segment.bytes": "1048576",  # the least
    "log.retention.ms": "-1",
    "log.cleaner.enable": "false",
}
RECORDS, RECORD_BYTES = 4, 120_000  # of a batch: two fill a segment
BATCHES = 6
MIDDLE, ALL = 8, [0, 8, 16]  # base offsets
START_MS, STEP_MS = 1_700_000_000_000, 1_000
ASKED_MS = [START_MS + STEP_MS // 2, START_MS + 2 * STEP_MS, START_MS + 4 * STEP_MS + 1]
LOST_INDEXES, HIDDEN = "orders-0", "orders-1"  # no .index at all; an .index that hides damage
LOST_TIMES = "clicks-0"
PARTITIONS = (LOST_INDEXES, HIDDEN, LOST_TIMES)
KEPT = [*range(12), *range(16, 24)]  # what recovery leaves where offset 12 on is damaged


class Repaired(NamedTuple):
    """What each step left."""

    refused: list[Finished]  # while the broker ran
    before: Answers
    planned: dict[str, tuple[str, str]]  # by partition and base offset
    outcomes: set[str | None]
    owners: set[tuple[int, int]]
    after: Answers


def path_of(log_dir: Path, partition: str, base_offset: int, kind: str) -> Path:
    return log_dir / partition / f"{base_offset:020d}.{kind}"


def asked(broker: Broker) -> Answers:
    folder = broker.log_dir.parent
    times = "".join(f"{LOST_TIMES.replace('-', ' ')} {at}\n" for at in ASKED_MS)
    (folder / "times").write_text(times)
    broker.run_steps([f"ask {folder / 'answers'} {folder / 'times'} orders clicks"])
    return Answers.read(folder / "answers")


def consumed(answers: Answers) -> dict[str, list[int]]:
    offsets = {}
    for name in PARTITIONS:
        topic, number = name.split("-")
        offsets[name] = answers.offsets(topic, int(number))
    return offsets


def produce(broker: Broker) -> None:
    sent = [
        f"send p none {name.replace('-', ' ')} {START_MS + number * STEP_MS}"
        f" 0 {RECORDS} {RECORD_BYTES} 10"
        for name in PARTITIONS
        for number in range(BATCHES)
    ]
    broker.run_steps(["create orders 2 1", "create clicks 1 1", *sent])


def damage(log_dir: Path) -> None:
    """Change a byte of a middle segment's second batch, twice, and lose index files."""
    for partition in (LOST_INDEXES, HIDDEN):
        log = path_of(log_dir, partition, MIDDLE, "log")
        with log.open("r+b") as file:
            file.seek(log.stat().st_size - 1_000)
            file.write(b"x")
    for base_offset in ALL:
        path_of(log_dir, LOST_INDEXES, base_offset, "index").unlink()
        path_of(log_dir, LOST_TIMES, base_offset, "timeindex").unlink()


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """Return a folder of the broker's user, below no folder that is shut to it."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("only root runs a broker as another user, by setpriv")
    folder = Path(tempfile.mkdtemp(prefix="kip33-repair-"))
    os.chown(folder, KAFKA_USER, KAFKA_USER)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def repaired(root: Path) -> Iterator[Repaired]:
    with kafka_or_skip():
        JARS.build()
    user = str(KAFKA_USER)
    as_kafka = ("setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(brokers, "JVM", (*as_kafka, *brokers.JVM))
        log_dir = root / "logs"

        def kip33(*arguments: Any) -> Finished:
            return subprocess_of(KIP33, *arguments, cwd=root)

        with running_broker(root, BROKER) as broker:
            produce(broker)
            before = asked(broker)
            refused = [
                kip33("repair", log_dir, "--apply"),
                kip33("build", log_dir, "--in-place", "--catalog", root / "catalog"),
            ]
        damage(log_dir)
        topics = ("--topic", "orders", "--topic", "clicks", "--format", "jsonl")
        planned = kip33("repair", log_dir, *topics)
        applied = kip33("repair", log_dir, *topics, "--apply")
        assert (planned.exit_code, applied.exit_code) == (0, 0), (planned, applied)
        statuses = [
            file.stat()
            for partition in PARTITIONS
            for file in (log_dir / partition).iterdir()
            if file.suffix in (".index", ".timeindex")
        ]
        with running_broker(root, BROKER) as broker:
            after = asked(broker)
    yield Repaired(
        refused,
        before,
        {
            f"{row['topic']}-{row['partition']}/{row['base_offset']}": (
                row["time_index"],
                row["offset_index"],
            )
            for row in planned.lines
        },
        {row["outcome"] for row in applied.lines},
        {(status.st_uid, status.st_gid) for status in statuses},
        after,
    )


def test_under_a_running_broker_nothing_is_done(repaired: Repaired) -> None:
    for done in repaired.refused:
        assert (done.exit_code, done.stdout) == (2, "")
        assert ".lock: a broker or another run of kip33 holds the lock" in done.stderr


def test_the_plan_leaves_to_the_broker_what_it_does_itself(repaired: Repaired) -> None:
    assert repaired.planned == {
        **{f"{LOST_INDEXES}/{base}": ("broker", "broker") for base in ALL},
        f"{HIDDEN}/{MIDDLE}": ("broker", "remove"),
        **{f"{LOST_TIMES}/{base}": ("write", "keep") for base in ALL},
    }
    assert repaired.outcomes == {None, "done"}


def test_the_brokers_user_owns_what_root_wrote(repaired: Repaired) -> None:
    assert repaired.owners == {(KAFKA_USER, KAFKA_USER)}


def test_consumers_read_what_kafkas_own_recovery_leaves(repaired: Repaired) -> None:
    everything = list(range(BATCHES * RECORDS))
    assert consumed(repaired.before) == dict.fromkeys(PARTITIONS, everything)
    assert consumed(repaired.after) == {
        LOST_INDEXES: KEPT,
        HIDDEN: KEPT,
        LOST_TIMES: everything,
    }


def test_list_offsets_answers_as_before_the_time_indexes_were_lost(repaired: Repaired) -> None:
    before, after = (answers.times["clicks", 0] for answers in (repaired.before, repaired.after))
    assert after == before
    assert [before[at][0] for at in ASKED_MS] == [4, 8, 20]
