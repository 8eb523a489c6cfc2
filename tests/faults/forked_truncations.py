"""Truncations in children of one process that has loaded everything.

As a program it takes DIRECTORY and OFFSET. Each line on standard input is a JSON array, such as
["before", 17]: the child gets SIGKILL right before, or after, operation 17; an empty array: none.
The answer is the child's exit code. An operation changes a directory or waits for the disk.
"""

import json
import os
import sys

from kip33.errors import Kip33Error
from kip33.restore import truncate_apply, truncate_journal
from kip33.restore.truncate_planner import plan_truncation
from kip33.stores import own_files
from kip33.stores.durable_files import set_flushing
from kip33.stores.locations import Location
from tests.faults.forked_applies import die_at

OPERATIONS = (
    (os, "truncate"),
    (os, "replace"),
    (own_files, "write_new"),
    (own_files, "flush"),
    (own_files, "remove"),  # of temporary files
    (truncate_apply, "remove"),
    (truncate_apply, "flush"),
    (truncate_journal, "remove"),
    (truncate_journal, "flush"),
)


def main() -> None:
    directory, offset = Location.of(sys.argv[1]), int(sys.argv[2])
    set_flushing(False)  # what a process has written survives it
    plan_truncation(directory, offset)  # loads what a truncation needs
    print("ready", flush=True)
    while line := sys.stdin.readline():
        pid = os.fork()
        if not pid:
            if end := json.loads(line):
                die_at(*end, OPERATIONS)
            try:
                truncate_apply.truncate(directory, offset)
            except Kip33Error as error:
                print(error, file=sys.stderr, flush=True)
                os._exit(error.exit_code)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
