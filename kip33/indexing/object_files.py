"""`python -m kip33.indexing.object_files [FOLDER]`: compile all kernels for other machines.

Writes one file for each kind of CPU in `formats.native.object_code.CPU_TARGETS`. This machine's own
CPU does not matter. Without FOLDER they go into the package, where kip33 looks for them.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kip33.formats import walk
from kip33.formats.batch import BATCH
from kip33.formats.crc import with_crc32c
from kip33.formats.held_batches import ENTRY, fill_entries
from kip33.formats.native import object_compiler
from kip33.formats.native.object_code import CPU_TARGETS, Target
from kip33.formats.native.object_kernels import FOLDER, NUMBA_SETTINGS
from kip33.formats.record_columns import (
    CURSOR,
    HEADER,
    HEADER_PLACE,
    RECORD_LIMITS,
    add_fields,
    add_records,
    find_headers,
)
from kip33.formats.records import FRONT, RECORD, read_fronts
from kip33.rules import index_entries, index_truth, roll_replay, transactions
from kip33.rules.leader_epochs import refused_epoch
from kip33.rules.segment_summary import SUMMARY_RECORD, summarize


def samples() -> dict[Callable[..., Any], tuple[Any, ...]]:
    """Return each function that kip33 calls compiled, with sample arguments of the right types."""
    data = _read_only(np.zeros(1, np.uint8))
    batches = np.zeros(2, BATCH)
    numbers, pairs = np.zeros(1, np.int64), np.zeros((1, 2), np.int64)
    entries = _read_only(np.zeros(1, np.int64))
    table = transactions.new_table()
    aborts = np.zeros((1, transactions.ABORT_COLUMNS), np.int64)
    of_transactions = np.zeros(1, transactions.TRANSACTION_STATE)
    entry_state = np.zeros(1, index_entries.ENTRY_STATE)
    stairs, gaps = np.zeros(1, index_truth.STAIR), np.zeros(1, index_truth.GAPS)
    places, lasts = np.zeros(1, index_truth.PLACE), np.zeros(1, index_truth.LAST)
    column = _read_only(batches["last_offset"])
    bodies, records = np.zeros(1, ENTRY), np.zeros(1, RECORD)
    sizes, written = np.zeros(1, np.int32), np.zeros(1, np.uint8)
    return {
        walk.walk: (data, 0, 0, np.zeros(1, walk.STATE), batches, True, True, None),
        with_crc32c: (0, data, None),
        index_entries.append_batches: (batches, column, entry_state, pairs, pairs),
        index_entries.close_index: (entry_state, 0, pairs),
        transactions.append_batches: (
            *(batches, 0, of_transactions, table, table, numbers, table, aborts),
        ),
        transactions.put_all: (table, table),
        refused_epoch: (batches, 0),
        roll_replay.replay_batches: (
            *(batches, 0, np.zeros(1, roll_replay.REPLAY_STATE)),
            np.zeros(1, roll_replay.REPLAYED_SEGMENT),
        ),
        summarize: (batches, np.zeros(1, SUMMARY_RECORD), np.zeros(256, np.uint8)),
        index_truth.watch_stairs: (batches, np.zeros(1, index_truth.WATCH), stairs),
        index_truth.watch_places: (batches, numbers, places, lasts),
        index_truth.watch_offset_gaps: (batches, gaps, entries, entries),
        index_truth.watch_time_gaps: (batches, gaps, stairs),
        fill_entries: (data, 0, batches, bodies),
        add_records: (data, bodies, np.zeros(1, CURSOR), np.zeros(1, RECORD_LIMITS), records),
        read_fronts: (data, 0, 0, np.zeros(1, FRONT)),
        add_fields: (
            *(data, _read_only(np.zeros((1, 7), np.int64)), 0),
            *(_read_only(np.zeros((1, 14), np.int32)), 0, sizes, written, written),
        ),
        find_headers: (data, records, np.zeros(1, HEADER_PLACE), np.zeros(1, HEADER)),
    }


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


def make(target: Target, folder: Path) -> Path:
    """Compile for one kind of CPU and return the file; numba must not be imported yet."""
    object_compiler.prepare(target)
    code = object_compiler.compile_objects(target, samples())
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / target.file_name
    path.write_bytes(code.to_bytes())
    return path


def make_all(folder: Path) -> None:
    """Compile for every kind of CPU, each in a new process that prints the file it wrote.

    Raises subprocess.CalledProcessError if one fails; the reason is on standard error.
    """
    environment = {name: text for name, text in os.environ.items() if name not in NUMBA_SETTINGS}
    for target in CPU_TARGETS:
        command = [sys.executable, "-m", __spec__.name, str(folder), "--target", target.name]
        subprocess.run(command, env=environment, check=True)


def main() -> None:
    """Run the command."""
    names = {target.name: target for target in CPU_TARGETS}
    parser = argparse.ArgumentParser(description="Compile all kernels for other machines.")
    parser.add_argument("folder", metavar="FOLDER", nargs="?", type=Path, help="where to write")
    parser.add_argument("--target", choices=names, help="one kind of CPU instead of all")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(str(resources.files(object_compiler.__package__) / FOLDER))
    if arguments.target is None:
        make_all(folder)
    else:
        path = make(names[arguments.target], folder)
        sys.stdout.write(f"{path}: {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
