"""`.txnindex` and `.snapshot` against Kafka: whole logs whose index files are lost are loaded.

`KIP33_SEED` chooses other logs, `KIP33_LOGS` how many the long form has; a difference names its
log.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from kip33 import build_time_index
from kip33.formats.producer_snapshot import ProducerSnapshot
from kip33.formats.transaction_index import TransactionIndex
from kip33.rules.transaction_index import complete_transactions
from tests.integration.kafka.oracle import Oracle
from tests.integration.kafka.random_transactions import TransactionalLog, transactional_logs
from tests.integration.kafka.test_differential import SEED
from tests.long_forms import short_and_long

pytestmark = pytest.mark.kafka

State = Mapping[int, int]


def rebuilt(log: TransactionalLog, directory: Path, start: State) -> tuple[dict[int, bytes], State]:
    """Return the `.txnindex` of each segment in `directory`, and what is open at the log's end."""
    files = {}
    for base_offset in log.segments:
        path = directory / f"{base_offset:020d}.log"
        if path.exists():
            summary = build_time_index(str(path)).transactions
            done = complete_transactions(summary, start, base_offset=base_offset)
            assert done.aborted is not None and done.open_at_end is not None, f"{log}: {done}"
            index = TransactionIndex.from_entries(done.aborted, base_offset=base_offset)
            files[base_offset], start = index.to_bytes(), done.open_at_end
    return files, start


def left_by_kafka(directory: Path) -> dict[int, bytes]:
    return {
        int(log.stem): log.with_suffix(".txnindex").read_bytes()
        if log.with_suffix(".txnindex").exists()
        else b""
        for log in directory.glob("*.log")
    }


def lose_indexes(directory: Path) -> None:
    for suffix in ("index", "timeindex", "txnindex"):
        for file in directory.glob(f"*.{suffix}"):
            file.unlink()


@pytest.mark.parametrize("count", short_and_long(30, 75, "KIP33_LOGS"))
def test_a_snapshot_of_kafkas_stands_for_the_segments_before(
    count: int, oracle: Oracle, tmp_path: Path
) -> None:
    began_before = 0
    for log in transactional_logs(seed=f"{SEED} snapshots", count=count):
        directory = tmp_path / f"{log.number}-0"
        directory.mkdir()
        log.write_to(directory)
        oracle.load(directory)
        without = len(log.segments) // 2
        first = list(log.segments)[without]
        snapshot = directory / f"{first:020d}.snapshot"
        if without == 0 or not snapshot.exists():
            continue
        data = snapshot.read_bytes()
        state = ProducerSnapshot.from_bytes(data)
        assert state.to_bytes() == data
        for base_offset in list(log.segments)[without:]:  # what is open there is what we carry
            (directory / f"{base_offset:020d}.log").unlink()
        assert rebuilt(log, directory, {})[1] == state.open_transactions, str(log)

        lose_indexes(directory)
        for path in directory.glob("*.log"):
            path.unlink()
        log.write_to(directory, without=without)
        assert snapshot.exists()
        oracle.load(directory)
        files, _ = rebuilt(log, directory, state.open_transactions)
        assert left_by_kafka(directory) == files, str(log)
        began_before += any(
            one.first_offset < first
            for data in files.values()
            for one in TransactionIndex.from_bytes(data, base_offset=0)
        )
    assert began_before > count / 30
