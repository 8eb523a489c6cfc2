"""Running the `kip33` command, and what it leaves behind."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

VENV_BIN = Path(sys.executable).parent
KIP33 = str(VENV_BIN / "kip33")
PROJECT = Path(__file__).parents[2]


class Finished(NamedTuple):
    """What a command left behind."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Return standard output as one JSON object a line."""
        return [json.loads(line) for line in self.stdout.splitlines()]


Command = Callable[..., Finished]

# What a slow machine adds: a line of progress each minute, a worker that has to wait for its turn.
_OF_A_SLOW_MACHINE = re.compile(
    r"^(?:20\d\d-\d\d-\d\dT[\d:]{8}Z [a-z ]+: "
    r"|Warning: .*worker process \d+ has done nothing ).*\n",
    re.MULTILINE,
)


def of_any_machine(stderr: str) -> str:
    """Return standard error without lines that only a slow machine prints."""
    return _OF_A_SLOW_MACHINE.sub("", stderr)


def subprocess_of(*arguments: Any, cwd: Path, **environment: str) -> Finished:
    """Run a program to its end, the venv's programs first in PATH."""
    done = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=cwd,
        env=os.environ | {"PATH": f"{VENV_BIN}:{os.environ['PATH']}"} | environment,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    return Finished(done.returncode, done.stdout, of_any_machine(done.stderr))


def result_in(done: Finished) -> dict[str, Any]:
    """Return the summary that `--result-line` prints; spark-submit has one stream for a job."""
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    [line] = [line for line in lines if line.startswith("KIP33_RESULT ")]
    found: dict[str, Any] = json.loads(line.removeprefix("KIP33_RESULT "))
    return found


def facts_in(printed: str) -> dict[str, str]:
    """Return the rows of a printed table of two columns."""
    rows = [line.split("│")[1:-1] for line in printed.splitlines() if line.count("│") == 3]
    return {name.strip(): value.strip() for name, value in rows}


def file_named(name: str, data: bytes) -> str:
    """Write a file and return its name."""
    Path(name).write_bytes(data)
    return name


def directory_named(name: str) -> str:
    """Make a directory and return its name."""
    Path(name).mkdir(parents=True)
    return name
