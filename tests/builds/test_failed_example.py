"""The example of index files that could not be written does not depend on bins or their order."""

from collections.abc import Iterator
from itertools import permutations
from typing import Any, cast

import pyarrow as pa

from kip33.builds.commit import row_totals
from kip33.catalog.catalog import Catalog, Snapshot

NUMBERS = ("size_bytes", "partition", "base_offset", "time_index_entries")
SIZES = (
    *("time_index_bytes", "offset_index_bytes"),
    *("transaction_index_bytes", "producer_snapshot_bytes"),
)
TEXTS = ("status", "index_file", "error", "log_uri", "log_dir", "topic")
SCHEMA = pa.schema(
    [(name, pa.int64()) for name in NUMBERS + SIZES] + [(name, pa.string()) for name in TEXTS]
)


def row(name: str, *, index_file: str | None) -> dict[str, Any]:
    return {
        "log_uri": f"file:///{name}.log",
        "index_file": index_file,
        "error": f"{name}.timeindex: cannot be written: disk full" if index_file is None else None,
        "time_index_entries": 1,
        "status": "ok",
        "log_dir": "",
        "topic": "orders",
        "partition": 0,
        "base_offset": 0,
    }


class Pieces:
    """A catalog as far as it is counted: row groups in an order."""

    def __init__(self, *pieces: list[dict[str, Any]]) -> None:
        self.pieces = pieces

    def read_pieces(self, snapshot: Snapshot, columns: list[str]) -> Iterator[pa.Table]:
        for piece in self.pieces:
            yield pa.Table.from_pylist(piece, SCHEMA)


def test_it_is_the_log_with_the_smallest_name() -> None:
    rows = [row("c", index_file=None), row("a", index_file="written"), row("b", index_file=None)]
    found = set()
    for one, *others in permutations(rows):
        for pieces in ([one, *others],), ([one], others), (others, [one]):
            counted = row_totals(cast("Catalog", Pieces(*pieces)), cast("Snapshot", None))
            found.add((counted["failed"], counted["failed_example"]))

    assert found == {(2, "b.timeindex: cannot be written: disk full")}
