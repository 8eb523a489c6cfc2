"""`read_arrow` returns what `iterate_records` returns, batch by batch, errors included.

Some logs are damaged at random. With any options they are read without another error.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import kip33
from kip33.errors import CorruptSegmentError, UnsupportedFormatError
from kip33.formats import whole_bodies as decoded_records
from kip33.formats.held_batches import BatchWindows
from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES, iterate_records
from kip33.records import segment_reader
from tests.builders.index_mutants import mutant
from tests.builders.logs_in_memory import read_into_of
from tests.builders.random_entries import TIME, random_log
from tests.builders.segment_builder import Record, crc32c, v2_batch
from tests.builders.whole_batches import whole_batches
from tests.formats.real_segments import REAL_SEGMENTS, needs_real_segments
from tests.long_forms import seeds, short_and_long

Row = tuple[Any, ...]


def one_by_one(
    log: bytes,
    *,
    prefix: str,
    base_offset: int = 0,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
) -> Iterator[Row]:
    """Yield the rows of a log by `iterate_records`, one record or error after the other."""
    end = 0
    for one in whole_batches(log, base_offset):
        if isinstance(one, str):
            yield (f"{prefix}: {one}",)
            continue
        end = one.position + len(one.data)
        yield from one_batch(log, one.position, len(one.data), prefix, max_batch_bytes)
    windows = BatchWindows(read_into_of(log), len(log), position=end, native=False)
    assert not [*windows]
    if windows.damage and not windows.only_zeros_follow:
        yield (f"{prefix}: {windows.damage}",)


def one_batch(
    log: bytes, position: int, size: int, prefix: str, max_batch_bytes: int
) -> Iterator[Row]:
    data = log[position : position + size]
    try:
        for record in iterate_records(data, position=position, max_batch_bytes=max_batch_bytes):
            stamp = None if record.timestamp == -1 else record.timestamp
            yield (record.offset, stamp, record.key, record.value, list(record.headers) or None)
    except (CorruptSegmentError, UnsupportedFormatError) as error:
        yield (f"{prefix}: {error}",)


def rows_of(reader: pa.RecordBatchReader) -> Iterator[Row]:
    """Yield the rows of `read_arrow`; a corrupt row has only its reason.

    That a log may be invalid as a whole says `test_read_arrow.py`.
    """
    for batch in reader:
        batch.validate(full=True)
        stamps = batch["timestamp"].cast(pa.int64())
        columns = [batch["offset"], stamps, batch["key"], batch["value"], batch["headers"]]
        values = zip(*(column.to_pylist() for column in columns), strict=True)
        for row, why in zip(values, batch["_corrupt"].to_pylist(), strict=True):
            *fields, headers = row
            if why is not None:
                if "the log may be invalid" not in why:
                    yield (why,)
            else:
                pairs = [(one["key"], one["value"]) for one in headers or []]
                yield (*fields, pairs or None)


def random_options(random: Random) -> dict[str, Any]:
    """Return options for another look at the same log."""
    options: dict[str, Any] = {
        "level": random.choice(("records", "records", "batches", "segments")),
        "isolation": random.choice(("read_uncommitted", "read_committed")),
        "include_control": random.random() < 0.5,
    }
    if options["level"] == "records" and random.random() < 0.7:
        options["columns"] = random.sample(("offset", "timestamp", "value", "headers", "topic"), 3)
    if random.random() < 0.3:
        options["start_offset"] = random.choice((0, 5, 1005, 1 << 40))
    if random.random() < 0.3:
        options["end_time"] = TIME + random.randrange(-2000, 2000)
    return options


def require_same_columns(random: Random, log: Path, message: str) -> None:
    """Require that some columns alone are as they are beside all others."""
    options: dict[str, Any] = {"include_control": True, "on_error": "row"}
    every = kip33.read_arrow(log, **options).read_all()
    names = random.sample(every.column_names, random.randrange(1, 5))
    assert kip33.read_arrow(log, columns=names, **options).read_all() == every.select(names), (
        message
    )


# Compiled code or plain code, and the bytes of a window.
LIMIT = {"max_batch_bytes": 1 << 20}  # after decompression
WAYS = [*product((0, 1 << 40), (150, 3000, 1 << 20))]


@pytest.mark.parametrize("logs", short_and_long(30, 3000, "KIP33_RECORD_LOGS"))
def test_random_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: int) -> None:
    for number, seed in enumerate(seeds(logs)):
        random = Random(seed)
        data = random_log(random, entries=random.choice((1, 3, 10)))
        if random.random() < 0.5:
            data = mutant(random, data)
        log = tmp_path / f"{seed:020d}.log"
        log.write_bytes(data)
        expected = list(one_by_one(data, prefix=log.as_uri(), base_offset=seed, **LIMIT))
        for plain_bytes, window_bytes in WAYS if logs > 100 else [WAYS[number % len(WAYS)]]:
            monkeypatch.setattr(decoded_records, "PLAIN_BYTES", plain_bytes)
            monkeypatch.setattr(segment_reader, "LOCAL_WINDOW_BYTES", window_bytes)
            found = list(
                rows_of(
                    kip33.read_arrow(log, include_control=True, **({"on_error": "row"} | LIMIT))
                )
            )
            assert found == expected, f"seed {seed}"
            require_same_columns(random, log, f"seed {seed}")
            for batch in kip33.read_arrow(
                log, **random_options(random), **({"on_error": "row"} | LIMIT)
            ):
                batch.validate(full=True)


def slightly_wrong(random: Random, batch: bytes) -> bytes:
    """Return a batch of which one byte after the header is a little larger or smaller."""
    data = bytearray(batch)
    at = random.randrange(61, len(data))
    data[at] = (data[at] + random.choice((-2, -1, 1, 2))) % 256
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4)
    return bytes(data)


@pytest.mark.parametrize("plain_bytes", [0, 1 << 40])
def test_fields_that_do_not_fit_their_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_bytes: int
) -> None:
    monkeypatch.setattr(decoded_records, "PLAIN_BYTES", plain_bytes)
    random = Random(33)
    batches = []
    for number in range(1500):
        headers = (("", bytes(random.randrange(3))),) * random.choice((0, 0, 0, 1, 2))
        sent = [
            Record(TIME + i, random.choice((None, b"", b"k")), bytes(random.randrange(5)), headers)
            for i in range(random.randrange(1, 5))
        ]
        batches.append(slightly_wrong(random, v2_batch(10 * number, sent)))
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes(b"".join(batches))
    expected = list(one_by_one(log.read_bytes(), prefix=log.as_uri()))
    assert list(rows_of(kip33.read_arrow(log, include_control=True, on_error="row"))) == expected
    without_headers = kip33.read_arrow(log, columns=["offset", "value", "_corrupt"], on_error="row")
    assert without_headers.read_all()["value"].to_pylist() == [
        row[3] if len(row) > 1 else None for row in expected
    ]


@needs_real_segments
@pytest.mark.parametrize("many", short_and_long(3, len(REAL_SEGMENTS), "KIP33_REAL_SEGMENTS"))
def test_segments_of_real_brokers(
    many: int, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for name in Random(33).sample(sorted(REAL_SEGMENTS), many):
        with subtests.test(name):
            log = REAL_SEGMENTS[name]
            expected = list(one_by_one(log.read_bytes(), prefix=log.as_uri()))
            for plain_bytes in (0, 1 << 40):
                monkeypatch.setattr(decoded_records, "PLAIN_BYTES", plain_bytes)
                assert (
                    list(rows_of(kip33.read_arrow(log, include_control=True, on_error="row")))
                    == expected
                )
