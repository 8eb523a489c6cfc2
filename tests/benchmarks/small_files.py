"""Builds of many small segments against plain loops that do the least that is needed.

A loop opens, reads, writes and renames a file for each log, in one process without kip33. Loops and
builds take turns, each with a new index directory, and their CPU seconds are compared: on a shared
machine seconds of the clock say little. Only where files are flushed does the clock count, because
it is the disk that is waited for.
"""

import inspect
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from tests.benchmarks.archives import link_archive
from tests.benchmarks.local_builds import local_command
from tests.benchmarks.page import Section, tell
from tests.benchmarks.ratios import Ratio
from tests.benchmarks.whole_commands import MANY

ROUNDS: Final = 5
QUICK_ROUNDS: Final = 3
IMPORTS: Final = "import numpy, pyarrow.parquet"
FIRST, DURABLE, UNCHANGED = "first, --no-fsync", "first", "unchanged"
ROWS_ONLY = "first, --no-index-files"
LOOP, DURABLE_LOOP, LISTING, START = "loop", "loop that flushes", "listing", "imports"


class Spent(NamedTuple):
    """What a process took."""

    cpu_s: float
    seconds: float


def write_indexes(source: str, target: str, flushes: bool) -> None:
    """Write 12 bytes for each log below `source`; if `flushes`, files in groups, then folders."""
    import os
    from concurrent.futures import ThreadPoolExecutor

    def flush(path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    folders, files = [], []
    with ThreadPoolExecutor(8) as pool:
        for folder, _, names in os.walk(source):
            to = target + folder[len(source) :]
            os.makedirs(to, exist_ok=True)  # noqa: PTH103
            folders.append(to)
            for name in names:
                if not name.endswith(".log"):
                    continue
                with open(f"{folder}/{name}", "rb") as log:  # noqa: PTH123
                    data = log.read()
                with open(f"{to}/.{name}.tmp", "wb") as index:  # noqa: PTH123
                    index.write(data[:12])
                files.append(f"{to}/{name[:-4]}.timeindex")
                os.rename(f"{to}/.{name}.tmp", files[-1])  # noqa: PTH104
                if flushes and len(files) == 1024:
                    list(pool.map(flush, files))
                    files = []
        if flushes:
            list(pool.map(flush, files))
            list(pool.map(flush, folders))


def list_trees(*trees: str) -> None:
    """List the trees, with the status of each file."""
    import os

    left = list(trees)
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    left.append(entry.path)
                else:
                    entry.stat()


def sections(data: Path, *, quick: bool) -> list[Section]:
    """Measure and return this part of the page."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    archive = link_archive(MANY, data / f"nightly-{MANY.segments}")
    spent: dict[str, list[Spent]] = {}
    with TemporaryDirectory(prefix="small-", dir=data) as folder:
        run_round(archive, Path(folder) / "warm")
        for number in range(rounds):
            tell(f"builds of small segments, round {number + 1}")
            for name, one in run_round(archive, Path(folder) / str(number)).items():
                spent.setdefault(name, []).append(one)
    return [Section("Small segments", [*lines(spent), "", *notes(rounds)], ratios_of(spent))]


def run_round(archive: Path, folder: Path) -> dict[str, Spent]:
    """Run each loop and each build once; the directories stay, so that no inode is used again."""
    folder.mkdir()
    first = [*local_command(archive, folder / "first", workers=1), "--no-fsync"]
    works = {
        LOOP: calling(write_indexes, str(archive), str(folder / "loop"), False),
        FIRST: first,
        LISTING: calling(list_trees, str(archive), str(folder / "first")),
        ROWS_ONLY: rows_only_command(archive, folder / "catalog"),
        START: [sys.executable, "-c", IMPORTS],
        UNCHANGED: first,
        DURABLE_LOOP: calling(write_indexes, str(archive), str(folder / "durable-loop"), True),
        DURABLE: local_command(archive, folder / "durable", workers=2),
    }
    return {name: spend(command) for name, command in works.items()}


def rows_only_command(archive: Path, catalog: Path) -> list[str]:
    """Return the command line of a build without index files in one process."""
    build = [*local_command(archive, catalog, workers=1), "--no-index-files", "--no-fsync"]
    return ["--catalog" if argument == "--index-dir" else argument for argument in build]


def calling(function: Callable[..., None], *arguments: object) -> list[str]:
    """Return the command line of a process that only calls a function of this module."""
    call = f"{function.__name__}{arguments!r}"
    return [sys.executable, "-S", "-c", f"{inspect.getsource(function)}\n{call}"]


def spend(command: Sequence[str]) -> Spent:
    """Run a command to its end; return the CPU time of it and its children, and the time."""
    os.sync()  # so that no run waits for what the one before wrote
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return Spent(usage.ru_utime + usage.ru_stime, seconds)


def ratios_of(spent: dict[str, list[Spent]]) -> list[Ratio]:
    """Return the medians of the rounds' ratios."""

    def median(of_round: Callable[[dict[str, Spent]], float]) -> float:
        rounds = [dict(zip(spent, one, strict=True)) for one in zip(*spent.values(), strict=True)]
        return statistics.median(map(of_round, rounds))

    first = median(lambda one: one[FIRST].cpu_s / one[LOOP].cpu_s)
    durable = median(lambda one: one[DURABLE].seconds / one[DURABLE_LOOP].seconds)
    flushed = median(lambda one: one[DURABLE].cpu_s / one[DURABLE_LOOP].cpu_s)
    rows_only = median(lambda one: one[ROWS_ONLY].cpu_s / one[FIRST].cpu_s)
    unchanged = median(
        lambda one: one[UNCHANGED].cpu_s / (4 * one[LISTING].cpu_s + 2 * one[START].cpu_s)
    )
    work = f"`kip33 build`, {MANY.title}"
    return [
        Ratio(
            f"CPU time of {work}, first, `--no-fsync`",
            *("open, read, write, rename in a plain loop", first, "times", 3.0),
        ),
        Ratio(
            f"{work}, 2 workers, first",
            *("a plain loop that flushes files in groups, then folders", durable, "times", 1.3),
        ),
        Ratio(
            f"CPU time of {work}, 2 workers, first",
            *("a plain loop that flushes files in groups, then folders", flushed, "times", 1.3),
        ),
        Ratio(
            f"CPU time of {work}, `--no-index-files`",
            *("the same with index files, `--no-fsync`", rows_only, "times", 0.5),
        ),
        Ratio(
            f"CPU time of {work}, unchanged",
            *("4 times a listing, 2 times the imports", unchanged, "times", 1.0),
        ),
    ]


def lines(spent: dict[str, list[Spent]]) -> list[str]:
    """Return the table."""
    rows = ["| work | CPU seconds | seconds |", "|---|---:|---:|"]
    for name, rounds in spent.items():
        cpu_s, seconds = (statistics.median(column) for column in zip(*rounds, strict=True))
        rows.append(f"| {name} | {cpu_s:.2f} | {seconds:.2f} |")
    return rows


def notes(rounds: int) -> list[str]:
    """Return an explanation of the rows."""
    return [
        f"- {MANY.title}, local engine; medians of {rounds} rounds in turns after one that is not",
        "  counted, warm page cache. The ratios are medians of the rounds' ratios. *First* with",
        "  `--no-fsync` and *unchanged* are one process, CPU time of all threads; the other one is",
        "  two workers against one loop whose files are flushed by eight threads.",
        f"- *Listing* is `scandir` and `stat` of both trees, *imports* `{IMPORTS}`.",
    ]
