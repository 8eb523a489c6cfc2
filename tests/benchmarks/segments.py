"""The segments that are measured: one file per kind, with the same bytes on every machine.

    DIR/source/batches-16k-0/00000000000000000000.log

A few batches of each kind are built with `tests.builders.segment_builder`. The file repeats them,
each with its own offsets, timestamps and checksum. Timestamps grow from batch to batch, so every
place where the rule may add an entry gets one: an index with the most work. No batch has a producer
id, so Kafka's recovery has no producer state to keep.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kip33.formats.batch import LEGACY_CRC_START, V2_CRC_START
from kip33.formats.crc import crc32, crc32c
from kip33.formats.native import compiler
from tests.builders.segment_builder import Record, record_bytes, v1_message, v2_batch

START_MS: Final = 1_700_000_000_000
STEP_MS: Final = 1_000  # from batch to batch; all records of a batch are within it
VALUE_BYTES: Final = 100
VARIANTS: Final = 4  # different batches that alternate
BLOCK_BYTES: Final = 1 << 23
MIB: Final = 1 << 20


class Layout(NamedTuple):
    """The positions in a format of the fields that change from batch to batch."""

    crc: slice
    crc_start: int
    timestamps: tuple[slice, ...]


V1_LAYOUT: Final = Layout(slice(12, 16), LEGACY_CRC_START, (slice(18, 26),))
V2_LAYOUT: Final = Layout(slice(17, 21), V2_CRC_START, (slice(27, 35), slice(35, 43)))


class Kind(NamedTuple):
    """One kind of segment; `batch` makes one batch with values from a random source."""

    name: str
    title: str
    size_bytes: int
    layout: Layout
    records: int  # per batch
    batch: Callable[[random.Random], bytes]

    @property
    def partition(self) -> str:
        return f"{self.name}-0"

    @property
    def is_v2(self) -> bool:
        return self.layout is V2_LAYOUT


class SegmentFile(NamedTuple):
    """A file of one kind on disk."""

    kind: Kind
    path: Path
    size_bytes: int
    batches: int


def full_batch(most_bytes: int) -> tuple[int, Callable[[random.Random], bytes]]:
    """Return how many records of 100-byte values fit, and a function that makes such a batch."""
    records, size = 0, len(v2_batch(0, body=b"", crc=0))
    while True:
        record = Record(START_MS + records % STEP_MS, value=bytes(VALUE_BYTES))
        size += len(record_bytes(record, records, START_MS))
        if size > most_bytes:
            break
        records += 1

    def batch(chance: random.Random) -> bytes:
        values = (chance.randbytes(VALUE_BYTES) for _ in range(records))
        return v2_batch(
            0, [Record(START_MS + i % STEP_MS, value=v) for i, v in enumerate(values)], crc=0
        )

    return records, batch


def single_record(chance: random.Random) -> bytes:
    """Return a batch of one record, 200 bytes, like that of a producer that does not wait."""
    return v2_batch(0, [Record(START_MS, value=chance.randbytes(130))], crc=0)


def single_message(chance: random.Random) -> bytes:
    """Return a v1 message of 150 bytes."""
    return v1_message(0, START_MS, value=chance.randbytes(116), crc=0)


KINDS: Final = (
    Kind("batches-16k", "v2, 16 KiB batches", 1024 * MIB, V2_LAYOUT, *full_batch(16 << 10)),
    Kind("batches-200", "v2, 200 B batches", 256 * MIB, V2_LAYOUT, 1, single_record),
    Kind("batches-1m", "v2, 1 MiB batches", 1024 * MIB, V2_LAYOUT, *full_batch(MIB)),
    Kind("messages-150", "v1, 150 B messages", 256 * MIB, V1_LAYOUT, 1, single_message),
)


def checksums(rows: Any, start: int, legacy: bool, tables: Any, result: Any) -> None:
    """Compute the checksum of every row, from byte `start` on; compiled before use."""
    for i in range(rows.shape[0]):
        row = rows[i]
        if legacy:
            result[i] = crc32(0, row, start, row.size)
        else:
            result[i] = crc32c(0, row, start, row.size, tables)


def big_endian(values: npt.NDArray[np.int64], kind: str) -> npt.NDArray[np.uint8]:
    """Return integers as rows of their bytes."""
    wire = values.astype(kind)
    return wire.view(np.uint8).reshape(len(values), wire.itemsize)


def segment_name(base_offset: int = 0) -> str:
    """Return Kafka's file name of a segment."""
    return f"{base_offset:020d}.log"


def write_segment(
    kind: Kind, folder: Path, *, size_bytes: int | None = None, number: int = 0
) -> SegmentFile:
    """Write one segment of complete batches, at most `size_bytes`, unless it exists.

    `number` is that of the segment in its partition: offsets and times continue from the previous.
    """
    chance = random.Random(kind.name)
    variants = np.stack([np.frombuffer(kind.batch(chance), np.uint8) for _ in range(VARIANTS)])
    batch_bytes = variants.shape[1]
    batches = (size_bytes or kind.size_bytes) // batch_bytes
    before = number * batches
    path = folder / kind.partition / segment_name(before * kind.records)
    file = SegmentFile(kind, path, batches * batch_bytes, batches)
    if path.exists() and path.stat().st_size == file.size_bytes:
        return file
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    repeats = max(1, BLOCK_BYTES // batch_bytes // VARIANTS)
    block = np.tile(variants, (repeats, 1))
    with unfinished.open("wb") as out:
        for first in range(0, batches, len(block)):
            rows = block[: batches - first]
            stamp(rows, before + first, kind)
            out.write(rows)
    unfinished.replace(path)
    return file


def stamp(rows: npt.NDArray[np.uint8], first: int, kind: Kind) -> None:
    """Set offsets, timestamps and checksums of the batches from number `first` on."""
    numbers = np.arange(first, first + len(rows), dtype=np.int64)
    rows[:, :8] = big_endian(numbers * kind.records, ">i8")
    times = START_MS + numbers * STEP_MS
    within = min(kind.records, STEP_MS) - 1  # from the first timestamp to the last one
    for place, later in zip(kind.layout.timestamps, (0, within), strict=False):
        rows[:, place] = big_endian(times + later, ">i8")
    crcs = np.empty(len(rows), np.int64)
    legacy = kind.layout is V1_LAYOUT
    tables = compiler.crc32c_tables()
    compiler.compiled(checksums)(rows, kind.layout.crc_start, legacy, tables, crcs)
    rows[:, kind.layout.crc] = big_endian(crcs, ">u4")


def read_anew(file: SegmentFile) -> None:
    """Bring a segment into the page cache from disk, from its start to its end.

    A file that was read in pieces, or partly reclaimed by the system, is in small pages: reading it
    took every reader up to 1.5 times as long.
    """
    with file.path.open("rb", buffering=0) as log:
        os.fsync(log.fileno())
        os.posix_fadvise(log.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while log.read(BLOCK_BYTES):
            pass


def link_copies(file: SegmentFile, folder: Path, copies: int) -> list[Path]:
    """Return `copies` hard links of a segment, each in a partition directory of its own."""
    links = []
    for number in range(copies):
        link = folder / f"copy-{number:02d}" / file.kind.partition / segment_name()
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.hardlink_to(file.path)
        links.append(link)
    return links
