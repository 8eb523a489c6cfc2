"""The complete Spark job on many segments and two cores, beside Kafka with two recovery threads."""

import itertools
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from kip33.spark.build import build_index
from kip33.spark.session import create_session
from tests.benchmarks.kafka_recovery import WarmKafka, indexes_of, recover_side_by_side
from tests.benchmarks.segments import SegmentFile, link_copies
from tests.benchmarks.timing import Contestant, Times, clocked, take_turns

CORES: Final = 2
COPIES: Final = 16
NOW_MS: Final = 1_800_000_000_000
JOB: Final = f"kip33: Spark job, {COPIES} segments, {CORES} cores"
KAFKA_THREADS: Final = f"Kafka: {COPIES} segments, {CORES} JVMs"


def start_session() -> tuple[SparkSession, float]:
    """Return a session on two cores and the seconds of its start."""
    begin = time.perf_counter()
    spark = create_session(master=f"local[{CORES}]")
    return spark, time.perf_counter() - begin


def first_job_seconds(spark: SparkSession, file: SegmentFile, folder: Path) -> float:
    """Return the seconds of a session's first build, on a single segment: it starts the workers."""
    link_copies(file, folder / "first" / "source", 1)
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=folder) as scratch:
        source = str(folder / "first" / "source")
        return clocked(lambda: build_index(spark, source, scratch, now_ms=NOW_MS))()


def race(spark: SparkSession, file: SegmentFile, folder: Path, *, rounds: int) -> dict[str, Times]:
    """Time the job and Kafka on copies of one segment, after a check that they agree."""
    ours, theirs = folder / "job" / file.kind.name, folder / "job-kafka" / file.kind.name
    logs = link_copies(file, ours, COPIES)
    kafka_logs = link_copies(file, theirs, COPIES)
    with ExitStack() as stack:
        machines = [stack.enter_context(WarmKafka()) for _ in range(CORES)]
        for machine, log in zip(machines, kafka_logs, strict=False):
            machine.warm_up(log)
        scratch = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="scratch-", dir=folder))
        )
        runs = itertools.count()

        def run_job() -> Path:
            target = scratch / str(next(runs))
            build_index(spark, str(ours), str(target), now_ms=NOW_MS, offset_index=True)
            return target

        built = run_job()
        recover_side_by_side(machines, kafka_logs)
        for log, kafka_log in zip(logs, kafka_logs, strict=True):
            if indexes_of(built / log.relative_to(ours)) != indexes_of(kafka_log):
                raise ValueError(f"{log}: the job's indexes are not Kafka's")
        total = COPIES * file.size_bytes, COPIES * file.batches
        return take_turns(
            {
                JOB: Contestant(clocked(run_job), *total),
                KAFKA_THREADS: Contestant(
                    clocked(lambda: recover_side_by_side(machines, kafka_logs)), *total
                ),
            },
            rounds=rounds,
        )
