"""Damaged partitions after `kip33 repair`: Kafka loads what its own recovery would leave."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kip33.builds.repair_plan import RepairOutcome, apply_repair, list_log_dir, plan_repair
from kip33.cli.build import build as build_command
from kip33.indexing.by_path import verify_segment
from kip33.rules.index_builder import TopicSettings
from kip33.stores.locations import Location
from tests.builders.segment_builder import TRANSACTIONAL, Record, end_txn_marker, segment, v2_batch
from tests.integration.kafka.oracle import Oracle
from tests.long_forms import short_and_long

pytestmark = pytest.mark.kafka

SEED = 20_261_122
START_MS = 1_700_000_000_000
SEGMENTS = 4
PARTITION = "orders-0"
INDEX_KINDS = ("index", "timeindex", "txnindex")


def write_partition(directory: Path, chance: random.Random) -> None:
    """Write segments of batches larger than half the index interval, with aborts among them."""
    directory.mkdir(parents=True)
    offset = 0
    for _ in range(SEGMENTS):
        entries, base_offset = [], offset
        for _ in range(chance.randint(1, 12)):
            timestamp = START_MS + chance.randint(0, 10_000)
            value = bytes(chance.randint(10, 4_000))
            if chance.random() < 0.3:
                producer = {"producer_id": chance.randint(1, 2), "producer_epoch": 0}
                entries.append(
                    v2_batch(
                        offset,
                        [Record(timestamp, b"k", value)],
                        attributes=TRANSACTIONAL,
                        base_sequence=0,
                        **producer,
                    )
                )
                commit = chance.random() < 0.3
                marker = end_txn_marker(
                    offset + 1, timestamp, producer_id=producer["producer_id"], commit=commit
                )
                entries.append(marker)
                offset += 2
            else:
                entries.append(v2_batch(offset, [Record(timestamp, b"k", value)]))
                offset += 1
        entries.append(v2_batch(offset, [Record(START_MS, b"last")]))  # that damage cuts off
        offset += 1
        (directory / f"{base_offset:020d}.log").write_bytes(segment(entries))


def damage(directory: Path, chance: random.Random) -> None:
    """Lose, empty, cut and change index files; change a byte of a log that is not the last."""
    for file in sorted(directory.iterdir()):
        if not file.name.endswith(INDEX_KINDS) or chance.random() < 0.5:
            continue
        data = bytearray(file.read_bytes())
        how = chance.choice(["lost", "empty", "cut", "zeros", "bit"])
        if how == "bit" and file.suffix == ".txnindex":
            how = "zeros"  # repair does not compare last stable offsets
        if how == "lost":
            file.unlink()
        elif how == "bit" and data:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            file.write_bytes(data)
        else:
            file.write_bytes(
                {"cut": data[: len(data) // 2], "zeros": bytes(len(data))}.get(how, b"")
            )
    if chance.random() < 0.4:
        log = chance.choice(sorted(directory.glob("*.log"))[:-1])
        data = bytearray(log.read_bytes())
        data[-1] ^= 1  # the last record's
        log.write_bytes(data)


def closed(directory: Path) -> list[Path]:
    """Return the logs of closed segments: a broker makes the index files of the last one larger."""
    return sorted(directory.glob("*.log"))[:-1]


def require_same(repaired: Path, recovered: Path) -> None:
    """Raise AssertionError unless logs and `.txnindex` are the same, and the other indexes true."""
    logs = closed(repaired)
    assert [log.name for log in logs] == [log.name for log in closed(recovered)]
    for log in logs:
        other = recovered / log.name
        assert log.read_bytes() == other.read_bytes()
        aborted = [one.with_suffix(".txnindex") for one in (log, other)]
        first, second = (file.read_bytes() if file.exists() else b"" for file in aborted)
        assert first == second
        found = verify_segment(str(log))
        assert {found.verdict, found.offset_index_verdict} <= {"identical", "consistent"}


@pytest.mark.parametrize("count", short_and_long(5, 30, "KIP33_REPAIRS"))
def test_kafka_loads_what_its_own_recovery_would_leave(
    count: int, oracle: Oracle, tmp_path: Path
) -> None:
    for number in range(count):
        chance = random.Random(SEED + number)
        repaired = tmp_path / f"repaired-{number}" / PARTITION
        write_partition(repaired, chance)
        oracle.search(repaired, [])  # which writes all index files, and snapshots
        damage(repaired, chance)
        recovered = tmp_path / f"recovered-{number}" / PARTITION
        shutil.copytree(repaired, recovered)
        for file in recovered.iterdir():
            if file.name.endswith(INDEX_KINDS):
                file.unlink()
        plan = plan_repair(list_log_dir(Location.of(repaired.parent)), TopicSettings())
        done = apply_repair(plan)
        assert not [one for one in done if (one.outcome or "").startswith(RepairOutcome.FAILED)], (
            number
        )

        times = [START_MS + chance.randint(-1, 10_001) for _ in range(20)]
        print("seed", SEED + number)
        assert oracle.search(repaired, times) == oracle.search(recovered, times)
        require_same(repaired, recovered)
        shutil.rmtree(repaired.parent)
        shutil.rmtree(recovered.parent)


def test_lost_aborts_are_counted_by_a_build_and_back_after_a_repair(
    oracle: Oracle, tmp_path: Path
) -> None:
    """Kafka itself writes the index files, before the loss and after the repair."""

    def transaction_indexes() -> dict[str, bytes]:
        files = [log.with_suffix(".txnindex") for log in closed(partition)]
        return {file.name: file.read_bytes() for file in files if file.exists()}

    def build() -> dict[str, Any]:
        asked = ["--in-place", "--catalog", str(tmp_path / "catalog"), "--full", "--format", "json"]
        done = CliRunner().invoke(build_command, [str(partition.parent), *asked])
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    partition = tmp_path / "logs" / PARTITION
    write_partition(partition, random.Random(SEED))
    oracle.search(partition, [])
    written = transaction_indexes()
    assert written
    for name in written:
        (partition / name).unlink()

    oracle.search(partition, [])  # a broker that only starts
    assert not any(transaction_indexes().values())
    lost = sum(1 for data in written.values() if data)
    assert build()["aborts_hidden"] == lost > 0

    apply_repair(plan_repair(list_log_dir(Location.of(partition.parent)), TopicSettings()))
    oracle.search(partition, [])
    assert transaction_indexes() == written
    assert build()["aborts_hidden"] == 0
