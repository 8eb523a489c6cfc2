"""Records a second: `read_arrow` against Kafka's `FileRecords` and kafka-python.

One thread, warm, a log of 100 B values by codec and by records in a batch. The others
copy each key and value into bytes of their own, as a consumer does. kafka-python gets the front.
"""

import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from kafka.record import MemoryRecords

import kip33
from tests.benchmarks.page import Section, tell
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.timing import Contestant, Times, clocked, take_turns, times_faster
from tests.builders.segment_builder import Record, v2_batch
from tests.integration.kafka.kafka_jars import OracleMissingError
from tests.integration.kafka.oracle import Oracle

ROUNDS: Final = 5
LOG_BYTES: Final = 128 << 20
QUICK_BYTES: Final = 32 << 20
FRONT_BYTES: Final = 1 << 20
VARIANTS: Final = 50  # different batches, repeated
WARM_UP_PASSES: Final = 8
START_MS: Final = 1_700_000_000_000
AIM_PYTHON: Final = 10

ARROW: Final = "kip33: keys, values, offsets, timestamps"
STAMPS: Final = "kip33: offsets and timestamps"
KAFKA: Final = "Kafka: `FileRecords`"
KAFKA_PYTHON: Final = "kafka-python"
WITHOUT_PACKAGES: Final = "none", "gzip"  # codecs that it can read


class Kind(NamedTuple):
    """One kind of log."""

    codec: str
    records: int  # per batch

    @property
    def title(self) -> str:
        return f"{self.codec}, {self.records} records a batch"

    @property
    def aim(self) -> float:
        """How many times as fast as Kafka; most of gzip is the library."""
        return 1.3 if self.codec == "gzip" else 3 if self.records == 10 else 2


KINDS: Final = tuple(
    Kind(codec, records)
    for records in (150, 10)
    for codec in ("none", "lz4", "snappy", "zstd", "gzip")
)
QUICK_KINDS: Final = (Kind("none", 150), Kind("zstd", 150))


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Race on every kind of log; return this part of the page."""
    kinds, size_bytes = (QUICK_KINDS, QUICK_BYTES) if quick else (KINDS, LOG_BYTES)
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=data))
    try:
        with Oracle() as kafka:
            found = {kind: race(kind, kafka, scratch, size_bytes) for kind in kinds}
    except OracleMissingError as missing:
        sys.exit(f"Kafka cannot be asked: {missing}")
    finally:
        shutil.rmtree(scratch)
    ratios = [ratio for kind, times in found.items() for ratio in ratios_of(kind, times)]
    return [Section("Records into Arrow", list(table(found)), ratios)]


def write_log(kind: Kind, folder: Path, size_bytes: int) -> tuple[Path, int]:
    """Write a log; return it and its number of records."""
    values = random.Random(33)
    batches = []
    for _ in range(VARIANTS):
        records = [
            Record(
                START_MS + number,
                b"customer-%08d" % values.randrange(10**8),
                b'{"order": %010d, "amount": %06d, "status": "open", "city": "%s"}'
                % (values.randrange(10**10), values.randrange(10**6), b"x" * 30),
            )
            for number in range(kind.records)
        ]
        batches.append(v2_batch(0, records, codec=kind.codec))
    once = b"".join(batches)
    repeats = max(1, size_bytes // len(once))
    log = folder / f"{kind.codec}-{kind.records}-{size_bytes}" / f"{0:020d}.log"
    log.parent.mkdir()
    with log.open("wb") as file:
        for number in range(repeats * VARIANTS):  # no CRC covers the base offset
            base_offset = number * kind.records
            file.write(base_offset.to_bytes(8) + batches[number % VARIANTS][8:])
    return log, repeats * VARIANTS * kind.records


def race(kind: Kind, kafka: Oracle, folder: Path, size_bytes: int) -> dict[str, Times]:
    """Time all readers on one kind of log; `batches` of their times are records."""
    tell(kind.title)
    log, records = write_log(kind, folder, size_bytes)
    front, front_records = write_log(kind, folder, FRONT_BYTES)
    whole = (log.stat().st_size, records)
    part = (front.stat().st_size, front_records)
    kafka.bench_records(log, passes=WARM_UP_PASSES)
    columns = ["offset", "timestamp", "key", "value"]
    contestants = {
        ARROW: Contestant(clocked(lambda: read(log, records, columns)), *whole),
        STAMPS: Contestant(clocked(lambda: read(log, records, columns[:2])), *whole),
        KAFKA: Contestant(lambda: by_kafka(kafka, log, records), *whole),
    }
    if kind.codec in WITHOUT_PACKAGES:
        work = partial(by_kafka_python, front, front_records)
        contestants[KAFKA_PYTHON] = Contestant(clocked(work), *part)
    return take_turns(contestants, rounds=ROUNDS)


def read(log: Path, records: int, columns: Sequence[str]) -> None:
    require(
        sum(rows.num_rows for rows in kip33.read_arrow(log, columns=columns, on_error="row")),
        records,
    )


def by_kafka(kafka: Oracle, log: Path, records: int) -> float:
    """Return the seconds of Kafka itself, without those of asking it."""
    answer = kafka.bench_records(log, passes=1)
    require(answer["records"], records)
    return float(answer["ns"][0]) / 1e9


def by_kafka_python(log: Path, records: int) -> None:
    found = 0
    for batch in MemoryRecords(log.read_bytes()):
        if not batch.validate_crc():
            raise ValueError("kafka-python: a CRC is wrong")
        found += sum(1 for record in batch if record.value is not None)
    require(found, records)


def require(found: int, records: int) -> None:
    """Raise if a contestant did not see every record."""
    if found != records:
        raise ValueError(f"{found} records found, {records} are there")


def ratios_of(kind: Kind, times: dict[str, Times]) -> list[Ratio]:
    """Return the lines of the table of ratios."""
    work = f"records with keys and values, {kind.title}"
    found = [Ratio(work, KAFKA, times_faster(times[ARROW], times[KAFKA]), aim=kind.aim)]
    if KAFKA_PYTHON in times:
        faster = times_faster(times[ARROW], times[KAFKA_PYTHON])
        found.append(Ratio(work, KAFKA_PYTHON, faster, aim=AIM_PYTHON))
    return found


def table(found: dict[Kind, dict[str, Times]]) -> list[str]:
    """Return the lines of a table: million records a second."""
    names = (ARROW, STAMPS, KAFKA, KAFKA_PYTHON)
    lines = [f"| million records a second | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for kind, times in found.items():
        cells = [
            f"{times[name].million_batches_per_second:.2f}" if name in times else ""
            for name in names
        ]
        lines.append(f"| {kind.title} | {' | '.join(cells)} |")
    return lines
