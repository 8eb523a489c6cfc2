"""Measure kip33 against Kafka's recovery and kafka-python; write a page of ratios.

    python -m tests.benchmarks.bench [--size 1GiB] [--data DIR] [--output FILE] [--rounds 5]

Segments are made once, 2.5 GiB of them, and reused from then on. Needs Java 17 and Maven, for
Kafka's own jars, and a machine with little else to do; takes about five minutes.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.benchmarks import one_segment, whole_job
from tests.benchmarks.cold_start import cold_seconds
from tests.benchmarks.report import Races, results_page
from tests.benchmarks.segments import KINDS, write_segment
from tests.kafka.oracle import OracleMissingError

RESULTS: Final = Path(__file__).with_name("RESULTS.md")
JOB_ROUNDS: Final = 3
UNITS: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def main() -> None:
    """Run everything and write the page."""
    options = parse_options()
    try:
        page = measure(options.data, size_bytes=options.size, rounds=options.rounds)
    except OracleMissingError as missing:
        sys.exit(f"Kafka cannot be asked: {missing}")
    options.output.write_text(page)
    print(page)


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--size", type=size_bytes, help="of every segment; 1 GiB or 256 MiB by kind unless given"
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(tempfile.gettempdir()) / "kip33-bench",
        help="where the segments lie, or are made",
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help="the Markdown page")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def size_bytes(text: str) -> int:
    """Return bytes of `256MiB`, `1GiB` or a plain number."""
    match = re.fullmatch(r"(\d+)([KMG]iB)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r}: a size such as 256MiB or 1GiB expected")
    return int(match[1]) * UNITS.get(match[2], 1)


def measure(data: Path, *, size_bytes: int | None, rounds: int) -> str:
    """Return the page of results."""
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
    return results_page(races, once, rounds=rounds)


def tell(what: str) -> None:
    """Say on standard error what is measured now."""
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
