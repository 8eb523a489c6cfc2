"""`read_arrow` against Kafka's own `FileRecords`, on random segments of every format and damage.

As a consumer that seeks past batches with a wrong CRC, Kafka reads those behind them.

`KIP33_SEED` chooses other segments, `KIP33_RECORD_SEGMENTS` how many the long form has.
"""

import base64
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kip33
from kip33.formats import whole_bodies as decoded_records
from kip33.formats.batch import CODEC_MASK
from tests.builders.random_entries import random_log
from tests.builders.segment_builder import Record, record_bytes, v2_batch, xxh32
from tests.builders.whole_batches import Frame, frames, whole_batches
from tests.integration.kafka.oracle import Oracle
from tests.integration.kafka.random_segments import random_segments
from tests.integration.kafka.test_differential import SEED
from tests.long_forms import short_and_long

pytestmark = pytest.mark.kafka

UNREADABLE = "a batch that cannot be read"


def by_kafka(kafka: Oracle, log: Path) -> list[list[Any]]:
    """Return the records that a consumer reads, by batch; the last is UNREADABLE if it throws."""
    batches = []
    for batch in kafka.records(log)["batches"]:
        rows: list[Any] = []
        for offset, timestamp, kind, key, value, headers in batch["records"]:
            pairs = [(name, decoded(content)) for name, content in headers]
            rows.append((offset, timestamp, kind, decoded(key), decoded(value), pairs))
        batches.append([*rows, UNREADABLE] if batch["failed"] else rows)
    return batches


def require_same(found: list[Any], expected: list[list[Any]], name: str) -> None:
    """Require the same records of every batch, and the same batches to be unreadable.

    Before damage in a compressed body each of the two may return more records than the other: Kafka
    decodes in other steps, and kip33 gives every record before the damage.
    """
    at = 0
    for batch in expected:
        end = at + len(batch)
        if batch[-1:] == [UNREADABLE]:
            end = found.index(UNREADABLE, at) + 1
            of_both = min(end - 1 - at, len(batch) - 1)
            assert found[at : at + of_both] == batch[:of_both], name
        else:
            assert found[at:end] == batch, name
        at = end
    assert found[at:] == [], name


def that_continue(log: bytes, base_offset: int, expected: list[list[Any]]) -> list[list[Any]]:
    """Leave out batches behind damage whose offsets go back, which a consumer does not mind."""
    found = [one for one in whole_batches(log, base_offset) if isinstance(one, Frame)]
    whole = [one for one in frames(log) if one.is_whole]
    return [batch for batch, one in zip(expected, whole, strict=True) if one in found]


def without_empty_batches(log: Path, expected: list[list[Any]]) -> list[list[Any]]:
    """Leave out batches without records and with a codec that there is not.

    A consumer of Kafka fails at such a batch; kip33 finds that no record is missing.
    """
    batches = np.concatenate(list(kip33.scan_batches(str(log))))
    is_left_out = (batches["records_count"] == 0) & (batches["attributes"] & CODEC_MASK > 4)
    return [batch for batch, out in zip(expected, is_left_out, strict=True) if not out]


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def by_kip33(log: Path) -> Iterator[Any]:
    """Yield the same of `read_arrow`; a batch with a wrong CRC is none."""
    for rows in kip33.read_arrow(log, include_control=True, on_error="row"):
        stamps = rows["timestamp"].cast("int64").fill_null(-1)
        names = ("timestampType", "key", "value", "headers", "_corrupt")
        columns = [rows["offset"], stamps, *(rows[name] for name in names)]
        for *fields, headers, why in zip(*(column.to_pylist() for column in columns), strict=True):
            if why is None:
                yield (*fields, [(one["key"], one["value"]) for one in headers or []])
            elif "batch at position" in why:
                yield UNREADABLE


@pytest.fixture(params=[0, 1 << 40], ids=["compiled", "plain"])
def _speed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded_records, "PLAIN_BYTES", request.param)


