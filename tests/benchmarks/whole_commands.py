"""Complete commands, from the start of their process to its end, on the engine that `auto` takes.

The archive of 24 segments is the one of `make demo` on its second night. Every command runs once
before its rounds; that run has to show that it did the work, and on the local engine.
"""

import itertools
import os
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from kip33.demo import make_archive, make_sensors
from tests.benchmarks.archives import Shape, link_archive
from tests.benchmarks.commands import KIP33
from tests.benchmarks.made_catalogs import NOW_MS, make_catalog, write_policy
from tests.benchmarks.page import Section, tell
from tests.benchmarks.processes import run_measured
from tests.benchmarks.ratios import Ratio

MIB: Final = 1 << 20
ROUNDS: Final = 5
QUICK_ROUNDS: Final = 3
WORKERS: Final = 2
ROWS: Final = 1_000_000
ROWS_EACH: Final = 200  # per partition
MANY: Final = Shape("20,000 segments of 4 KB", "batches-200", 4_000, 100, 200)


class Work(NamedTuple):
    """A command, a text that its first run must print, and the required figures."""

    title: str
    arguments: Callable[[], Sequence[object]]  # of the next run
    printed: str
    at_most_s: float | None = None
    at_most_mib: float | None = None


class Runs(NamedTuple):
    """The rounds of a command: seconds, and the largest resident bytes of its process."""

    work: Work
    seconds: list[float]
    peak_bytes: int

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure all commands and return their part of the page."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    with TemporaryDirectory(prefix="scratch-", dir=data) as folder:
        scratch = Path(folder)
        works = small_works(scratch) if quick else all_works(data, scratch)
        runs = [measure(work, rounds=rounds) for work in works]
    ratios = [ratio for one in runs for ratio in ratios_of(one)]
    return [Section("Complete commands", [*lines(runs), "", *notes(rounds)], ratios)]


def all_works(data: Path, scratch: Path) -> Iterator[Work]:
    """Yield everything to measure; each is measured before the next is prepared."""
    yield from small_works(scratch)
    yield from large_works(data, scratch)
    yield from retention_works(scratch)


def small_works(scratch: Path) -> Iterator[Work]:
    """Yield the commands on 24 segments."""
    archive = demo_archive(scratch / "demo")
    title, indexes = "24 segments", scratch / "demo-indexes"
    yield from builds(title, archive, indexes, segments=24, first_s=1.5, unchanged_s=0.8)
    verify = ["verify", archive, "--index-dir", indexes / "0"]
    yield Work(f"`kip33 verify`, {title}", lambda: verify, title, 1.5)
    judge = ["retention", indexes / "0" / "_catalog", "--retention-ms", "3d"]
    yield Work(f"`kip33 retention`, {title}, table", lambda: judge, "deletable", 0.8)


def large_works(data: Path, scratch: Path) -> Iterator[Work]:
    """Yield the builds of many segments."""
    archive = link_archive(MANY, data / f"nightly-{MANY.segments}")
    how = ["--workers", WORKERS]
    many = {"segments": MANY.segments, "first_s": 4, "unchanged_s": 1.0}
    yield from builds(f"{MANY.title}, {WORKERS} workers", archive, scratch / "many", *how, **many)


def retention_works(scratch: Path) -> Iterator[Work]:
    """Yield the judgement of a synthetic catalog, and a plan for it."""
    catalog, policy = scratch / "catalog", write_policy(scratch / "policy.toml")
    make_catalog(catalog, segments=ROWS, partitions=ROWS // ROWS_EACH)
    judge = ["retention", catalog, "--policy", policy, "--now", NOW_MS]
    title = f"`kip33 retention`, {ROWS:,} rows"
    yield Work(f"{title}, table and sums", lambda: judge, "deletable", 4, 1024)
    yield Work(
        f"{title}, `--plan`", lambda: [*judge, "--plan", scratch / "plan.jsonl"], "deletable", 8
    )
    shutil.rmtree(catalog)


def demo_archive(folder: Path) -> Path:
    """Return the archive of `make demo` after a partition's only segment was deleted."""
    make_archive(folder)
    make_sensors(folder)
    for log in (folder / "broker-2" / "clicks-0").iterdir():
        log.unlink()
    return folder


def builds(
    title: str,
    archive: Path,
    scratch: Path,
    *options: object,
    segments: int,
    first_s: float,
    unchanged_s: float,
) -> Iterator[Work]:
    """Yield builds into new directories, then unchanged ones of directory `0`."""
    places = itertools.count()

    def build(place: int) -> list[object]:
        return ["build", archive, "--index-dir", scratch / str(place), *options]

    work = f"`kip33 build`, {title}"
    yield Work(f"{work}, first", lambda: build(next(places)), " 0 unchanged", first_s)
    yield Work(f"{work}, unchanged", lambda: build(0), f" {segments:,} unchanged", unchanged_s)


def measure(work: Work, *, rounds: int) -> Runs:
    """Run a command once to see that it works, then time its rounds."""
    tell(work.title)
    require_work(work)
    seconds, peak_bytes = [], 0
    for _ in range(rounds):
        os.sync()  # so that no run waits for what the one before wrote
        measured = run_measured(command_of(work), quiet=True)
        seconds.append(measured.seconds)
        peak_bytes = max(peak_bytes, measured.peak.python)
    return Runs(work, seconds, peak_bytes)


def require_work(work: Work) -> None:
    """Raise if a run fails, is not on the local engine, or prints something else."""
    done = subprocess.run([*command_of(work), "-v"], capture_output=True, text=True, check=False)
    if done.returncode or "Engine: local" not in done.stderr or work.printed not in done.stdout:
        raise ValueError(f"{work.title}: {done.returncode}\n{done.stdout}\n{done.stderr}")


def command_of(work: Work) -> list[str]:
    """Return the command line of the next run."""
    return [str(KIP33), *map(str, work.arguments())]


def ratios_of(runs: Runs) -> Iterator[Ratio]:
    """Yield the median, and the memory where it is required."""
    work = runs.work
    yield Ratio(work.title, "", runs.median, "s", work.at_most_s)
    if work.at_most_mib:
        peak = runs.peak_bytes / MIB
        yield Ratio(f"memory of {work.title}", "", peak, "MiB", work.at_most_mib)


def lines(runs: Sequence[Runs]) -> list[str]:
    """Return the table."""
    return [
        "| command | median | fastest | slowest | resident |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {one.work.title} | {one.median:.2f} s | {min(one.seconds):.2f} s "
            f"| {max(one.seconds):.2f} s | {one.peak_bytes / MIB:,.0f} MiB |"
            for one in runs
        ),
    ]


def notes(rounds: int) -> list[str]:
    """Return an explanation of the rows."""
    return [
        f"- From the start of the process to its end, {rounds} rounds after one that is not",
        "  counted; warm page cache, the disk flushed before each. The engine is what `auto`",
        "  takes without a configured master: local. *resident* is the command's own process",
        "  without its workers, sampled every 50 ms.",
        "- *24 segments* is the archive of `make demo` after its partition clicks-0 was deleted:",
        "  2 MB in 10 partitions on two brokers, some of them damaged. Each *first* build has a",
        "  new index directory.",
        "- *1,000,000 rows* is a synthetic catalog of 5,000 partitions, of which none exists on",
        "  disk. So its `--plan` judges every row, tries to list 5,000 directories, and plans",
        "  nothing.",
    ]
