"""Removals of leftovers in children of one process that has loaded everything.

As a program it takes CATALOG and PLAN. Each line on standard input is a JSON array, such as
["before", 3]: the child gets SIGKILL right before, or after, removal 3; an empty array: none.
The answer is the child's exit code.
"""

import json
import os
import sys

from kip33.builds import leftover_removal
from kip33.builds.leftover_plan_file import read_leftover_plan
from kip33.catalog.catalog import Catalog
from kip33.stores.locations import Location
from tests.faults.forked_applies import die_at

OPERATIONS = ((leftover_removal, "remove"), (leftover_removal, "remove_empty_folder"))


def main() -> None:
    catalog, plan = Catalog.at(sys.argv[1]), read_leftover_plan(Location.of(sys.argv[2]))
    leftover_removal.remove_leftovers(catalog, plan, dry_run=True)  # loads what it needs
    print("ready", flush=True)
    while line := sys.stdin.readline():
        pid = os.fork()
        if not pid:
            if end := json.loads(line):
                die_at(*end, OPERATIONS)
            leftover_removal.remove_leftovers(catalog, plan)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
