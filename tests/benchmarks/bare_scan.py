"""The kernel in bare processes: they read files, walk over them and verify every checksum.

This is the upper limit for a job: no listing, no rules, no index file, no catalog, no Spark. As a
program this module is such a process: it reads one JSON list of logs per line and prints the
seconds for each.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from kip33.formats.scan import BatchScan
from kip33.stores.files import scanned
from kip33.stores.locations import Location


class BareScans:
    """Processes that scan their shares of some logs concurrently, one per core."""

    def __init__(self, processes: int) -> None:
        self._stack = ExitStack()
        command = [sys.executable, "-m", __name__]
        self._processes = [
            self._stack.enter_context(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
                )
            )
            for _ in range(processes)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.stdin.close()
        self._stack.close()

    def scan(self, logs: Sequence[Path]) -> float:
        """Return the seconds until every log is scanned."""
        begin = time.perf_counter()
        for number, process in enumerate(self._processes):
            share = [str(log) for log in logs[number :: len(self._processes)]]
            process.stdin.write(json.dumps(share) + "\n")
        for process in self._processes:
            if "done" not in process.stdout.readline():
                raise ValueError("a bare scan ended")
        return time.perf_counter() - begin


def scan(logs: Sequence[str]) -> None:
    """Scan each log; raise if one is not valid to its last byte."""
    for log in logs:
        with scanned(Location.of(log)) as (read_into, size_bytes, _):
            walked = BatchScan(read_into, size_bytes, native=True)
            for _rows in walked:
                pass
            if walked.valid_bytes != size_bytes:
                raise ValueError(f"{log}: {walked.damage}")


def main() -> None:
    for line in sys.stdin:
        scan(json.loads(line))
        print("done", flush=True)


if __name__ == "__main__":
    main()
