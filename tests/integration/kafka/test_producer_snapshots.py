"""`.snapshot`, `.txnindex` and `leader-epoch-checkpoint` against Kafka's own, byte for byte.

Random logs without any other file are recovered by `UnifiedLog`, closed, opened and closed.
`KIP33_SEED` chooses other logs, `KIP33_LOGS` how many the long form has; a difference names its
log.
"""

from collections import Counter
from pathlib import Path

import pytest

from kip33 import build_time_index
from kip33.formats.partition_metadata import LEADER_EPOCH_CHECKPOINT, format_epoch_checkpoint
from kip33.formats.transaction_index import TransactionIndex
from kip33.rules.transaction_index import complete_transactions
from tests.builders.partition_states import states_at
from tests.builders.random_partitions import HOUR_MS, RandomPartition, random_partitions
from tests.integration.kafka.oracle import Oracle
from tests.integration.kafka.recovered_logs import load_and_close, write_as_broker
from tests.integration.kafka.test_differential import SEED
from tests.long_forms import short_and_long

pytestmark = pytest.mark.kafka

NEVER_MS = 2**31 - 1


def left(directory: Path, kind: str) -> dict[int, bytes]:
    return {int(path.stem): path.read_bytes() for path in directory.glob(f"*.{kind}")}


def transaction_indexes(log: RandomPartition, directory: Path) -> dict[int, bytes]:
    files, start = {}, {}
    for base_offset in log.segments:
        summary = build_time_index(str(directory / f"{base_offset:020d}.log")).transactions
        done = complete_transactions(summary, start, base_offset=base_offset)
        assert done.aborted is not None and done.open_at_end is not None, f"{log}: {done}"
        if done.aborted:
            index = TransactionIndex.from_entries(done.aborted, base_offset=base_offset)
            files[base_offset] = index.to_bytes()
        start = done.open_at_end
    return files


@pytest.mark.parametrize("count", short_and_long(50, 300, "KIP33_LOGS"))
def test_recovery_leaves_the_same_files(
    count: int, oracle_of_4: Oracle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: Counter[str] = Counter()
    for log in random_partitions(seed=f"{SEED} snapshots", count=count):
        directory = tmp_path / str(log.number) / "oracle-0"
        write_as_broker(oracle_of_4, log, directory, producer_expiration_ms=NEVER_MS)
        states = states_at(log, directory)
        at_end, first = states[log.end_offset], min(log.segments)
        kafkas = left(directory, "snapshot")
        assert sorted(kafkas) == sorted(states.keys() - {first}), str(log)
        for offset, data in kafkas.items():
            assert states[offset].producers.to_bytes() == data, f"{offset} of {log}"
        epochs = (directory / LEADER_EPOCH_CHECKPOINT).read_text()
        ours_epochs = format_epoch_checkpoint(at_end.epochs) if at_end.epochs else ""
        assert ours_epochs == epochs, str(log)
        aborts = {base: data for base, data in left(directory, "txnindex").items() if data}
        assert transaction_indexes(log, directory) == aborts, str(log)
        seen["many producers"] += len(at_end.producers.producers) > 12
        seen["open transactions"] += bool(at_end.producers.open_transactions)
        seen["epochs"] += len(at_end.epochs) > 1
        seen["aborts"] += bool(aborts)
        seen["snapshots"] += len(kafkas)
    with capsys.disabled():
        print(f"\n{count} logs of KIP33_SEED={SEED}: {dict(seen)}", end=" ")
    assert min(seen.values()) >= count / 50, seen


@pytest.mark.parametrize("count", short_and_long(20, 60, "KIP33_LOGS"))
def test_a_broker_loads_the_same_producers_from_a_snapshot_with_expired_ones(
    count: int, oracle_of_4: Oracle, tmp_path: Path
) -> None:
    """kip33 keeps all producers; a broker drops the expired ones itself.

    Of a producer that expired before its last marker a recovery does not know the last sequence.
    """
    dropped = 0
    for log in random_partitions(seed=f"{SEED} loaded", count=count):
        directory = tmp_path / str(log.number) / "oracle-0"
        options = {"producer_expiration_ms": 10 * HOUR_MS - 120_000}
        own = write_as_broker(oracle_of_4, log, directory, **options)
        states = states_at(log, directory)
        everyone = states[log.end_offset].producers.producers
        del states[min(log.segments)]
        for path in directory.glob("*.snapshot"):
            path.unlink()
        for offset, state in states.items():
            (directory / f"{offset:020d}.snapshot").write_bytes(state.producers.to_bytes())
        ours = load_and_close(oracle_of_4, log, directory, **options)
        assert set(ours.producers) == set(own.producers), str(log)
        for producer_id, sequence in own.producers.items():
            assert sequence in (-1, ours.producers[producer_id]), str(log)
        dropped += len(everyone) > len(own.producers)
    assert dropped >= count / 20
