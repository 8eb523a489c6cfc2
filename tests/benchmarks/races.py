"""The races against Kafka, kafka-python and aiokafka: one segment, and fixed costs."""

import sys
from pathlib import Path
from typing import Final

from tests.benchmarks import one_segment, whole_job
from tests.benchmarks.cold_start import cold_seconds
from tests.benchmarks.page import Section, tell
from tests.benchmarks.report import Races, race_sections
from tests.benchmarks.segments import KINDS, SegmentFile, read_anew, write_segment
from tests.integration.kafka.kafka_jars import OracleMissingError

ROUNDS: Final = 5
QUICK_ROUNDS: Final = 3
QUICK_BYTES: Final = 64 << 20  # of a segment


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
        once |= session_seconds(files[0], data)
    return race_sections(races, once, rounds=rounds)


def session_seconds(file: SegmentFile, data: Path) -> dict[str, float]:
    """Return what the start of a Spark session takes, and its first job beyond a later one."""
    spark, started = whole_job.start_session()
    try:
        first, again = (whole_job.first_job_seconds(spark, file, data) for _ in range(2))
    finally:
        spark.stop()
    return {
        "start a Spark session": started,
        "first job of a session, beyond a later one": first - again,
    }
