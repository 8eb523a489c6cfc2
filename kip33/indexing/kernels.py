"""`python -m kip33.indexing.kernels [FOLDER] [--target NAME]`: make the libraries of all kernels.

Makes one library for each kind of CPU in `formats.native.library.CPU_TARGETS`, or for those that
are named; `here` is this machine's. A library that is of the sources as they are is kept. Without
FOLDER they go into the package, where kip33 looks for them. numba (kip33[compile]) and a linker
are needed.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kip33.formats import walk
from kip33.formats.batch import BATCH
from kip33.formats.body_blocks import place_bodies
from kip33.formats.crc import with_crc32c
from kip33.formats.held_batches import ENTRY, fill_entries
from kip33.formats.native import library
from kip33.formats.native.library import CPU_TARGETS, Target
from kip33.formats.record_columns import (
    CURSOR,
    FIELD,
    RECORD_LIMITS,
    RECORD_TABLE,
    add_records,
)
from kip33.formats.records import FRONT, read_fronts
from kip33.rules import index_entries, index_truth, roll_replay, transactions
from kip33.rules.group_scan import SCANNED, scan_logs
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
    bodies = np.zeros(1, ENTRY)
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
        fill_entries: (data, 0, batches, bodies, 0),
        place_bodies: (data, bodies, 0, written, 0, 0, 0),
        add_records: (
            *(
                data,
                bodies,
                np.zeros(1, CURSOR),
                np.zeros(1, RECORD_LIMITS),
                np.zeros(1, RECORD_TABLE),
            ),
            *(np.zeros(4, FIELD), numbers, numbers, sizes, sizes),
            *((sizes, written, written) * 4),
        ),
        read_fronts: (data, 0, 0, np.zeros(1, FRONT)),
        scan_logs: (
            *(np.zeros(1, np.uint8), numbers, np.zeros(1, walk.STATE), entry_state),
            *(np.zeros(1, SUMMARY_RECORD), np.zeros(1, SCANNED), batches, pairs, pairs),
            *(np.zeros(256, np.uint8), written, written, written, numbers, True, None),
        ),
    }


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


def is_made(target: Target, folder: Path) -> bool:
    """Return whether a target's library is there, with all kernels, of the sources as they are."""
    try:
        description = json.loads((folder / f"{target.name}.json").read_text())
        library.require_whole((folder / f"{target.name}.so").read_bytes(), description)
        return set(description["kernels"]) == set(map(library.name_of, samples()))
    except (OSError, ValueError, TypeError, LookupError):
        return False


def make(target: Target, folder: Path) -> None:
    """Make one library; numba must not be imported yet."""
    from kip33.formats.native import maker

    maker.prepare(target)
    maker.make(target, samples(), folder)
    sys.stdout.write(f"{folder / target.name}.so\n")


def main() -> None:
    """Run the command."""
    names = {target.name: target for target in CPU_TARGETS}
    here = next((target for target in CPU_TARGETS if target.is_here), None)
    parser = argparse.ArgumentParser(description="Make the shared libraries of all kernels.")
    parser.add_argument("folder", metavar="FOLDER", nargs="?", type=Path, help="where to write")
    parser.add_argument(
        "--target", action="append", choices=[*names, "here"], help="one kind of CPU instead of all"
    )
    arguments = parser.parse_args()
    folder = arguments.folder or Path(library.__file__).with_name(library.FOLDER)
    chosen = [names.get(name, here) for name in arguments.target or names]
    if None in chosen:
        sys.exit("There is no library for this machine's CPU: numba compiles at the first use.")
    missing = [target for target in chosen if target and not is_made(target, folder)]
    if len(missing) == 1:
        try:
            make(missing[0], folder)
        except (ImportError, RuntimeError) as error:
            sys.exit(f"The library for {missing[0].name} was not made: {error}")
    for target in missing if len(missing) > 1 else ():  # numba compiles for one in a process
        command = [sys.executable, "-m", __spec__.name, str(folder), "--target", target.name]
        if code := subprocess.run(command, check=False).returncode:
            sys.exit(code)


if __name__ == "__main__":
    main()
