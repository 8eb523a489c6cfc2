"""`kip33 restore` against the files that Kafka's own recovery and clean close leave, byte for byte.

`KIP33_SEED` chooses other logs, `KIP33_LOGS` how many the long form has; a difference names its
log.
"""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from kip33.local.local_engine import LocalEngine
from kip33.restore.restore_apply import restore
from kip33.restore.restore_request import RestoreRequest
from kip33.rules.index_builder import IndexSettings, TopicSettings
from kip33.stores.locations import Location
from tests.builders.random_partitions import RandomPartition, WrittenBatch, random_partitions
from tests.builders.segment_builder import Record, v2_batch
from tests.integration.kafka.oracle import Oracle
from tests.integration.kafka.recovered_logs import load_and_close, write_as_broker
from tests.integration.kafka.test_differential import SEED
from tests.long_forms import short_and_long

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("count", short_and_long(30, 200, "KIP33_LOGS"))
def test_a_restored_partition_has_the_files_that_kafka_leaves(
    count: int, oracle_of_4: Oracle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds: Counter[str] = Counter()
    for log in random_partitions(seed=SEED, count=count):
        source, kafkas = tmp_path / "source", tmp_path / "kafka" / "oracle-0"
        shutil.rmtree(source, ignore_errors=True)
        log.write_to(source / "oracle-0")
        start = _start_offset(log)
        write_as_broker(oracle_of_4, log, kafkas, log_start_offset=start)
        ours = tmp_path / f"restored-{log.number}"
        restored = restore(request(source, ours, log, start), LocalEngine())
        assert restored["partitions_refused"] == 0, f"{log}: {restored}"
        mine, theirs = files_of(ours / "oracle-0"), files_of(kafkas)
        assert sorted(mine) == sorted(theirs), str(log)
        for name, data in theirs.items():
            assert mine[name] == data, f"{name} of {log}"
        [row] = restored["partitions"]
        assert row["start_offset"] == max(start, min(log.segments)), str(log)
        load_and_close(oracle_of_4, log, ours / "oracle-0", log_start_offset=start)
        assert files_of(ours / "oracle-0") == theirs, f"a clean start changes files of {log}"
        kinds.update(name.rpartition(".")[2] for name in theirs)
        shutil.rmtree(ours)
    with capsys.disabled():
        print(f"\n{count} logs of KIP33_SEED={SEED}: {dict(kinds)}", end=" ")
    if count >= 200:
        assert min(kinds[kind] for kind in ("txnindex", "snapshot")) >= 50, kinds


def test_a_log_whose_offsets_span_2_31_is_split_as_kafka_splits_it(
    oracle_of_4: Oracle, tmp_path: Path
) -> None:
    """Brokers before 1.1 made such segments by compaction (KAFKA-6264)."""
    offsets = (7, 20, 2**31 + 10, 2**31 + 11, 2**32 + 500)
    batches = [WrittenBatch(base, base, one_record(base)) for base in offsets]
    last = 2**32 + 501
    segments = {0: batches, last: [WrittenBatch(last, last, one_record(last))]}
    log = RandomPartition("split", 0, segments=segments)
    source, kafkas, ours = tmp_path / "source", tmp_path / "kafka/oracle-0", tmp_path / "ours"
    log.write_to(source / "oracle-0")
    write_as_broker(oracle_of_4, log, kafkas)
    restored = restore(request(source, ours, log, 0), LocalEngine())
    assert restored["partitions_refused"] == 0, restored
    mine, theirs = files_of(ours / "oracle-0"), files_of(kafkas)
    assert len([name for name in mine if name.endswith(".log")]) == 4
    assert mine == theirs


def one_record(offset: int) -> bytes:
    return v2_batch(offset, [Record(1_700_000_000_000 + offset % 1000, value=b"v")])


def _start_offset(log: RandomPartition) -> int:
    """Return where the log starts: for every third one inside its first segment."""
    first = log.segments[min(log.segments)]
    return first[len(first) // 2].last_offset if log.number % 3 == 0 else 0


def request(source: Path, log_dir: Path, log: RandomPartition, start: int) -> RestoreRequest:
    settings = IndexSettings("recover", log.index_interval_bytes)
    return RestoreRequest(
        source=Location.of(source),
        log_dir=Location.of(log_dir),
        settings=TopicSettings(settings),
        from_offsets={("oracle", 0): start},
        allow_holes=True,
    )


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}
