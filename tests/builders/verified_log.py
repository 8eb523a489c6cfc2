"""Everything that verifying a log finds, by the plain functions and by the kernels.

As a program it does so for each line on standard input (see `VerifiedLog.as_line`), prints both as
texts, and last the machine. It imports kip33 alone: it runs where the tests' packages are not.
"""

import json
import platform
import sys
from pathlib import Path
from typing import Any, NamedTuple

from kip33.formats import native
from kip33.indexing.verification import verify_file
from kip33.rules.index_builder import IndexSettings
from kip33.stores.locations import Location


class VerifiedLog(NamedTuple):
    """A log with its index files beside it, and how it is verified."""

    path: Path
    base_offset: int
    index_interval_bytes: int
    segment_index_bytes: int = 10 << 20

    def as_line(self) -> str:
        """Return the line that the program takes."""
        return json.dumps([str(self.path), *self[1:]])


def everything_about(log: VerifiedLog, *, compiled: bool) -> tuple[Any, ...]:
    """Return the bytes of both indexes, what the rules saw, and the verdicts."""
    verdict, built = verify_file(
        Location.of(log.path),
        Location.of(log.path.with_suffix(".timeindex")),
        Location.of(log.path.with_suffix(".index")),
        base_offset=log.base_offset,
        topic="orders",
        settings=IndexSettings(
            index_interval_bytes=log.index_interval_bytes,
            segment_index_bytes=log.segment_index_bytes,
        ),
        native=compiled,
    )
    transactions = built.transactions.to_json() if built.transactions else None
    bytes_of_both = (built.time_index_data, built.offset_index_data)
    seen = (built.status, built.error, built.valid_bytes, built.summary.tolist(), built.magics)
    return (*bytes_of_both, *seen, transactions, verdict)


def main() -> None:
    """Print a list of two texts for each log, then machine, kernels and compilers imported."""
    for line in sys.stdin:
        path, *settings = json.loads(line)
        log = VerifiedLog(Path(path), *settings)
        print(json.dumps([repr(everything_about(log, compiled=form)) for form in (False, True)]))
    imported = sorted({"numba", "llvmlite"} & {*sys.modules})
    print(json.dumps([platform.machine(), native.how(), *imported]))


if __name__ == "__main__":
    main()
