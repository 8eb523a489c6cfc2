"""One segment, one thread: the kernel and the path to index files, beside Kafka and others."""

import itertools
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.compute as pc
from kafka.record.util import crc32c_c

from kip33.archive.listing import list_tree
from kip33.builds.build_options import BuildSpec
from kip33.builds.task import build_segments
from kip33.formats.index_kinds import IndexKind
from kip33.formats.scan import SCAN_CHUNK_BYTES, BatchScan
from kip33.rules.index_builder import IndexSettings
from kip33.rules.publication import IndexFileState
from kip33.stores.locations import Location
from tests.benchmarks.kafka_recovery import WarmKafka, indexes_of
from tests.benchmarks.other_readers import (
    check_with_kafka_python,
    headers_with_aiokafka,
    headers_with_kafka_python,
    records_with_aiokafka,
    require_all,
)
from tests.benchmarks.segments import SegmentFile, link_copies
from tests.benchmarks.timing import Contestant, Times, clocked, take_turns
from tests.builders.plans import files_to_read

READING: Final = "plain reading of the file"
MEMORY: Final = "plain reading of bytes in memory (numpy's sum)"
KERNEL: Final = "kip33: kernel, bytes in memory"
PATH_TO_INDEX: Final = "kip33: path to index files"
KAFKA: Final = "Kafka: `LogSegment.recover`"
KAFKA_PYTHON: Final = "kafka-python: bytes in memory"
# These do not verify checksums.
HEADERS: Final = "kip33: kernel, headers only"
KAFKA_PYTHON_HEADERS: Final = "kafka-python: headers only"
AIOKAFKA_HEADERS: Final = "aiokafka (C): headers only"
RECORDS: Final = "kip33: kernel, `live`: records too, and every checksum"
AIOKAFKA_RECORDS: Final = "aiokafka (C): records, no checksum"

# Other readers get the front of a segment, which takes them about a second.
FRONT_BYTES: Final = (64 << 20) if crc32c_c else (4 << 20)


def race(file: SegmentFile, folder: Path, *, rounds: int) -> dict[str, Times]:
    """Time all contestants on one segment, after a check that they agree."""
    [kafka_log] = link_copies(file, folder / "kafka", 1)
    data = file.path.read_bytes()
    head, head_batches = whole_batches(data, file)
    with (
        WarmKafka() as kafka,
        tempfile.TemporaryDirectory(prefix="scratch-", dir=folder) as scratch,
    ):
        kafka.warm_up(kafka_log)
        indexing = PathToIndex(file, Path(scratch))
        require_agreement(indexing, kafka_log)
        whole, part = (file.size_bytes, file.batches), (len(head), head_batches)
        contestants = {
            READING: Contestant(clocked(lambda: read_through(file.path)), *whole),
            MEMORY: Contestant(clocked(lambda: add_up(data)), *whole),
            KERNEL: Contestant(clocked(lambda: scan(data, file.batches)), *whole),
            PATH_TO_INDEX: Contestant(clocked(indexing.run), *whole),
            KAFKA: Contestant(lambda: kafka.recover([kafka_log]), *whole),
            KAFKA_PYTHON: Contestant(
                clocked(lambda: check_with_kafka_python(head, head_batches)), *part
            ),
        }
        if file.kind.is_v2:
            contestants |= headers_only(data, file.batches)
            contestants |= records(head, head_batches)
        return take_turns(contestants, rounds=rounds)


def headers_only(data: bytes, batches: int) -> dict[str, Contestant]:
    """Return the readers of a segment's headers, which verify nothing.

    They read all of it. A front that takes other readers a second takes ours a millisecond, so only
    the first call of a round would be timed.
    """
    work = {
        HEADERS: lambda: scan(data, batches, check_crc=False),
        KAFKA_PYTHON_HEADERS: lambda: headers_with_kafka_python(data, batches),
        AIOKAFKA_HEADERS: lambda: headers_with_aiokafka(data, batches),
    }
    return {name: Contestant(clocked(run), len(data), batches) for name, run in work.items()}


def records(head: bytes, batches: int) -> dict[str, Contestant]:
    """Return the readers of the records at the front of a segment."""
    work = {
        RECORDS: lambda: scan(head, batches, seek_max_record=True),
        AIOKAFKA_RECORDS: lambda: records_with_aiokafka(head, batches),
    }
    return {name: Contestant(clocked(run), len(head), batches) for name, run in work.items()}


def whole_batches(data: bytes, file: SegmentFile) -> tuple[bytes, int]:
    """Return the batches at the front for kafka-python, and their number."""
    batch_bytes = file.size_bytes // file.batches
    batches = min(file.batches, max(1, FRONT_BYTES // batch_bytes))
    return data[: batches * batch_bytes], batches


class PathToIndex:
    """Read, scan, apply the rules, publish both indexes into a new directory each time."""

    def __init__(self, file: SegmentFile, scratch: Path) -> None:
        self._source = Location.of(file.path.parent.parent)
        self._scratch = scratch
        self._runs = itertools.count()
        listed = list_tree(self._source).table
        is_of_kind = pc.starts_with(listed["path"], file.kind.partition)
        self._files = files_to_read(listed.filter(is_of_kind).slice(0, 1))
        self.index_folder = scratch

    def run(self) -> None:
        self.index_folder = self._scratch / str(next(self._runs))
        target = Location.of(self.index_folder)
        kinds = frozenset({IndexKind.TIME, IndexKind.OFFSET, IndexKind.TRANSACTION})
        build = BuildSpec(self._source, target, IndexSettings(), kinds)
        publisher = build.publisher()
        [built] = build_segments(build, self._files, publisher)
        publisher.finish()
        [row] = built.rows.to_pylist()
        if row["status"] != "ok" or row["index_file"] != IndexFileState.WRITTEN:
            raise ValueError(f"{row['log_uri']}: {row['status']}, {row['error']}")

    def indexes(self) -> tuple[bytes, ...]:
        """Return the index files of the last run."""
        return indexes_of(self.index_folder / self._files["path"][0].as_py())


def require_agreement(indexing: PathToIndex, kafka_log: Path) -> None:
    """Raise if the bytes of our indexes differ from Kafka's: wrong results are not timed."""
    indexing.run()
    if indexing.indexes() != indexes_of(kafka_log):
        raise ValueError(f"{kafka_log}: kip33's indexes are not Kafka's")


def read_through(path: Path) -> None:
    """Read a file into one buffer: the limit for every contestant that reads."""
    buffer = bytearray(SCAN_CHUNK_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def add_up(data: bytes) -> None:
    """Read every byte once and keep none: the limit of the memory."""
    np.frombuffer(data, np.uint64, len(data) // 8).sum()


def scan(data: bytes, batches: int, **how: bool) -> None:
    """Walk over a segment in memory, compiled; verify every checksum by default."""
    whole = memoryview(data)

    def read_into(position: int, view: memoryview) -> int:
        raise ValueError(f"byte {position}: read twice")

    batch_scan = BatchScan(
        read_into, len(data), native=True, view_at=lambda position: whole[position:], **how
    )
    require_all(sum(len(columns) for columns in batch_scan), batches)