@pytest.mark.usefixtures("_speed")
@pytest.mark.parametrize("count", short_and_long(80, 500, "KIP33_RECORD_SEGMENTS"))
def test_segments_that_kafka_wrote(count: int, oracle: Oracle, tmp_path: Path) -> None:
    records = 0
    for segment in random_segments(oracle, seed=SEED, count=count):
        log = tmp_path / f"{segment.base_offset:020d}.log"
        log.write_bytes(segment.log)
        expected = that_continue(segment.log, segment.base_offset, by_kafka(oracle, log))
        require_same(list(by_kip33(log)), expected, str(segment))
        records += sum(map(len, expected))
    assert records > 2 * count


@pytest.mark.usefixtures("_speed")
@pytest.mark.parametrize("count", short_and_long(80, 500, "KIP33_RECORD_SEGMENTS"))
def test_segments_with_damage_inside_batches(count: int, oracle: Oracle, tmp_path: Path) -> None:
    unreadable = 0
    for number in range(count):
        random = Random(f"{SEED}/{number}")
        log = tmp_path / f"{number:020d}.log"
        log.write_bytes(random_log(random, entries=random.choice((1, 3, 10))))
        expected = without_empty_batches(log, by_kafka(oracle, log))
        require_same(list(by_kip33(log)), expected, f"{SEED}/{number}")
        unreadable += sum(batch.count(UNREADABLE) for batch in expected)
    assert unreadable > count // 2


def lz4_frame_of(random: Random, plain: bytes) -> bytes:
    """Return a frame with any of the flags that Kafka takes, in blocks of at most 15 bytes."""
    flags = 0x60 | random.choice((0, 0x04)) | random.choice((0, 0x08)) | random.choice((0, 0x10))
    descriptor = bytes([flags, random.choice((0x40, 0x50, 0x60, 0x70))])
    descriptor += random.randbytes(8) if flags & 0x08 else b""
    frame = b"\x04\x22\x4d\x18" + descriptor + bytes([xxh32(descriptor) >> 8 & 0xFF])
    at = 0
    while at < len(plain):
        piece = plain[at : at + random.randrange(1, 16)]
        at += len(piece)
        packed = pa.Codec("lz4_raw").compress(piece, asbytes=True)
        is_stored = len(packed) > 15 or random.random() < 0.5
        block = piece if is_stored else packed
        frame += struct.pack("<I", len(block) | (0x80000000 if is_stored else 0)) + block
        frame += struct.pack("<I", xxh32(block)) if flags & 0x10 else b""
    return frame + bytes(4) + (random.randbytes(4) if flags & 0x04 else b"")


def lz4_mutants(random: Random, frame: bytes) -> Iterator[bytes]:
    """Yield the frame cut at each byte, with bytes changed, left out and put in, and with more."""
    yield from (frame[:end] for end in range(len(frame) + 1))
    for _ in range(len(frame)):
        at = random.randrange(len(frame))
        much = random.randbytes(random.choice((0, 1, 1, 2, 4)))
        yield frame[:at] + much + frame[at + random.choice((0, 1, len(much))) :]
    for more in (bytes(4), b"\1", b"\0\0\0\x80", frame):
        yield frame + more
    empty_block = struct.pack("<I", 1) + b"\0"
    yield frame[:-4] + empty_block + frame[-4:]
    yield frame[:7] + empty_block + frame[7:]


@pytest.mark.usefixtures("_speed")
@pytest.mark.parametrize("count", short_and_long(4, 20, "KIP33_RECORD_SEGMENTS"))
def test_lz4_frames_that_are_cut_and_changed(count: int, oracle: Oracle, tmp_path: Path) -> None:
    """Each frame is the body of a batch whose CRC is right: Kafka's LZ4 stream decides."""
    failed = 0
    for number in range(count):
        random = Random(f"{SEED}/lz4/{number}")
        records = [Record(1000, random.randbytes(random.randrange(9)), b"v" * 9) for _ in range(2)]
        plain = b"".join(record_bytes(one, delta, 1000) for delta, one in enumerate(records))
        bodies = list(lz4_mutants(random, lz4_frame_of(random, plain)))
        log = tmp_path / f"{number:020d}.log"
        log.write_bytes(
            b"".join(
                v2_batch(10 * at, records, codec="lz4", body=body) for at, body in enumerate(bodies)
            )
        )
        expected = by_kafka(oracle, log)
        found = list(by_kip33(log))
        require_same(found, expected, f"KIP33_SEED={SEED}, frame {number}")
        failed += sum(UNREADABLE in batch for batch in expected)
    assert failed > 50 * count
