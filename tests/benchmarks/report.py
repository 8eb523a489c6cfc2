"""The results as Markdown: the aims, one table of ratios, what starting costs."""

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

from kafka.record.util import crc32c_c

from tests.benchmarks import one_segment, whole_job
from tests.benchmarks.segments import SegmentFile
from tests.benchmarks.timing import GIGA, Times, times_faster
from tests.kafka.oracle import KAFKA_VERSION

AIMS: Final = {"batches-16k": 1.8, "batches-200": 15.0, "messages-150": 6.0}
PACKAGES: Final = ("numba", "numpy", "pyarrow", "pyspark", "kafka-python")


class Races(NamedTuple):
    """What was measured on one kind of segment."""

    file: SegmentFile
    one_segment: dict[str, Times]
    whole_job: dict[str, Times]


def results_page(races: Sequence[Races], once_seconds: Mapping[str, float], *, rounds: int) -> str:
    """Return the whole page."""
    return "\n".join(
        [
            "# Measured",
            "",
            f"Written by `make bench`; medians of {rounds} rounds in which all contestants take",
            "turns. Read the ratios: both sides of one were timed within seconds of each other.",
            "Every index compared equal to Kafka's, byte for byte, before its clock started.",
            "",
            *machine_lines(),
            "",
            "## Aims: path to index files against one thread of Kafka",
            "",
            *aim_lines(races),
            "",
            "## All contestants",
            "",
            *race_lines(races),
            "",
            *notes(),
            "",
            "## Paid once",
            "",
            "| | seconds |",
            "|---|---:|",
            *(f"| {what} | {seconds:.2f} |" for what, seconds in once_seconds.items()),
            "",
        ]
    )


def machine_lines() -> list[str]:
    """Say what was measured on."""
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    return [
        f"- {os.cpu_count()} x {processor()}, {memory_gib()} GiB, {platform.system()}",
        f"- Python {platform.python_version()}, {packages}",
        f"- Kafka {KAFKA_VERSION}, {java.stderr.splitlines()[0]}",
        f"- kafka-python's CRC-32C: {'the C package `crc32c`' if crc32c_c else 'plain Python'}",
    ]


def processor() -> str:
    """Return the processor's name as Linux tells it, else its architecture."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def memory_gib() -> int:
    """Return the machine's memory."""
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30))


def aim_lines(races: Sequence[Races]) -> list[str]:
    """Set the ratios that were aimed at beside those that came out."""
    lines = ["| | aim | measured | |", "|---|---:|---:|---|"]
    for file, times, _ in races:
        aim = AIMS.get(file.kind.name)
        measured = times_faster(times[one_segment.PATH_TO_INDEX], times[one_segment.KAFKA])
        wanted, met = (f"{aim:g} x", "met" if measured >= aim else "missed") if aim else ("-", "")
        lines.append(f"| {file.kind.title} | {wanted} | {measured:.1f} x | {met} |")
    return lines


def race_lines(races: Sequence[Races]) -> list[str]:
    """Return the one table: every contestant on every kind of segment."""
    lines = [
        "| segment | contestant | GB/s | M batches/s | x Kafka | x kafka-python |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for file, *both in races:
        title = f"{file.kind.title}, {file.size_bytes / GIGA:.2f} GB"
        for times, kafka in zip(both, (one_segment.KAFKA, whole_job.KAFKA_THREADS), strict=True):
            for name, own in times.items():
                speed = f"{own.gigabytes_per_second:.3g} | {own.million_batches_per_second:.3g}"
                ratios = (ratio(own, times.get(o)) for o in (kafka, one_segment.KAFKA_PYTHON))
                lines.append(f"| {title} | {name} | {speed} | {' | '.join(ratios)} |")
                title = ""
    return lines


def ratio(own: Times, other: Times | None) -> str:
    """Return how many times faster `own` is; a dash for oneself and who was not in the race."""
    return "-" if other is None or own is other else f"{times_faster(own, other):.3g}"


def notes() -> list[str]:
    """Say what each row does and does not include."""
    return [
        "- Warm page cache, every CRC checked by everybody, one thread unless said.",
        "- *Path to index files* opens the log, scans, applies the `recover` rule, gathers the",
        "  catalog row and publishes `.timeindex` and `.index`, which Kafka writes too.",
        "- *Kafka* is `LogSegment.recover` alone, opening and closing not counted, in a JVM warmed",
        "  up on that very segment; its ratios for the job are to two such JVMs side by side.",
        "- *Spark job* is listing, tasks, publishing and the catalog's commit in a session that is",
        "  up; its segments are hard links of one file.",
        "- *kafka-python* gets the front of the segment, already in memory, and reads no records",
        "  of v2; a v1 message it must decode to find its timestamp.",
    ]
