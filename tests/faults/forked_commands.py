"""Commands in children of one process that has loaded everything: a test that runs dozens of them.

A child is a process of its own, with its exit code and its streams, as a program that was started
would be; what it saves is a second of imports and of kernels to load. As a program this answers
every line on standard input, a JSON array of the program's name and its arguments, with one: exit
code, standard output, standard error.
"""

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Final, Self

from tests.cli.console import Finished
from tests.faults import applies, console
from tests.faults.builds import build_here
from tests.faults.line_programs import ask, start
from tests.faults.nights import first_day

PROGRAMS: Final[dict[str, Callable[[], object]]] = {
    "applies": applies.main,
    "console": console.main,
}


class ForkedCommands:
    """The process whose children run the programs of PROGRAMS."""

    def __init__(self, *prefix: object) -> None:
        """Start it through another program: one that takes privileges away, or enters a disk."""
        self._process = start("tests.faults.forked_commands", through=prefix)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, program: str, *arguments: object) -> Finished:
        """Run a program to its end."""
        line = json.dumps([program, *map(str, arguments)])
        return Finished(*json.loads(ask(self._process, line)))


def run(program: str, arguments: Sequence[str]) -> int:
    """Run a program in this process; return its exit code."""
    sys.argv = [program, *arguments]
    try:
        PROGRAMS[program]()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def fork(program: str, arguments: Sequence[str]) -> list[Any]:
    """Run a program in a child; return its exit code and what it printed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if not pid:
            with Path(os.devnull).open("rb") as nothing:
                for ours, theirs in enumerate((nothing, out, err)):
                    os.dup2(theirs.fileno(), ours)
            code = run(program, arguments)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(pid, 0)
        return [os.waitstatus_to_exitcode(status), written(out), written(err)]


def written(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:  # loads the kernels
        first_day(Path(folder) / "archive", 1)
        build_here(Path(folder) / "archive", Path(folder) / "indexes", offset_index=True)
    print("ready", flush=True)
    while line := sys.stdin.readline():
        program, *arguments = json.loads(line)
        print(json.dumps(fork(program, arguments)), flush=True)


if __name__ == "__main__":
    main()
