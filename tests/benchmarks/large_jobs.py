"""Builds on both engines compared with bare processes, on large segments and on very many."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from kip33.spark.build import build_index
from tests.benchmarks.archives import BROKER, Shape, link_archive
from tests.benchmarks.bare_scan import BareScans
from tests.benchmarks.kafka_recovery import WarmKafka, recover_side_by_side
from tests.benchmarks.local_builds import build_locally
from tests.benchmarks.page import Section, tell
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.timing import Contestant, Times, clocked, take_turns, times_faster
from tests.benchmarks.whole_job import CORES, start_session

MIB, GIB = 1 << 20, 1 << 30
NOW_MS: Final = 1_800_000_000_000
FRESH: Final = "Spark job, into a new directory"
AGAIN: Final = "Spark job, `--full` in the same place"
LOCAL_FRESH: Final = f"`kip33 build`, {CORES} local workers, into a new directory"
LOCAL_AGAIN: Final = f"`kip33 build`, {CORES} local workers, `--full` in the same place"
BARE: Final = f"kernel in {CORES} bare processes"
KAFKA: Final = f"Kafka's `recover`, {CORES} warm JVMs"


class Race(NamedTuple):
    """An archive, the required shares of bare processes' speed, and whether Kafka runs too."""

    shape: Shape
    least: float = 0.0  # of Spark
    least_locally: float = 0.0  # of the local engine, into a new directory
    with_kafka: bool = False


RACES: Final = (
    Race(Shape("64 segments of 1 GiB", "batches-16k", GIB, 4, 16), 0.8, 0.92),
    Race(Shape("20,000 segments of 1 MiB", "batches-16k", MIB, 100, 200), 0.5, 0.6),
    Race(Shape("2,000 segments of 1 MiB", "batches-16k", MIB, 20, 100), with_kafka=True),
)
QUICK_RACES: Final = (  # they take seconds, mostly for a job's start, so nothing is required
    Race(Shape("32 segments of 64 MiB", "batches-16k", 64 * MIB, 4, 8)),
    Race(Shape("2,000 segments of 1 MiB", "batches-16k", MIB, 20, 100), with_kafka=True),
)


def sections(data: Path, *, quick: bool, **_: object) -> list[Section]:
    """Measure and return this part of the page."""
    spark, _seconds = start_session()
    rows, ratios = [], []
    try:
        for race in QUICK_RACES if quick else RACES:
            tell(f"{race.shape.title}: whole jobs")
            times = measure(spark, race, data, rounds=2 if quick else 3)
            rows += lines(race.shape, times)
            ratios += ratios_of(race, times)
    finally:
        spark.stop()
    head = ["| archive | who | seconds | GB/s | ms a segment |", "|---|---|---:|---:|---:|"]
    return [Section("Whole jobs", [*head, *rows, "", *notes()], ratios)]


def measure(spark: SparkSession, race: Race, data: Path, *, rounds: int) -> dict[str, Times]:
    """Time all of them on one archive, in turns, after a first round that is not counted."""
    shape = race.shape
    archive = link_archive(shape, data / f"jobs-{shape.segments}-{shape.segment_bytes // MIB}")
    logs = sorted((archive / BROKER).glob("*/*.log"))
    total = sum(log.stat().st_size for log in logs), shape.segments
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="scratch-", dir=data)))
        bare = stack.enter_context(BareScans(CORES))
        build = builder(spark, archive, shape)
        locally = partial(build_locally, archive, segments=shape.segments, workers=CORES)
        fresh, local = itertools.count(), itertools.count()
        contestants: dict[str, Callable[[], float]] = {
            FRESH: clocked(lambda: build(scratch / str(next(fresh)))),
            AGAIN: clocked(lambda: build(scratch / "0")),
            LOCAL_FRESH: clocked(lambda: locally(scratch / f"local-{next(local)}", full=False)),
            LOCAL_AGAIN: clocked(lambda: locally(scratch / "local-0", full=True)),
            BARE: lambda: bare.scan(logs),
        }
        if race.with_kafka:
            machines = [stack.enter_context(WarmKafka()) for _ in range(CORES)]
            links = links_of(logs, scratch / "kafka")
            for machine in machines:
                machine.warm_up(links[0])
            contestants[KAFKA] = clocked(lambda: recover_side_by_side(machines, links))
        times = take_turns(
            {name: Contestant(run, *total) for name, run in contestants.items()}, rounds=rounds
        )
        if race.with_kafka:
            for built in ("0", "local-0"):
                require_agreement(links, scratch / built / BROKER)
        return times


def builder(spark: SparkSession, archive: Path, shape: Shape) -> Callable[[Path], None]:
    """Return a function that builds every segment into a directory, or raises."""

    def build(target: Path) -> None:
        summary = build_index(spark, str(archive), str(target), now_ms=NOW_MS, full=True)
        if summary.by_status != {"ok": shape.segments}:
            raise ValueError(f"{archive}: {summary}")

    return build


def links_of(logs: Sequence[Path], folder: Path) -> list[Path]:
    """Return hard links of the logs, so that Kafka can write its indexes beside them."""
    links = []
    for log in logs:
        link = folder / log.parent.name / log.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.hardlink_to(log)
        links.append(link)
    return links


def require_agreement(links: Sequence[Path], indexes: Path) -> None:
    """Raise if the bytes of a built index differ from Kafka's."""
    for link in links:
        theirs = link.with_suffix(".timeindex")
        ours = indexes / link.parent.name / theirs.name
        if ours.read_bytes() != theirs.read_bytes():
            raise ValueError(f"{ours}: not what Kafka writes")


def ratios_of(race: Race, times: Mapping[str, Times]) -> list[Ratio]:
    """Return the required and the measured ratios."""
    title = race.shape.title
    bare, job = "the kernel in two bare processes", f"{title}, {CORES} cores"
    local = f"`kip33 build`, {CORES} local workers"
    ratios = [
        Ratio(work, bare, 100 * times_faster(times[name], times[BARE]), "%", 100 * least or None)
        for name, work, least in (
            (FRESH, f"whole Spark job, {job}", race.least),
            (AGAIN, f"whole Spark job over its own index files, {job}", race.least),
            (LOCAL_FRESH, f"{local}, {title}", race.least_locally),
            (LOCAL_AGAIN, f"{local} over its own index files, {title}", 0),
        )
    ]
    if race.with_kafka:
        against = "Kafka's recover, 2 warm JVMs"
        ratios += [
            Ratio(work, against, times_faster(times[name], times[KAFKA]), at_least=least)
            for name, work, least in (
                (FRESH, f"whole Spark job, {job}", 1),
                (LOCAL_FRESH, f"{local}, {title}", None),
            )
        ]
    return ratios


def lines(shape: Shape, times: Mapping[str, Times]) -> list[str]:
    """Return one archive's rows."""
    return [
        f"| {shape.title} | {name} | {own.median:.2f} | {own.gigabytes_per_second:.2f} "
        f"| {own.median / shape.segments * 1e3:.3f} |"
        for name, own in times.items()
    ]


def notes() -> list[str]:
    """Return an explanation of the rows."""
    return [
        "- Medians of rounds in turns; warm page cache, every checksum checked by all. A build",
        "  lists, plans, publishes a `.timeindex` each and commits; bare processes, which are",
        "  running when the clock starts, read and walk, and that is all.",
        "- *Spark job*: in a session whose workers are up. *local workers*: the command from the",
        "  start of its process to its end, with the start of its workers.",
        "- The segments are hard links of a few files. Kafka's indexes were compared with ours.",
    ]
