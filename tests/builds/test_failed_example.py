"""The example of index files that could not be written does not depend on bins or their order."""

from collections.abc import Iterator
from itertools import permutations
from typing import Any, cast

import pyarrow as pa

from kip33.builds.commit import row_totals
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.schema import SEGMENTS
from tests.builders.snapshots import row


class Pieces:
    """A catalog as far as it is counted: row groups in an order."""

    def __init__(self, *pieces: list[dict[str, Any]]) -> None:
        self.pieces = pieces

    def read_pieces(self, snapshot: Snapshot, columns: list[str]) -> Iterator[pa.Table]:
        for piece in self.pieces:
            yield pa.Table.from_pylist(piece, SEGMENTS).select(columns)


def test_it_is_the_log_with_the_smallest_name() -> None:
    failed = [
        row(number, index_file=None, index_error=f"{number}.index: cannot be written: disk full")
        for number in (3, 2)
    ]
    found = set()
    for one, *others in permutations([*failed, row(1)]):
        for pieces in ([one, *others],), ([one], others), (others, [one]):
            counted = row_totals(cast("Catalog", Pieces(*pieces)), cast("Snapshot", None))
            found.add((counted["failed"], counted["failed_example"]))

    assert found == {(2, "2.index: cannot be written: disk full")}
