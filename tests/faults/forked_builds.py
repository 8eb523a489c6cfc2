"""Builds in children of one process that has loaded everything: SOURCE INDEX_DIR, as a program.

A child spends its time on the build alone, and so do the kills. After `ready` every line on
standard input is answered: the first by the pid of a child that builds from now on, the next, when
the child has ended, by how it ended, and so forth. A pid stays the child's until that answer.
"""

import os
import sys
import tempfile
from pathlib import Path

from tests.faults.builds import build_here


def main() -> None:
    source, index_dir = map(Path, sys.argv[1:3])
    with tempfile.TemporaryDirectory() as elsewhere:  # loads the kernels
        build_here(source, Path(elsewhere), offset_index=True)
    print("ready", flush=True)
    while sys.stdin.readline():
        pid = os.fork()
        if not pid:
            build_here(source, index_dir, offset_index=True)
            os._exit(0)
        print(pid, flush=True)
        sys.stdin.readline()
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
