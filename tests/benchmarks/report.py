"""The races as Markdown and ratios: one table of all contestants, and the fixed costs."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Final, NamedTuple

from kafka.record.util import crc32c_c

from tests.benchmarks import one_segment as one
from tests.benchmarks.page import Section
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.segments import SegmentFile
from tests.benchmarks.timing import GIGA, Times, times_faster

RECOVER: Final = "Kafka's `LogSegment.recover`, warm JVM"
MEMORY: Final = "reading the same bytes from memory"
KERNEL: Final = "kernel over bytes in memory"
PATH: Final = "path to index file"
HEADERS: Final = "kernel, headers only, bytes in memory"
LIVE: Final = "`live` dialect, records read"


class Wanted(NamedTuple):
    """A required ratio: which contestant, against which, and how much."""

    kind: str
    work: str
    who: str
    against: str
    whom: str
    unit: str = "x"
    at_least: float | None = None
    aim: float | None = None


WANTED: Final = (
    Wanted("batches-16k", KERNEL, one.KERNEL, RECOVER, one.KAFKA, at_least=3),
    Wanted("batches-16k", PATH, one.PATH_TO_INDEX, RECOVER, one.KAFKA, at_least=1.8, aim=2),
    Wanted("batches-16k", KERNEL, one.KERNEL, MEMORY, one.MEMORY, "%", 60),
    Wanted("batches-1m", KERNEL, one.KERNEL, MEMORY, one.MEMORY, "%", 60),
    Wanted("batches-200", PATH, one.PATH_TO_INDEX, RECOVER, one.KAFKA, at_least=18, aim=20),
    Wanted("batches-1m", PATH, one.PATH_TO_INDEX, RECOVER, one.KAFKA),
    Wanted("messages-150", PATH, one.PATH_TO_INDEX, RECOVER, one.KAFKA, at_least=7, aim=10),
    Wanted("batches-16k", HEADERS, one.HEADERS, "kafka-python", one.KAFKA_PYTHON_HEADERS, "x", 15),
    Wanted("batches-200", HEADERS, one.HEADERS, "kafka-python", one.KAFKA_PYTHON_HEADERS, "x", 35),
    Wanted("batches-16k", HEADERS, one.HEADERS, "aiokafka's C", one.AIOKAFKA_HEADERS, "x", 2),
    Wanted("batches-200", HEADERS, one.HEADERS, "aiokafka's C", one.AIOKAFKA_HEADERS, "x", 4),
    Wanted("batches-16k", LIVE, one.RECORDS, "aiokafka's C decoder", one.AIOKAFKA_RECORDS, "x", 3),
)


class Races(NamedTuple):
    """The measurements on one kind of segment."""

    file: SegmentFile
    one_segment: dict[str, Times]


def race_sections(
    races: Sequence[Races], once_seconds: Mapping[str, float], *, rounds: int
) -> list[Section]:
    """Return the races' part of the page."""
    return [
        Section(
            "Against Kafka, kafka-python and aiokafka",
            [*race_lines(races), "", *notes(rounds)],
            list(ratios(races)),
        ),
        Section(
            "Paid once",
            [
                "| | seconds |",
                "|---|---:|",
                *(f"| {what} | {seconds:.2f} |" for what, seconds in once_seconds.items()),
            ],
        ),
    ]


def ratios(races: Sequence[Races]) -> Iterator[Ratio]:
    """Yield the required and the measured ratios."""
    by_kind = {race.file.kind.name: race for race in races}
    for wanted in WANTED:
        file, times = by_kind[wanted.kind]
        faster = times_faster(times[wanted.who], times[wanted.whom])
        measured = 100 * faster if wanted.unit == "%" else faster
        work = f"{wanted.work}, {file.kind.title}"
        yield Ratio(work, wanted.against, measured, wanted.unit, wanted.at_least, wanted.aim)


def race_lines(races: Sequence[Races]) -> list[str]:
    """Return the table of every contestant on every kind of segment."""
    lines = [
        "| segment | contestant | GB/s | M batches/s | x Kafka |",
        "|---|---|---:|---:|---:|",
    ]
    for file, times in races:
        title = f"{file.kind.title}, {file.size_bytes / GIGA:.2f} GB"
        for name, own in times.items():
            speed = f"{own.gigabytes_per_second:.3g} | {own.million_batches_per_second:.3g}"
            lines.append(f"| {title} | {name} | {speed} | {ratio(own, times[one.KAFKA])} |")
            title = ""
    return lines


def ratio(own: Times, other: Times) -> str:
    """Return how many times faster `own` is; a dash if both are the same."""
    return "-" if own is other else f"{times_faster(own, other):.3g}"


def notes(rounds: int) -> list[str]:
    """Return an explanation of what each row includes and leaves out."""
    crc = "the C package `crc32c`" if crc32c_c else "plain Python"
    return [
        f"- Medians of {rounds} rounds. Every index compared equal to Kafka's, byte for byte,",
        "  before its clock started.",
        "- Warm page cache, every CRC checked unless said, one thread unless said.",
        "- *Kernel* walks over bytes where they lie; *path to index files* opens the log, scans,",
        "  applies the `recover` rule, gathers the catalog row and publishes `.timeindex` and",
        "  `.index`, which Kafka writes too.",
        "- *Kafka* is `LogSegment.recover` alone, opening and closing not counted, in a JVM warmed",
        "  up on that very segment.",
        "- kafka-python with checksums and who reads records get the front of the segment,",
        "  already in memory; a v1 message must be decoded to find its timestamp.",
        f"- kafka-python's CRC-32C: {crc} ({version('crc32c')}).",
    ]
