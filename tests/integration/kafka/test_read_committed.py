"""`read_committed` against a real broker: its consumer and `read_arrow` read the same log.

Several producers write committed, aborted and open transactions, and records outside of any, into
small segments. The log is copied while transactions are open. `KIP33_SEED` chooses other steps.
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

import kip33
from tests.integration.kafka.broker import TOPIC_COMMAND, broker_or_skip
from tests.records.test_levels import build

pytestmark = pytest.mark.kafka

SEED = os.environ.get("KIP33_SEED", "33")
TRANSACTIONS = "Transactions"  # ours, in `oracle/broker`
TOPIC = "orders"
PARTITIONS, STEPS = 3, 200
LONG_OPEN = 2  # the partition in which a transaction begins early and does not end
BROKER = {"transaction.state.log.num.partitions": "1", "log.retention.ms": "-1"}
SEGMENT_BYTES = 1 << 20  # the least that a broker takes

Row = tuple[int, str]  # offset, name


class Copied(NamedTuple):
    """A copied log directory, and what consumers read before: by isolation and partition."""

    archive: Path
    consumed: dict[str, dict[int, list[Row]]]
    ends: dict[str, str]  # of transactions by name: commit, abort or open


def random_steps(random: Random) -> tuple[list[str], dict[str, str]]:
    """Return steps for Transactions.java, and how each transaction ends."""
    steps: list[str] = []
    count = dict.fromkeys(range(1, 6), 0)
    is_open = dict.fromkeys(count, False)
    ends = {"9-0": "open", "0-0": "plain"}
    for number in range(STEPS):
        if number == STEPS // 3:
            steps.append(f"send 9 {LONG_OPEN} 9-0 100 1")
        producer = random.choice((0, *count))
        if is_open.get(producer) and random.random() < 0.25:
            end = random.choice(("commit", "abort"))
            ends[f"{producer}-{count[producer]}"] = end
            steps.append(f"{end} {producer}")
            is_open[producer], count[producer] = False, count[producer] + 1
            continue
        name = f"{producer}-{count.get(producer, 0)}"
        size, records = random.choice(((60_000, 1), (20_000, 4), (100, 7), (100_000, 3)))
        steps.append(f"send {producer} {random.randrange(PARTITIONS)} {name} {size} {records}")
        if producer:
            is_open[producer] = True
            ends.setdefault(name, "open")
    return steps, ends


def consumed_from(text: str) -> dict[str, dict[int, list[Row]]]:
    found: dict[str, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for line in text.splitlines():
        isolation, partition, offset, name = line.split()
        found[isolation][int(partition)].append((int(offset), name))
    return found


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copied]:
    root = tmp_path_factory.mktemp("transactions")
    steps, ends = random_steps(Random(SEED))
    (root / "steps").write_text("\n".join(steps))
    with broker_or_skip(root, BROKER) as broker:
        broker.run(
            *(TOPIC_COMMAND, "--create", "--topic", TOPIC, "--partitions", str(PARTITIONS)),
            *("--config", f"segment.bytes={SEGMENT_BYTES}", *broker.server),
        )
        arguments = (broker.bootstrap, TOPIC, str(PARTITIONS), str(root / "steps"))
        said = broker.run(TRANSACTIONS, *arguments)
        for partition in range(PARTITIONS):
            name = f"{TOPIC}-{partition}"
            shutil.copytree(broker.log_dir / name, root / "archive" / name)
    yield Copied(root / "archive", consumed_from(said), ends)


def rows_of(source: Path, partition: int, isolation: str, **options: int) -> list[Row]:
    """Return offsets and names; nothing may be undecided or damaged."""
    table = kip33.read_arrow(
        source, topic=TOPIC, partition=partition, isolation=isolation, **options
    ).read_all()
    assert table["_corrupt"].null_count == len(table)
    if isolation == "read_committed":
        assert table["_undecided"].null_count == len(table)
    names = [value.partition(b" ")[0].decode() for value in table["value"].to_pylist()]
    return list(zip(table["offset"].to_pylist(), names, strict=True))


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_a_consumer_reads_the_same(copied: Copied, partition: int, isolation: str) -> None:
    expected = copied.consumed[isolation][partition]

    assert rows_of(copied.archive, partition, isolation) == expected
    random = Random(SEED)
    for start, end in (sorted(random.choices(range(expected[-1][0] + 5), k=2)) for _ in range(10)):
        found = rows_of(copied.archive, partition, isolation, start_offset=start, end_offset=end)
        assert found == [row for row in expected if start <= row[0] < end]


def test_by_a_catalog(copied: Copied, tmp_path: Path) -> None:
    catalog = build(copied.archive, tmp_path)

    for isolation, partitions in copied.consumed.items():
        for partition, expected in partitions.items():
            assert rows_of(catalog, partition, isolation) == expected
            middle = expected[len(expected) // 2][0]
            later = rows_of(catalog, partition, isolation, start_offset=middle)
            assert later == [row for row in expected if row[0] >= middle]


def test_transactions_of_each_kind_are_in_several_segments(copied: Copied) -> None:
    """What the tests above compare has these cases."""
    kinds: dict[str, int] = defaultdict(int)
    for partition, rows in copied.consumed["read_uncommitted"].items():
        logs = sorted((copied.archive / f"{TOPIC}-{partition}").glob("*.log"))
        assert len(logs) > 2
        segments: dict[str, set[int]] = defaultdict(set)
        for offset, name in rows:
            segments[name].add(max(int(log.stem) for log in logs if int(log.stem) <= offset))
        for name, bases in segments.items():
            kinds[copied.ends[name]] += len(bases) > 1
    assert {kind for kind, count in kinds.items() if count} == {"plain", "commit", "abort", "open"}
    committed = copied.consumed["read_committed"]
    assert 0 < len(committed[LONG_OPEN]) < len(committed[0])
