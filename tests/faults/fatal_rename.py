"""A build that is killed at a rename: SOURCE INDEX_DIR before|after PATTERN, as a program.

By a rename everything that a reader may see comes to its place. The first one whose target matches
PATTERN ends the process with SIGKILL, right before it happens or right after.
"""

import os
import re
import signal
import sys
from typing import Any

from tests.faults import builds


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    when, pattern = sys.argv[3:5]

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename" and re.search(pattern, os.fsdecode(arguments[1])):
            die() if when == "before" else sys.setprofile(die)  # called when the rename returns

    sys.addaudithook(watch)
    builds.main()


if __name__ == "__main__":
    main()
