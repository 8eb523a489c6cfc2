"""`read_committed` against a real broker: its consumer and `read_arrow` read the same log.

Several producers write committed, aborted and open transactions, and records outside of any, into
small segments. The log is copied while transactions are open. `KIP33_SEED` chooses other steps.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

import kip33
from tests.integration.kafka.cluster_answers import Answers, digest_of
from tests.integration.kafka.lost_cluster import asked, nodes_or_skip
from tests.integration.kafka.test_differential import SEED
from tests.records.test_levels import build

pytestmark = pytest.mark.kafka

TOPIC = "orders"
PARTITIONS, STEPS, START_MS = 3, 200, 1_700_000_000_000
LONG_OPEN = 2  # the partition in which a transaction begins early and does not end
ISOLATIONS = ("read_uncommitted", "read_committed")

Row = tuple[int, str]  # offset, digest of key, value and headers


class Copied(NamedTuple):
    """A copied log directory, and what the broker answered before."""

    archive: Path
    answers: Answers

    def consumed(self, isolation: str, partition: int) -> list[Row]:
        """Return what a consumer read."""
        found = self.answers.records[isolation][TOPIC, partition]
        return [(one.offset, one.digest) for one in found]


def random_steps(random: Random) -> Iterator[str]:
    """Yield steps of five transactional producers, and of one without transactions."""
    yield f"create {TOPIC} {PARTITIONS} 1"
    is_open = {f"t{number}": False for number in range(1, 6)}
    for number in range(STEPS):
        at = START_MS + number
        if number == STEPS // 3:
            yield f"send t9 none {TOPIC} {LONG_OPEN} {at} 0 1 100 9"
        producer = random.choice(("p", *is_open))
        if is_open.get(producer) and random.random() < 0.25:
            is_open[producer] = False
            yield f"{random.choice(('commit', 'abort'))} {producer}"
            continue
        size, records = random.choice(((60_000, 1), (20_000, 4), (100, 7), (100_000, 3)))
        if producer in is_open:
            is_open[producer] = True
        where = f"{TOPIC} {random.randrange(PARTITIONS)} {at}"
        yield f"send {producer} none {where} 0 {records} {size} 9"


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Copied:
    root = tmp_path_factory.mktemp("transactions")
    nodes = nodes_or_skip(root)
    with nodes.running():
        nodes.run_steps(random_steps(Random(SEED)))
        answers = asked(nodes, "answers", root / "times", TOPIC)
        for partition in range(PARTITIONS):
            name = f"{TOPIC}-{partition}"
            shutil.copytree(nodes.log_dir() / name, root / "archive" / name)
    return Copied(root / "archive", answers)


def rows_of(source: Path, partition: int, isolation: Any, **options: int) -> list[Row]:
    """Return offsets and digests; nothing may be undecided or damaged."""
    table = kip33.read_arrow(
        source,
        topic=TOPIC,
        partition=partition,
        isolation=isolation,
        **({"on_error": "row"} | options),
    ).read_all()
    assert table["_corrupt"].null_count == len(table)
    if isolation == "read_committed":
        assert table["_undecided"].null_count == len(table)
    return [
        (row["offset"], digest_of(row))
        for row in table.select(["offset", "key", "value", "headers"]).to_pylist()
    ]


@pytest.mark.filterwarnings("ignore:.*still open at the end of the log")
def test_a_consumer_reads_the_same(copied: Copied, tmp_path: Path) -> None:
    """Also a part of it, and by a catalog."""
    catalog, random = build(copied.archive, tmp_path), Random(SEED)
    for isolation in ISOLATIONS:
        for partition in range(PARTITIONS):
            expected = copied.consumed(isolation, partition)
            assert rows_of(copied.archive, partition, isolation) == expected
            assert rows_of(catalog, partition, isolation) == expected
            end = expected[-1][0] + 5
            for start, stop in (sorted(random.choices(range(end), k=2)) for _ in range(10)):
                part = [row for row in expected if start <= row[0] < stop]
                for source in (copied.archive, catalog):
                    limits = {"start_offset": start, "end_offset": stop}
                    assert rows_of(source, partition, isolation, **limits) == part


def test_the_log_is_worth_comparing(copied: Copied) -> None:
    for partition in range(PARTITIONS):
        assert len(list((copied.archive / f"{TOPIC}-{partition}").glob("*.log"))) > 2
        everything, committed = (copied.consumed(one, partition) for one in ISOLATIONS)
        assert 0 < len(committed) < len(everything)
    stable, end = (
        found[TOPIC, LONG_OPEN]
        for found in (copied.answers.latest_committed, copied.answers.latest)
    )
    aborted = {row for row in everything if row[0] < stable} - {*committed}
    assert stable < end
    assert aborted
