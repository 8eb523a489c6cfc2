"""The memory of processes, measured from outside: a driver, its JVM and its workers."""

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc")
SAMPLE_SECONDS: Final = 0.05
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Peak(NamedTuple):
    """Largest resident bytes of each, and of driver and JVM together at one time."""

    python: int = 0
    jvm: int = 0
    driver: int = 0  # Python and JVM together
    workers: int = 0  # shared pages count in each process

    def with_sample(self, python: int, jvm: int, workers: int) -> "Peak":
        seen = Peak(python, jvm, python + jvm, workers)
        return Peak(*map(max, self, seen))


class Measured(NamedTuple):
    """A child's peak memory, what it printed, and how long it took."""

    peak: Peak
    output: str
    seconds: float


def run_measured(command: Sequence[str], *, quiet: bool = False) -> Measured:
    """Run a driver to its end while its JVM and workers are watched.

    `quiet` drops what it prints on standard error.
    """
    begin = time.perf_counter()
    errors = subprocess.DEVNULL if quiet else None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as child:
        watch = _Watch(child.pid)
        output, _ = child.communicate()
        peak = watch.end()
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command, output)
    return Measured(peak, output, time.perf_counter() - begin)


class _Watch:
    """A thread that measures a process and its children every 50 ms."""

    def __init__(self, driver: int) -> None:
        self._driver = driver
        self._peak = Peak()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def end(self) -> Peak:
        self._ended.set()
        self._thread.join()
        return self._peak

    def _look(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            machines = [p for p in children(self._driver) if program_of(p) == "java"]
            workers = [p for machine in machines for p in descendants(machine)]
            self._peak = self._peak.with_sample(
                resident_bytes(self._driver),
                sum(map(resident_bytes, machines)),
                # A child of the JVM shares all its pages until it executes another program.
                sum(resident_bytes(p) for p in workers if program_of(p).startswith("python")),
            )


def children(process: int) -> Iterator[int]:
    """Yield the running processes that one started."""
    for file in (PROC / str(process) / "task").glob("*/children"):
        try:
            yield from map(int, file.read_text().split())
        except OSError:
            continue


def descendants(process: int) -> Iterator[int]:
    """Yield the processes below one."""
    for child in children(process):
        yield child
        yield from descendants(child)


def program_of(process: int) -> str:
    """Return the name of the program that a process runs, empty if the process has ended."""
    try:
        return (PROC / str(process) / "exe").readlink().name
    except OSError:
        return ""


def resident_bytes(process: int) -> int:
    """Return the bytes that a process has in memory now, 0 if it has ended."""
    try:
        return int((PROC / str(process) / "statm").read_text().split()[1]) * PAGE_BYTES
    except OSError:
        return 0
