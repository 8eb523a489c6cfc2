"""Programs that answer each line on standard input with a line: started in the project, and asked.

Such a program says `ready` when it has loaded everything, and ends when its input ends.
"""

import subprocess
import sys

from tests.cli.console import PROJECT


def start(
    module: str, *arguments: object, through: tuple[object, ...] = ()
) -> "subprocess.Popen[str]":
    """Return a module that runs as a program and is ready; `through` is a command before it."""
    program = subprocess.Popen(
        [*map(str, through), sys.executable, "-m", module, *map(str, arguments)],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ask(program) == "ready"
    return program


def ask(program: "subprocess.Popen[str]", line: str = "") -> str:
    """Send a line, if one is given, and return the next one of the program's own."""
    assert program.stdin and program.stdout
    if line:
        program.stdin.write(line + "\n")
        program.stdin.flush()
    return program.stdout.readline().removesuffix("\n")
