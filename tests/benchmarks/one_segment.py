"""One segment, one thread: the kernel and the way from path to index, beside Kafka and others."""

import itertools
import tempfile
from pathlib import Path
from typing import Final

from kafka.record import MemoryRecords
from kafka.record.util import crc32c_c

from kip33.formats.scan import CHUNK_BYTES, BatchScan
from kip33.rules.indexes import IndexSettings
from kip33.storage.build import Build
from kip33.storage.building import build_segment
from kip33.storage.listing import list_tree
from kip33.storage.locations import Location
from kip33.storage.publishing import WRITTEN
from tests.benchmarks.kafka_recovery import WarmKafka, indexes_of
from tests.benchmarks.segments import SegmentFile, link_copies
from tests.benchmarks.timing import Contestant, Times, clocked, take_turns

READING: Final = "plain reading, 256 KiB"
KERNEL: Final = "kip33: kernel, bytes in memory"
PATH_TO_INDEX: Final = "kip33: path to index files"
KAFKA: Final = "Kafka: `LogSegment.recover`"
KAFKA_PYTHON: Final = "kafka-python: bytes in memory"

# kafka-python sees as much of a segment as takes it about a second.
KAFKA_PYTHON_BYTES: Final = (64 << 20) if crc32c_c else (4 << 20)


def race(file: SegmentFile, folder: Path, *, rounds: int) -> dict[str, Times]:
    """Time all contestants on one segment, once it is certain that they agree."""
    [kafka_log] = link_copies(file, folder / "kafka", 1)
    data = file.path.read_bytes()
    head, head_batches = whole_batches(data, file)
    with WarmKafka() as kafka, tempfile.TemporaryDirectory(prefix="kip33-bench-") as scratch:
        kafka.warm_up(kafka_log)
        indexing = PathToIndex(file, Path(scratch))
        require_agreement(indexing, kafka_log)
        whole, part = (file.size_bytes, file.batches), (len(head), head_batches)
        return take_turns(
            {
                READING: Contestant(clocked(lambda: read_through(file.path)), *whole),
                KERNEL: Contestant(clocked(lambda: scan(data, file.batches)), *whole),
                PATH_TO_INDEX: Contestant(clocked(indexing.run), *whole),
                KAFKA: Contestant(lambda: kafka.recover([kafka_log]), *whole),
                KAFKA_PYTHON: Contestant(
                    clocked(lambda: check_with_kafka_python(head, head_batches)), *part
                ),
            },
            rounds=rounds,
        )


def whole_batches(data: bytes, file: SegmentFile) -> tuple[bytes, int]:
    """Return the batches at the front that kafka-python is given, and their number."""
    batch_bytes = file.size_bytes // file.batches
    batches = min(file.batches, max(1, KAFKA_PYTHON_BYTES // batch_bytes))
    return data[: batches * batch_bytes], batches


class PathToIndex:
    """`build_segment` into a new directory each time: read, scan, apply the rule, publish both."""

    def __init__(self, file: SegmentFile, scratch: Path) -> None:
        self._source = Location.of(file.path.parent.parent)
        self._scratch = scratch
        self._runs = itertools.count()
        self._segment = next(
            segment
            for segment in list_tree(self._source).segments()
            if segment.path.startswith(file.kind.partition)
        )
        self.index_folder = scratch

    def run(self) -> None:
        self.index_folder = self._scratch / str(next(self._runs))
        target = Location.of(self.index_folder)
        build = Build(self._source, target, IndexSettings(), offset_index=True)
        row = build_segment(build, self._segment, ours=False).row
        if row["status"] != "ok" or row["index_file"] != WRITTEN:
            raise ValueError(f"{self._segment.path}: {row['status']}, {row['error']}")

    def indexes(self) -> tuple[bytes, ...]:
        """Return what the last run published."""
        return indexes_of(self.index_folder / self._segment.path)


def require_agreement(indexing: PathToIndex, kafka_log: Path) -> None:
    """Raise where our indexes are not Kafka's, byte for byte: wrong results are not timed."""
    indexing.run()
    if indexing.indexes() != indexes_of(kafka_log):
        raise ValueError(f"{kafka_log}: kip33's indexes are not Kafka's")


def read_through(path: Path) -> None:
    """Read a file into one buffer: no contestant that reads can be faster."""
    buffer = bytearray(CHUNK_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def scan(data: bytes, batches: int) -> None:
    """Walk over a segment in memory, compiled, every checksum checked."""
    source = memoryview(data)

    def read_into(position: int, view: memoryview) -> int:
        piece = source[position : position + len(view)]
        view[: len(piece)] = piece
        return len(piece)

    found = sum(len(columns) for columns in BatchScan(read_into, len(data), native=True))
    require_all(found, batches)


def check_with_kafka_python(data: bytes, batches: int) -> None:
    """Let kafka-python check every batch and find its max timestamp.

    Of v1 it has neither for a batch; the one message inside is what a reader would look at.
    """
    found, largest = 0, -1
    for batch in MemoryRecords(data):
        if not batch.validate_crc():
            raise ValueError(f"kafka-python: the CRC of batch {found} is wrong")
        if batch.magic < 2:
            largest = max(largest, *(record.timestamp for record in batch))
        else:
            largest = max(largest, batch.max_timestamp)
        found += 1
    require_all(found, batches)


def require_all(found: int, batches: int) -> None:
    """Raise where a contestant did not see every batch."""
    if found != batches:
        raise ValueError(f"{found} batches found, {batches} are there")
