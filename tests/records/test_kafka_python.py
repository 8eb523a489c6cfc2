"""`read_arrow` against kafka-python: the same records, from bytes of every format and codec.

kafka-python takes codecs from packages that are not installed here. cramjam stands in for them, so
what is compared is how batches and records are read. `KIP33_SEED` chooses other segments,
`KIP33_RECORD_LOGS` how many the long form has.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import cramjam
import pytest

import kip33
from kip33.formats import whole_bodies as decoded_records
from tests.builders.random_entries import TIME, random_records
from tests.builders.segment_builder import (
    LEGACY_CODECS,
    V2_CODECS,
    Record,
    end_txn_marker,
    v0_message,
    v1_message,
    v2_batch,
    wrapper,
    xxh32,
)
from tests.formats.real_segments import REAL_SEGMENTS, needs_real_segments
from tests.long_forms import one_in, short_and_long

codec = pytest.importorskip("kafka.codec", reason="kafka-python is not installed")
default_records = pytest.importorskip("kafka.record.default_records")
legacy_records = pytest.importorskip("kafka.record.legacy_records")
memory_records = pytest.importorskip("kafka.record.memory_records")

SEED = os.environ.get("KIP33_SEED", "33")

UNREADABLE = ("a batch that cannot be read",)

Row = tuple[Any, ...]


def unpacked_lz4(data: bytes) -> bytes:
    return bytes(cramjam.lz4.decompress(data))


@pytest.fixture(autouse=True)
def _codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give kafka-python what it would import from python-snappy, lz4 and xxhash."""
    snappy = SimpleNamespace(decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data)))
    hashed = SimpleNamespace(
        xxh32=lambda data: SimpleNamespace(digest=lambda: xxh32(data).to_bytes(4))
    )
    monkeypatch.setattr(codec, "snappy", snappy)
    monkeypatch.setattr(codec, "xxhash", hashed)
    monkeypatch.setattr(codec, "lz4", SimpleNamespace(decompress=unpacked_lz4))
    for module in (codec, default_records, legacy_records):
        monkeypatch.setattr(module, "lz4_decode", unpacked_lz4)


def by_kafka_python(data: bytes) -> Iterator[Row]:
    """Yield rows; it cannot read batches that compaction emptied if they have a codec."""
    for batch in memory_records.MemoryRecords(data):
        if batch.magic == 2 and (batch.is_control_batch or batch.records_count == 0):
            continue
        try:
            records = list(batch)
        except Exception:  # of a codec
            yield UNREADABLE
            continue
        for record in records:
            stamp = None if record.timestamp in (-1, None) else record.timestamp
            kind = -1 if record.timestamp_type is None else record.timestamp_type
            yield (record.offset, stamp, kind, record.key, record.value, [*record.headers])


def by_kip33(log: Path) -> Iterator[Row]:
    """Yield the same rows of `read_arrow`; the row about a cut end is left out."""
    for batch in kip33.read_arrow(log):
        stamps = batch["timestamp"].cast("int64")
        names = ("timestampType", "key", "value", "headers", "_corrupt")
        columns = [batch["offset"], stamps, *(batch[name] for name in names)]
        for *fields, headers, why in zip(*(column.to_pylist() for column in columns), strict=True):
            if why is None:
                yield (*fields, [(one["key"], one["value"]) for one in headers or []])
            elif "batch at position" in why:
                yield UNREADABLE


def random_segment(random: Random, base_offset: int) -> bytes:
    """Return a log as brokers have it, perhaps cut at its end."""
    entries, offset = [], base_offset
    for _ in range(random.choice((1, 3, 20))):
        kind = random.random()
        count = random.choice((1, 1, 2, 5, 50))
        if kind < 0.6:
            count = random.choice((0, count))
            entries.append(_v2(random, offset, count))
        elif kind < 0.65:
            commit, count = random.random() < 0.5, 1
            entries.append(end_txn_marker(offset, TIME, producer_id=3, commit=commit))
        elif kind < 0.8:
            count = 1
            entries.append(_message(random, offset))
        else:
            entries.append(_wrapper(random, offset, count))
        offset += max(count, 1) + random.choice((0, 0, 3))
    data = b"".join(entries)
    return data[: random.randrange(len(data))] if random.random() < 0.2 else data


def _v2(random: Random, offset: int, count: int) -> bytes:
    """Return a batch; compaction may have left gaps in it, or nothing."""
    records = random_records(random, count)
    if random.random() < 0.3:
        deltas = sorted(random.sample(range(2 * count), count))
        records = [
            Record(one.timestamp, one.key, one.value, one.headers, delta)
            for one, delta in zip(records, deltas, strict=True)
        ]
    return v2_batch(
        *(offset, records),
        codec=random.choice(V2_CODECS),
        log_append_time=TIME if random.random() < 0.2 else None,
        transactional=random.random() < 0.1,
        producer_id=random.choice((-1, 3)),
    )


def _message(random: Random, offset: int) -> bytes:
    key, value = random.choice((None, b"", b"k" * 9)), random.choice((None, random.randbytes(30)))
    if random.random() < 0.5:
        return v0_message(offset, key, value)
    stamped = random.random() < 0.3
    return v1_message(offset, random.choice((-1, TIME)), key, value, log_append_time=stamped)


def _wrapper(random: Random, offset: int, count: int) -> bytes:
    magic, key = random.choice((0, 1)), random.choice((None, b"key"))
    values = [random.randbytes(random.choice((0, 5, 400))) for _ in range(count)]
    if magic == 0:
        inner = [v0_message(offset + at, key, value) for at, value in enumerate(values)]
    else:
        inner = [v1_message(at, TIME + at, key, value) for at, value in enumerate(values)]
    return wrapper(
        *(offset + count - 1, inner),
        magic=magic,
        codec=random.choice(LEGACY_CODECS),
        log_append_time=magic == 1 and random.random() < 0.3,
    )


@pytest.fixture(params=[0, 1 << 40], ids=["compiled", "plain"])
def _speed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded_records, "PLAIN_BYTES", request.param)


@pytest.mark.usefixtures("_speed")
@pytest.mark.parametrize("logs", short_and_long(40, 1000, "KIP33_RECORD_LOGS"))
def test_random_segments(tmp_path: Path, logs: int) -> None:
    records = 0
    for number in range(logs):
        random = Random(f"{SEED}/{number}")
        log = tmp_path / f"{number:020d}.log"
        log.write_bytes(random_segment(random, number))
        expected = list(by_kafka_python(log.read_bytes()))
        assert UNREADABLE not in expected
        assert list(by_kip33(log)) == expected, f"KIP33_SEED={SEED}, segment {number}"
        records += len(expected)
    assert records > 10 * logs


@needs_real_segments
@pytest.mark.parametrize("name", one_in(10, REAL_SEGMENTS))
def test_segments_of_real_brokers(name: str) -> None:
    """Up to damage or preallocated bytes; kafka-python checks no CRC before it reads.

    Some segments have bodies that were overwritten: neither reader can decode them.
    """
    log = REAL_SEGMENTS[name]
    [segment] = kip33.read_arrow(log, level="segments").read_all().to_pylist()
    valid = log.read_bytes()[: segment["valid_bytes"]]
    assert list(by_kip33(log)) == list(by_kafka_python(valid))
