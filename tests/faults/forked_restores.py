"""Restores in the children of `tests.faults.killed_children`: SOURCE LOG_DIR, as a program.

An operation changes a directory or waits for the disk.
"""

import os
import sys

from kip33.local.local_engine import LocalEngine
from kip33.restore import restore_apply, restore_bins, restore_complete
from kip33.restore import segment_copy as staged_files
from kip33.restore.restore_plan import plan_restore
from kip33.restore.restore_request import RestoreRequest
from kip33.rules.index_builder import IndexSettings, TopicSettings
from kip33.stores import own_files
from kip33.stores.locations import Location
from kip33.stores.own_files import set_flushing
from tests.builders.partition_copies import INTERVAL_BYTES
from tests.faults.killed_children import answer_each_line

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
    answer_each_line(lambda: restore_apply.restore(asked, LocalEngine()), OPERATIONS)


if __name__ == "__main__":
    main()
