"""The races as Markdown: the aims, one table of ratios, what starting costs."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Final, NamedTuple

from kafka.record.util import crc32c_c

from tests.benchmarks import one_segment, whole_job
from tests.benchmarks.page import Section
from tests.benchmarks.segments import SegmentFile
from tests.benchmarks.timing import GIGA, Times, times_faster
from tests.kafka.oracle import KAFKA_VERSION

AIMS: Final = {"batches-16k": 1.8, "batches-200": 15.0, "messages-150": 6.0}


class Races(NamedTuple):
    """What was measured on one kind of segment."""

    file: SegmentFile
    one_segment: dict[str, Times]
    whole_job: dict[str, Times]


def race_sections(
    races: Sequence[Races], once_seconds: Mapping[str, float], *, rounds: int
) -> list[Section]:
    """Return the races' part of the page."""
    return [
        Section("Aims: path to index files against one thread of Kafka", aim_lines(races)),
        Section("All contestants", [*race_lines(races), "", *notes(rounds)]),
        Section(
            "Paid once",
            [
                "| | seconds |",
                "|---|---:|",
                *(f"| {what} | {seconds:.2f} |" for what, seconds in once_seconds.items()),
            ],
        ),
    ]


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


def notes(rounds: int) -> list[str]:
    """Say what each row does and does not include."""
    crc = "the C package `crc32c`" if crc32c_c else "plain Python"
    return [
        f"- Medians of {rounds} rounds. Every index compared equal to Kafka's, byte for byte,",
        "  before its clock started.",
        "- Warm page cache, every CRC checked by everybody, one thread unless said.",
        "- *Path to index files* opens the log, scans, applies the `recover` rule, gathers the",
        "  catalog row and publishes `.timeindex` and `.index`, which Kafka writes too.",
        "- *Kafka* is `LogSegment.recover` alone, opening and closing not counted, in a JVM warmed",
        "  up on that very segment; its ratios for the job are to two such JVMs side by side.",
        "- *Spark job* is listing, tasks, publishing and the catalog's commit in a session that is",
        "  up; its segments are hard links of one file.",
        "- *kafka-python* gets the front of the segment, already in memory, and reads no records",
        "  of v2; a v1 message it must decode to find its timestamp.",
        f"- Kafka {KAFKA_VERSION}; kafka-python {version('kafka-python')}, its CRC-32C: {crc}.",
    ]
