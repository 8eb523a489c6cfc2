"""Thousands of damaged logs through `read_arrow`, compared with `iterate_records`.

`python -m tests.builders.read_mutants SEED COUNT FOLDER` damages random logs of every format and
codec, and the segments of `index_mutants`, and prints the outcomes as JSON. It runs in its own
process, so that its memory can be measured.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import kip33
from kip33.formats import whole_bodies as decoded_records
from tests.builders.index_mutants import Base, bases, mutant, peak_bytes
from tests.builders.random_entries import TIME, random_log
from tests.records.test_differential import one_by_one, rows_of

MOST_BATCH_BYTES = 1 << 20  # after decompression
COLUMNS = ("offset", "timestamp", "key", "value", "headers", "topic", "timestampType")


def random_mutant(random: Random, segments: list[Base]) -> bytes:
    """Return a damaged log."""
    if random.random() < 0.3:
        return mutant(random, random.choice(segments))
    log = random_log(random, entries=random.choice((1, 3, 10)), damaged=random.choice((0, 0.5)))
    return mutant(random, Base("random", log, b"", b""))


def random_options(random: Random) -> dict[str, Any]:
    """Return options of `read_arrow` for another look at the same log."""
    options: dict[str, Any] = {
        "level": random.choice(("records", "records", "batches", "segments")),
        "isolation": random.choice(("read_uncommitted", "read_committed")),
        "include_control": random.random() < 0.5,
    }
    if options["level"] == "records" and random.random() < 0.7:
        options["columns"] = random.sample(COLUMNS, random.randint(1, len(COLUMNS)))
    if random.random() < 0.3:
        options["start_offset"] = random.choice((0, 5, 1005, 1 << 40))
    if random.random() < 0.3:
        options["end_time"] = TIME + random.randrange(-2000, 2000)
    return options


def run_one(random: Random, log: Path, data: bytes, outcomes: Counter[str]) -> list[str]:
    """Read a log twice; return what is wrong."""
    log.write_bytes(data)
    common: dict[str, Any] = {"max_batch_bytes": MOST_BATCH_BYTES}
    found = list(rows_of(kip33.read_arrow(log, include_control=True, **common)))
    expected = list(one_by_one(data, prefix=log.as_uri(), max_batch_bytes=MOST_BATCH_BYTES))
    for row in found:
        is_batch = len(row) == 1 and "batch at position" in row[0]
        outcomes["record" if len(row) > 1 else "unreadable batch" if is_batch else "end"] += 1
    faults = [] if found == expected else [f"{found} instead of {expected}"[:500]]
    options = random_options(random)
    try:
        for batch in kip33.read_arrow(log, **options, **common):
            batch.validate(full=True)
    except Exception as error:
        faults.append(f"{options}: {type(error).__name__}: {error}")
    return faults


def main(seed: str, count: int, folder: Path) -> None:
    decoded_records.PLAIN_BYTES = 0  # compiled code from the first byte on
    segments = bases()
    outcomes: Counter[str] = Counter()
    faults: list[str] = []
    before = 0
    for number in range(count):
        random = Random(f"{seed} {number}")
        data = random_mutant(random, segments)
        try:
            wrong = run_one(random, folder / f"{0:020d}.log", data, outcomes)
        except Exception as error:
            wrong = [f"{type(error).__name__}: {error}"]
        faults += [f"mutant {number}: {fault}"[:600] for fault in wrong]
        if number == count // 20:
            before = peak_bytes()  # everything is compiled and loaded
    growth = peak_bytes() - before
    print(json.dumps({"outcomes": outcomes, "faults": faults[:20], "growth_bytes": growth}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
