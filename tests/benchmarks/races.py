"""The races against Kafka and kafka-python: one segment alone, the whole job, what is paid once."""

import sys
from pathlib import Path
from typing import Final

from tests.benchmarks import one_segment, whole_job
from tests.benchmarks.cold_start import cold_seconds
from tests.benchmarks.page import Section, tell
from tests.benchmarks.report import Races, race_sections
from tests.benchmarks.segments import KINDS, write_segment
from tests.kafka.oracle import OracleMissingError

JOB_ROUNDS: Final = 3


def sections(data: Path, *, size_bytes: int | None, rounds: int) -> list[Section]:
    """Run all races and return their part of the page."""
    try:
        return _measured(data, size_bytes=size_bytes, rounds=rounds)
    except OracleMissingError as missing:
        sys.exit(f"Kafka cannot be asked: {missing}")


def _measured(data: Path, *, size_bytes: int | None, rounds: int) -> list[Section]:
    files = [write_segment(kind, data / "source", size_bytes=size_bytes) for kind in KINDS]
    once = cold_seconds(files[0])
    alone = []
    for file in files:
        tell(f"{file.kind.title}: one segment")
        alone.append(one_segment.race(file, data, rounds=rounds))
    spark, once["start a Spark session"] = whole_job.start_session()
    try:
        first = whole_job.first_job_seconds(spark, files[0], data)
        again = whole_job.first_job_seconds(spark, files[0], data)
        once["first job of a session, beyond a later one"] = first - again
        races = []
        for file, times in zip(files, alone, strict=True):
            tell(f"{file.kind.title}: the whole job")
            job = whole_job.race(spark, file, data, rounds=min(rounds, JOB_ROUNDS))
            races.append(Races(file, times, job))
    finally:
        spark.stop()
    return race_sections(races, once, rounds=rounds)
