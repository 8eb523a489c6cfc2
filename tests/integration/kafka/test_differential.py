"""kip33 against Kafka's own `LogSegment.recover`, on random segments of every format and damage.

`KIP33_SEED` chooses other segments, `KIP33_SEGMENTS` how many the long form has; a difference names
its segment.
"""

import base64
import os
import zlib
from collections import Counter
from pathlib import Path

import pytest

from kip33 import build_time_index
from kip33.formats.transaction_index import TransactionIndex
from kip33.rules.transaction_index import complete_transactions
from tests.integration.kafka.oracle import Oracle, Recovered
from tests.integration.kafka.random_segments import RandomSegment, random_segments
from tests.long_forms import short_and_long

pytestmark = pytest.mark.kafka

SEED = os.environ.get("KIP33_SEED", "33")
SHOWN = 5


def rebuild(segment: RandomSegment, directory: Path):
    log = directory / f"{segment.base_offset:020d}.log"
    log.write_bytes(segment.log)
    return build_time_index(
        str(log),
        index_interval_bytes=segment.index_interval_bytes,
        segment_index_bytes=segment.segment_index_bytes,
    )


def ask_kafka(kafka: Oracle, segment: RandomSegment, directory: Path) -> Recovered:
    return kafka.recover(
        segment.log,
        directory,
        base_offset=segment.base_offset,
        index_interval_bytes=segment.index_interval_bytes,
        segment_index_bytes=segment.segment_index_bytes,
    )


def transaction_index(ours) -> bytes | None:
    """Return the `.txnindex` of a segment before which no transaction began, None for no file."""
    done = complete_transactions(ours.transactions, {}, base_offset=0)
    assert done.aborted is not None, done.problem
    return TransactionIndex.from_entries(done.aborted, base_offset=0).to_bytes() or None


def bytes_of(ours, name: str) -> bytes | int | None:
    if name == "transaction_index":
        return transaction_index(ours)
    return ours.valid_bytes if name == "valid_bytes" else getattr(ours, f"{name}_data")


def difference(ours, kafkas: Recovered) -> str | None:
    """Return what differs, Kafka's side first, or None."""
    if kafkas.outcome != "recovered":
        if (
            ours.status == "invalid"
            and ours.time_index_data is None
            and ours.offset_index_data is None
        ):
            return None
        return f"{kafkas.outcome} ({kafkas.exception}: {kafkas.message}) | {ours.status}"
    for name in ("valid_bytes", "time_index", "offset_index", "transaction_index"):
        theirs = getattr(kafkas, name)
        mine = bytes_of(ours, name)
        if theirs != mine:
            show = [v.hex() if isinstance(v, bytes) else v for v in (theirs, mine)]
            return f"{name}: {show[0]} | {show[1]} ({ours.status}: {ours.error})"
    return None


@pytest.mark.parametrize("count", short_and_long(300, 2400, "KIP33_SEGMENTS"))
def test_kip33_rebuilds_what_kafka_recovers(
    count: int, oracle: Oracle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes: Counter[str] = Counter()
    differences = []
    for segment in random_segments(oracle, seed=SEED, count=count):
        kafkas = ask_kafka(oracle, segment, tmp_path)
        ours = rebuild(segment, tmp_path)
        cut = kafkas.outcome == "recovered" and kafkas.valid_bytes < len(segment.log)
        outcomes["cut" if cut else kafkas.outcome] += 1
        differs = difference(ours, kafkas)
        if differs:
            packed = base64.b64encode(zlib.compress(segment.log, 9)).decode()
            differences.append(f"{segment}\n  Kafka | kip33: {differs}\n  log: {packed[:4000]}")

    with capsys.disabled():
        print(f"\n{count} segments of KIP33_SEED={SEED}: {dict(outcomes)}", end=" ")
    assert not differences, f"{len(differences)} differ:\n" + "\n".join(differences[:SHOWN])
    # the segments must be worth comparing
    assert outcomes["recovered"] > count / 5
    assert outcomes["cut"] > count / 10
    if count >= 2000:
        assert min(outcomes[o] for o in ("emptied", "split", "load_failure")) >= 5


@pytest.mark.parametrize("count", short_and_long(40, 200, "KIP33_SEGMENTS"))
def test_what_kafka_appended_live_is_what_kip33_rebuilds(
    count: int, oracle: Oracle, tmp_path: Path
) -> None:
    for segment in random_segments(oracle, seed=f"{SEED} live", count=count, damage=False):
        live = oracle.append_live(
            segment.log,
            tmp_path,
            base_offset=segment.base_offset,
            index_interval_bytes=segment.index_interval_bytes,
        )
        ours = rebuild(segment, tmp_path)
        assert (ours.time_index_data, ours.offset_index_data) == live, str(segment)
