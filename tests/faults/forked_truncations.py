"""Truncations in the children of `tests.faults.killed_children`: DIRECTORY OFFSET, as a program.

An operation changes a directory or waits for the disk.
"""

import os
import sys

from kip33.restore import truncate_apply
from kip33.restore import truncate_apply as truncate_journal
from kip33.restore.truncate_planner import plan_truncation
from kip33.stores import own_files
from kip33.stores.locations import Location
from kip33.stores.own_files import set_flushing
from tests.faults.killed_children import answer_each_line

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
    answer_each_line(lambda: truncate_apply.truncate(directory, offset), OPERATIONS)


if __name__ == "__main__":
    main()
