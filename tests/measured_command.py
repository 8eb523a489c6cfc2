"""What a kip33 command takes of memory: the peak of a process that runs nothing else.

`python -m tests.measured_command FILE ARGUMENT...` runs `kip33 ARGUMENT...`, or after `-c` a line
of Python, and leaves the peak of its resident bytes in FILE.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.worker_memory import peak_resident_bytes


class Measured(NamedTuple):
    """What a command wrote, how it ended, and what it took."""

    exit_code: int
    output: str
    error: str
    peak_bytes: int
    seconds: float


def measured(*arguments: str) -> Measured:
    """Run a command in a fresh process."""
    with tempfile.TemporaryDirectory(prefix="kip33-peak-") as folder:
        file = Path(folder, "peak")
        command = [sys.executable, "-m", __name__, str(file), *arguments]
        begin = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - begin
        peak = int(file.read_text()) if file.exists() else 0
        return Measured(done.returncode, done.stdout, done.stderr, peak, seconds)


def main() -> None:
    from kip33.cli.main import main as kip33

    file, sys.argv[1:] = Path(sys.argv[1]), sys.argv[2:]
    try:
        if sys.argv[1] == "-c":
            exec(sys.argv[2], {})
        else:
            kip33()
    finally:
        file.write_text(str(peak_resident_bytes()))


if __name__ == "__main__":
    main()
