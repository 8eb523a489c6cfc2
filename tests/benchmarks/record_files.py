"""Records of a topic as Parquet files: tasks that write them, Spark's own writer, and no writer.

One session of Spark does all of it in turns; the CPU seconds are those of its JVM and workers.
"""

import os
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import kip33
from kip33.spark import create_session, read_segments, write_records
from tests.benchmarks.page import Section, tell
from tests.benchmarks.processes import PROC, descendants
from tests.benchmarks.ratios import Ratio
from tests.builders.segment_builder import Record, v2_batch

ROUNDS: Final = 3
RECORDS: Final = 4_000_000
BATCH: Final = 500
VARIANTS: Final = 50  # different batches, repeated
SEGMENTS: Final = 8
START_MS: Final = 1_700_000_000_000
COLUMNS: Final = ("partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
TASKS, WRITER, COUNT = (
    "`kip33.spark.write_records`",
    "a DataFrame's `write.parquet`, zstd, too",
    "`count()`",
)
LOCALLY: Final = "`kip33.write_records`, 2 workers"
AT_LEAST: Final = 3


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure and return this part of the page; nothing if `quick`."""
    if quick:
        return []
    with TemporaryDirectory(prefix="scratch-", dir=data) as folder:
        scratch = Path(folder)
        catalog = build(scratch)
        spent = measured(catalog, scratch)
    medians = {name: statistics.median(rounds) for name, rounds in spent.items()}
    lines = ["| 4 M records of 100 B | CPU seconds |", "|---|---:|"]
    lines += [f"| {name} | {seconds:.1f} |" for name, seconds in medians.items()]
    lines += ["", f"- Spark `local[2]`, one session; medians of {ROUNDS} rounds after one."]
    ratio = Ratio(TASKS, WRITER, medians[WRITER] / medians[TASKS], at_least=AT_LEAST)
    return [Section("Records to Parquet", lines, [ratio])]


def build(folder: Path) -> Path:
    """Write an archive of one topic; return its catalog."""
    values = random.Random(33)
    value = b'{"order": %012d, "amount": %08d, "city": "%s"}'
    batches = [
        v2_batch(
            0,
            [
                Record(
                    START_MS + number,
                    b"customer-%08d" % values.randrange(10**8),
                    value % (values.randrange(10**12), values.randrange(10**8), b"x" * 40),
                )
                for number in range(BATCH)
            ],
        )
        for _ in range(VARIANTS)
    ]
    offset = 0
    for _ in range(SEGMENTS):
        log = folder / f"archive/orders-0/{offset:020d}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as file:
            for number in range(RECORDS // SEGMENTS // BATCH):
                batch = batches[number % VARIANTS]
                file.write(offset.to_bytes(8) + batch[8:])  # no CRC covers the base offset
                offset += BATCH
    kip33.build_index(folder / "archive", catalog=folder / "catalog", index_files=False)
    return folder / "catalog"


def measured(catalog: Path, folder: Path) -> dict[str, list[float]]:
    """Return the CPU seconds of each work and round."""
    spark = create_session(master="local[2]")
    read = read_segments(spark, catalog, columns=COLUMNS, on_error="row")

    works: dict[str, Callable[[Path], object]] = {
        TASKS: lambda to: write_records(spark, catalog, to, now_ms=START_MS, columns=COLUMNS),
        WRITER: lambda to: read.write.option("compression", "zstd").parquet(str(to)),
        COUNT: lambda _: read.count(),
        LOCALLY: lambda to: kip33.write_records(catalog, to, columns=COLUMNS, workers=2),
    }
    spent: dict[str, list[float]] = {name: [] for name in works}
    for number in range(ROUNDS + 1):
        tell(f"records to Parquet, round {number}")
        for place, (name, work) in enumerate(works.items()):
            before = cpu_seconds()
            work(folder / f"{place}-{number}")
            if number:
                spent[name].append(cpu_seconds() - before)
    spark.stop()
    return spent


def cpu_seconds() -> float:
    """Return the CPU time of this process and all below it, also of those that have ended."""
    ticks = 0
    for process in (os.getpid(), *descendants(os.getpid())):
        try:
            fields = (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    print(*sections(Path(sys.argv[1]), quick=False)[0].lines, sep="\n")
