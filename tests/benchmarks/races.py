"""The races against Kafka, kafka-python and aiokafka: one segment, complete jobs, fixed costs."""

import sys
from pathlib import Path
from typing import Final

from tests.benchmarks import one_segment, whole_job
from tests.benchmarks.cold_start import cold_seconds
from tests.benchmarks.page import Section, tell
from tests.benchmarks.report import Races, race_sections
from tests.benchmarks.segments import KINDS, read_anew, write_segment
from tests.integration.kafka.kafka_jars import OracleMissingError

ROUNDS: Final = 5
QUICK_ROUNDS: Final = 3
QUICK_BYTES: Final = 64 << 20  # of a segment
JOB_ROUNDS: Final = 3


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Run all races and return their part of the page."""
    try:
        return _measured(data / "quick" if quick else data, quick=quick)
    except OracleMissingError as missing:
        sys.exit(f"Kafka cannot be asked: {missing}")


def _measured(data: Path, *, quick: bool) -> list[Section]:
    rounds = QUICK_ROUNDS if quick else ROUNDS
    size_bytes = QUICK_BYTES if quick else None
    files = [write_segment(kind, data / "source", size_bytes=size_bytes) for kind in KINDS]
    once = cold_seconds(files[0])
    races = []
    for file in files:
        tell(f"{file.kind.title}: one segment")
        read_anew(file)
        races.append(Races(file, one_segment.race(file, data, rounds=rounds)))
    if not quick:
        races = _with_jobs(races, once, data)
    return race_sections(races, once, rounds=rounds)


def _with_jobs(races: list[Races], once: dict[str, float], data: Path) -> list[Races]:
    """Return the races with complete jobs; add the cost of a session to `once`."""
    spark, once["start a Spark session"] = whole_job.start_session()
    try:
        first = whole_job.first_job_seconds(spark, races[0].file, data)
        again = whole_job.first_job_seconds(spark, races[0].file, data)
        once["first job of a session, beyond a later one"] = first - again
        raced = []
        for race in races:
            tell(f"{race.file.kind.title}: the whole job")
            read_anew(race.file)
            job = whole_job.race(spark, race.file, data, rounds=JOB_ROUNDS)
            raced.append(race._replace(whole_job=job))
        return raced
    finally:
        spark.stop()
