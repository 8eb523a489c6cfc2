"""Applies in children of one process that has loaded everything: PLAN TRASH, as a program.

As `tests.faults.forked_builds`, but that the line which begins a child is a JSON object:

    {"trash": true}                      move instead
    {"other_disk": true}                 the trash is on another disk: renames do not go there
    {"threads": 4}                       partitions side by side
    {"die": ["before", 17]}              SIGKILL right before, or after, operation 17

An operation is what changes a directory: a file published, moved, copied or deleted. A child that
came to its end with a partition stopped ends with 1. What is told of its end is a JSON array: its
exit code, and why partitions stopped or the plan was refused.
"""

import json
import os
import shutil
import sys
from typing import Any

from kip33.errors import Kip33Error
from kip33.retention import apply_segment as trash
from kip33.retention.apply_segment import Journal, SegmentStep
from tests.builders.expiring_archive import only_within_a_directory
from tests.faults.applies import apply_here
from tests.faults.killed_children import die_at

OPERATIONS = (
    (Journal, "put"),
    (SegmentStep, "_remove"),
    (trash, "_copy"),
    (shutil, "copy2"),
    (os, "replace"),
    (os, "rename"),
)


def apply(plan_file: str, trash_folder: str, asked: dict[str, Any]) -> str:
    """Apply as asked; return why it did not do all, "" if it did."""
    if asked.get("other_disk"):
        os.rename = only_within_a_directory(os.rename)  # type: ignore[assignment]
    if asked.get("die"):
        die_at(*asked["die"], OPERATIONS)
    place = trash_folder if asked.get("trash") else None
    try:
        applied = apply_here(plan_file, place, threads=asked.get("threads", 1))
    except Kip33Error as error:
        return str(error)
    return "; ".join(one.why for one in applied.partitions if one.why)


def main() -> None:
    plan_file, trash_folder = sys.argv[1:3]
    apply_here(plan_file, dry_run=True)  # loads what an apply needs
    print("ready", flush=True)
    while line := sys.stdin.readline():
        from_child, to_parent = os.pipe()
        pid = os.fork()
        if not pid:
            why = apply(plan_file, trash_folder, json.loads(line))
            os.write(to_parent, why.encode())
            os._exit(1 if why else 0)
        os.close(to_parent)
        print(pid, flush=True)
        sys.stdin.readline()
        with os.fdopen(from_child) as said:
            why = said.read()
        _, status = os.waitpid(pid, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), why]), flush=True)


if __name__ == "__main__":
    main()
