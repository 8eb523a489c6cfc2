"""How the cost of one segment grows: with its size, and with the size of its batches."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kip33.indexing.segment import index_file
from kip33.rules.index_builder import IndexSettings
from kip33.stores.locations import Location
from tests.benchmarks.page import Curves, tell
from tests.benchmarks.segments import V2_LAYOUT, Kind, full_batch, write_segment
from tests.benchmarks.timing import clocked
from tests.builders.segment_builder import Record, v2_batch

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BEST_OF: Final = 3
SEGMENT_BYTES: Final = (MIB, 16 * MIB, 256 * MIB, GIB, 2 * GIB - 1)
BATCH_BYTES: Final = (100, KIB, 10 * KIB, 100 * KIB, MIB, 10 * MIB)
BATCHES_SEGMENT_BYTES: Final = 256 * MIB


def with_size(folder: Path) -> Iterator[Curves]:
    """Yield seconds by size of one segment, path to index, one thread."""
    kind = Kind("growing-16k", "", GIB, V2_LAYOUT, *full_batch(16 * KIB))
    curve = []
    for size_bytes in SEGMENT_BYTES:
        tell(f"growth: a segment of {size_bytes / MIB:,.0f} MiB")
        log = write_segment(kind, folder, size_bytes=size_bytes).path
        curve.append((size_bytes / MIB, seconds_to_index(log)))
    log.unlink()
    yield Curves("one segment, 16 KiB batches", "MiB", "seconds", {"path to index": curve})


def with_batches(folder: Path) -> Iterator[Curves]:
    """Yield seconds per GiB by size of batch."""
    curve = []
    for batch_bytes in BATCH_BYTES:
        tell(f"growth: batches of {batch_bytes:,} bytes")
        log = write_segment(kind_of(batch_bytes), folder, size_bytes=BATCHES_SEGMENT_BYTES).path
        seconds = seconds_to_index(log) * GIB / log.stat().st_size
        curve.append((float(batch_bytes), seconds))
        log.unlink()
    title = "one segment, by size of batch"
    yield Curves(title, "bytes a batch", "seconds a GiB", {"path to index": curve})


def kind_of(batch_bytes: int) -> Kind:
    """Return a kind with batches of about this size, with records of 100 bytes or one record."""
    name = f"growing-{batch_bytes}"
    if batch_bytes >= KIB:
        return Kind(name, "", GIB, V2_LAYOUT, *full_batch(batch_bytes))
    room = batch_bytes - len(v2_batch(0, [Record(0)], crc=0))

    def one_record(chance: random.Random) -> bytes:
        return v2_batch(0, [Record(0, value=chance.randbytes(room))], crc=0)

    return Kind(name, "", GIB, V2_LAYOUT, 1, one_record)


def seconds_to_index(log: Path) -> float:
    """Return the best time from a log to its indexes, read and checked to the last byte."""

    def run() -> None:
        settings = IndexSettings()
        index = index_file(
            Location.of(log), base_offset=0, topic="t", settings=settings, native=True
        )
        if index.status != "ok":
            raise ValueError(f"{log}: {index.error}")

    run()
    return min(clocked(run)() for _ in range(BEST_OF))
