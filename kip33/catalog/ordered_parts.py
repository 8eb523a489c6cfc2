"""The parts of a draft in order: copied rows and those of a build's tasks become one sorted run.

Each part that is written has its rows in order. Parts that overlap are merged, and many small parts
become larger ones: each reader asks the store for each part. All others stay as they are.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import pyarrow as pa

from kip33.catalog.draft import ROWS_PER_GROUP, Draft, PartWriter
from kip33.catalog.segment_order import merged, place_of
from kip33.catalog.snapshot_parts import SnapshotPart
from kip33.stores.concurrently import map_in_order

ROWS_PER_PART: Final = 100_000
MOST_SMALL_PARTS: Final = 16


def parts_in_order(draft: Draft, parts: Iterable[SnapshotPart]) -> tuple[SnapshotPart, ...]:
    """Return the parts of a draft with the same rows, all in order.

    Raises CatalogError if a part was damaged meanwhile, PublishError if one cannot be written.
    """
    found: list[SnapshotPart] = []
    for together in _together(_sorted(parts)):
        found += (
            together if len(together) == 1 else write_parts(draft, merged_rows(draft, together))
        )
    return tuple(found)


def merged_rows(
    draft: Draft, parts: Iterable[SnapshotPart], columns: list[str] | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of parts of a draft in order; CatalogError if one was damaged meanwhile."""
    return merged([_rows_of(draft, run, columns) for run in _runs(_sorted(parts))])


def _sorted(parts: Iterable[SnapshotPart]) -> list[SnapshotPart]:
    return sorted((part for part in parts if part.rows), key=lambda part: place_of(part.first))


def _together(parts: Sequence[SnapshotPart]) -> Iterator[list[SnapshotPart]]:
    """Yield the parts, sorted by their first keys, in groups that become new parts together."""
    small = [part.rows < ROWS_PER_GROUP for part in parts]
    joins_small = sum(small) > MOST_SMALL_PARTS
    group: list[SnapshotPart] = []
    end, was_small = None, False
    for part, is_small in zip(parts, small, strict=True):
        overlaps = end is not None and place_of(part.first) <= end
        if group and not overlaps and not (joins_small and was_small and is_small):
            yield group
            group, end = [], None
        group.append(part)
        last = place_of(part.last)
        end, was_small = last if end is None else max(end, last), is_small
    if group:
        yield group


def _runs(parts: Sequence[SnapshotPart]) -> list[list[SnapshotPart]]:
    """Return parts, sorted by their first keys, as few runs of parts that follow one another."""
    runs: list[list[SnapshotPart]] = []
    for part in parts:
        first = place_of(part.first)
        run = next((run for run in runs if place_of(run[-1].last) < first), None)
        if run is None:
            runs.append([part])
        else:
            run.append(part)
    return runs


def _rows_of(
    draft: Draft, run: Sequence[SnapshotPart], columns: list[str] | None
) -> Iterator[pa.Table]:
    def tables_of(part: SnapshotPart) -> list[pa.Table]:
        return list(draft.catalog.read_parts(draft.staging, [part], columns))

    return chain.from_iterable(
        map_in_order(draft.staging, run, tables_of, held_bytes=lambda part: part.size_bytes)
    )


def write_parts(draft: Draft, tables: Iterable[pa.Table]) -> Iterator[SnapshotPart]:
    """Write rows, which are in order, into staging; yield parts of ROWS_PER_PART at most."""
    number, writer = 0, PartWriter(draft.staging, 0)
    for table in tables:
        while table.num_rows:
            some = table.slice(0, ROWS_PER_PART - writer.rows)
            table = table.slice(some.num_rows)
            writer.append_table(some)
            if writer.rows == ROWS_PER_PART:
                yield writer.publish()
                number += 1
                writer = PartWriter(draft.staging, number)
    if writer.rows:
        yield writer.publish()
