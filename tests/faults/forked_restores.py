"""Restores in children of one process that has loaded everything.

As a program it takes SOURCE and LOG_DIR. Each line on standard input is a JSON array, such as
["before", 17]: the child gets SIGKILL right before, or after, operation 17; an empty array: none.
The answer is the child's exit code. An operation changes a directory or waits for the disk.
"""

import json
import os
import sys

from kip33.errors import Kip33Error
from kip33.local.local_engine import LocalEngine
from kip33.restore import restore_apply, restore_bins, restore_complete, staged_files
from kip33.restore.restore_plan import plan_restore
from kip33.restore.restore_request import RestoreRequest
from kip33.rules.index_builder import IndexSettings, TopicSettings
from kip33.stores import own_files
from kip33.stores.durable_files import set_flushing
from kip33.stores.locations import Location
from tests.builders.partition_copies import INTERVAL_BYTES
from tests.faults.forked_applies import die_at

OPERATIONS = (
    *((os, name) for name in ("copy_file_range", "link", "mkdir", "pwrite", "rename", "replace")),
    *((os, name) for name in ("rmdir", "unlink")),
    *((module, "write_new") for module in (own_files, restore_apply, restore_bins, staged_files)),
    *((module, "remove") for module in (own_files, restore_apply, restore_bins, restore_complete)),
    *((module, "flush") for module in (own_files, restore_complete)),
    *((module, "flush_filesystems") for module in (restore_apply, restore_bins)),
)


def request(source: str, log_dir: str, *, is_linked: bool = False) -> RestoreRequest:
    return RestoreRequest(
        source=Location.of(source),
        log_dir=Location.of(log_dir),
        settings=TopicSettings(IndexSettings("recover", INTERVAL_BYTES)),
        is_linked=is_linked,
    )


def main() -> None:
    asked = request(*sys.argv[1:3])
    set_flushing(False)  # what a process has written survives it
    plan_restore(asked)  # loads what a restore needs
    print("ready", flush=True)
    while line := sys.stdin.readline():
        pid = os.fork()
        if not pid:
            if end := json.loads(line):
                die_at(*end, OPERATIONS)
            try:
                restore_apply.restore(asked, LocalEngine())
            except Kip33Error as error:
                print(error, file=sys.stderr, flush=True)
                os._exit(error.exit_code)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
