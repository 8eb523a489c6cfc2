"""What runs below a Spark build, found through /proc: executors, Python workers, what is left."""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
PYTHON_DAEMON = "pyspark.daemon"
GONE = "ZX"  # states of what has ended, whether or not its parent has asked for its exit code


class Process(NamedTuple):
    """A process that has not ended."""

    pid: int
    parent: int
    session: int
    command: str

    def signal(self, number: int) -> bool:
        """Send a signal; return whether the process was still there."""
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def running() -> dict[int, Process]:
    """Return every process on this machine that has not ended, by its pid."""
    return {
        process.pid: process
        for folder in Path("/proc").iterdir()
        if folder.name.isdecimal() and (process := _process(folder))
    }


def _process(folder: Path) -> Process | None:
    try:
        state, parent, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:  # it ended meanwhile
        return None
    if state in GONE:
        return None
    return Process(int(folder.name), int(parent), int(session), command)


def of_session(session: int) -> list[Process]:
    """Return what runs in a session: what its leader started, orphans and other groups too."""
    return [process for process in running().values() if process.session == session]


def executors(processes: Iterable[Process]) -> list[Process]:
    """Return the executors' JVMs."""
    return [process for process in processes if EXECUTOR in process.command]


def python_workers(processes: Iterable[Process]) -> list[Process]:
    """Return the Python workers that run tasks, not the daemons that fork them."""
    by_pid = {process.pid: process for process in processes if PYTHON_DAEMON in process.command}
    return [process for process in by_pid.values() if process.parent in by_pid]


def ancestors(process: Process) -> list[Process]:
    """Return a process's parent, its parent and so on, as far as they run."""
    now, line = running(), []
    while (parent := now.get(process.parent)) and parent.pid > 1:
        line.append(parent)
        process = parent
    return line


def wait_until(said: str, happened: Callable[[], object], *, seconds: float = 900) -> float:
    """Wait until something is true; return after how many seconds, fail after too many."""
    begin = time.monotonic()
    while not happened():
        assert time.monotonic() < begin + seconds, f"not within {seconds} s: {said}"
        time.sleep(0.005)
    return time.monotonic() - begin
