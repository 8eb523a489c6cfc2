"""Children of one process that has loaded everything, each killed around one operation or not.

The program of such a process answers each line on standard input: a JSON array, such as
["before", 17], gives a child SIGKILL right before, or after, operation 17; an empty array: none.
The answer is the child's exit code.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from kip33.errors import Kip33Error

Operations = Sequence[tuple[Any, str]]  # functions, each as what has it and its name there


def answer_each_line(run: Callable[[], object], operations: Operations) -> None:
    """Run it in a child for each line, until the input ends."""
    print("ready", flush=True)
    while line := sys.stdin.readline():
        pid = os.fork()
        if not pid:
            if end := json.loads(line):
                die_at(*end, operations)
            try:
                run()
            except Kip33Error as error:
                print(error, file=sys.stderr, flush=True)
                os._exit(error.exit_code)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def die_at(when: str, number: int, operations: Operations) -> None:
    """End this process around one of its operations, those within others counted as well."""
    numbers = count()

    def around(operation: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **how: Any) -> Any:
            is_it = next(numbers) == number
            if is_it and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return operation(*arguments, **how)
            finally:
                if is_it:
                    os.kill(os.getpid(), signal.SIGKILL)

        return watched

    for owner, name in operations:
        setattr(owner, name, around(getattr(owner, name)))
