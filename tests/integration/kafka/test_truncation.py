"""`kip33 truncate` against Kafka's own `UnifiedLog.truncateTo` and a clean close, byte for byte.

`KIP33_SEED` chooses other logs, `KIP33_LOGS` how many the long form has; a difference names its log
and offset.
"""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from kip33.formats.producer_snapshot import ProducerSnapshot, ProducerState
from kip33.restore.truncate_apply import truncate
from kip33.rules.truncation import TruncationCase
from kip33.stores.locations import Location
from tests.builders.random_partitions import NOW, RandomPartition, random_partitions
from tests.integration.kafka.oracle import Oracle
from tests.integration.kafka.recovered_logs import load_and_close, write_as_broker
from tests.integration.kafka.test_differential import SEED
from tests.long_forms import short_and_long

pytestmark = pytest.mark.kafka

OFFSETS_PER_LOG = 4


@pytest.mark.parametrize("count", short_and_long(30, 200, "KIP33_LOGS"))
def test_truncation_leaves_the_files_that_kafka_leaves(
    count: int, oracle_of_4: Oracle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases: Counter[str] = Counter()
    for log in random_partitions(seed=SEED, count=count):
        source = tmp_path / "source" / "oracle-0"
        write_as_broker(oracle_of_4, log, source)
        for offset in log.offsets()[:OFFSETS_PER_LOG]:
            where = f"{log}, to {offset}"
            kafkas, ours = (tmp_path / name / "oracle-0" for name in ("kafka", "ours"))
            for copy in (kafkas, ours):
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(source, copy)
            truncated = oracle_of_4.truncate(
                kafkas, offset, now_ms=NOW, index_interval_bytes=log.index_interval_bytes
            )
            plan = truncate(Location.of(ours), offset)
            assert truncated.truncated == (plan.case == TruncationCase.CUT) or (
                plan.case == TruncationCase.EMPTIED
            ), where
            _require_same_files(kafkas, ours, offset, plan.end_offset, where)
            cases.update(_cases_of(log, offset, plan.case))
            loaded = load_and_close(oracle_of_4, log, ours)
            assert loaded.end_offset == plan.end_offset, where
    with capsys.disabled():
        print(f"\n{count} logs of KIP33_SEED={SEED}: {dict(cases)}", end=" ")
    if count >= 200:
        assert min(cases[case] for case in INTERESTING) >= 3, cases


INTERESTING = (
    *(str(case) for case in TruncationCase),
    *("in a batch", "at a segment's base", "before the log", "2^31 beyond the end"),
)


def _cases_of(log: RandomPartition, offset: int, case: TruncationCase) -> list[str]:
    found = [str(case)]
    batches = [batch for segment in log.segments.values() for batch in segment]
    if any(batch.base_offset < offset <= batch.last_offset for batch in batches):
        found.append("in a batch")
    if offset in log.segments:
        found.append("at a segment's base")
    if offset < min(log.segments):
        found.append("before the log")
    if offset > log.end_offset + 2**31:
        found.append("2^31 beyond the end")
    return found


def _require_same_files(kafkas: Path, ours: Path, offset: int, end_offset: int, where: str) -> None:
    """Kafka names the last snapshot by the offset in its memory, which may be in a gap."""
    theirs, mine = _files(kafkas), _files(ours)
    snapshots = [_snapshots(theirs), _snapshots(mine)]
    if offset != end_offset and f"{offset:020d}.snapshot" in snapshots[0]:
        at_end = snapshots[0].pop(f"{offset:020d}.snapshot")
        if end_offset > min(int(name.split(".")[0]) for name in mine if name.endswith(".log")):
            snapshots[0].setdefault(f"{end_offset:020d}.snapshot", at_end)
    assert snapshots[1] == snapshots[0], where
    assert sorted(mine) == sorted(theirs), where
    for name, data in theirs.items():
        assert mine[name] == data, f"{name} of {where}"


def _files(directory: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted(directory.iterdir())
        if not path.name.endswith(".deleted")
    }


def _snapshots(files: dict[str, bytes]) -> dict[str, list[ProducerState]]:
    """Take the snapshots out of the files; Kafka writes the producers in the order of a hash."""
    names = [name for name in files if name.endswith(".snapshot")]
    return {name: sorted(ProducerSnapshot.from_bytes(files.pop(name)).producers) for name in names}
