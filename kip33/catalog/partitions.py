"""The partitions of a snapshot, some at a time: memory does not grow with the catalog.

The rows of a snapshot are in order, so the rows of a partition in one log directory follow each
other. A table has whole partitions.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.catalog_columns import matching
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.segment_order import PARTITION, place_of, rows_up_to, values_at
from kip33.catalog.snapshot_parts import SnapshotPart
from kip33.stores.locations import Location

TABLE_ROWS: Final = 100_000  # at least, but for the last table
_NAMES: Final = ["log_dir", "topic", "topic_id"]


def partitions(
    catalog: Catalog, snapshot: Snapshot, columns: Sequence[str], topics: Sequence[str] = ()
) -> Iterator[pa.Table]:
    """Yield the rows whose topics match the globs, in order, in tables of whole partitions.

    The columns include PARTITION. There is one table at least. CatalogError if a part is damaged.
    """
    pieces = (matching(piece, topics) for piece in catalog.read_pieces(snapshot, [*columns]))
    none = SEGMENTS.empty_table().select([*columns])
    tables = whole_partitions(pieces)
    return chain([next(tables, none)], tables)


def partitions_of_parts(
    folder: Location,
    parts: Sequence[SnapshotPart],
    begun: range,
    columns: Sequence[str],
    topics: Sequence[str],
) -> Iterator[pa.Table]:
    """Yield the partitions that begin in some of the parts of a snapshot, as `partitions` does.

    What goes on from the part before is left out, and what goes on in later parts is read.
    """
    catalog, last = Catalog(folder), place_of(parts[begun.stop - 1].last[:3])
    before = place_of(parts[begun.start - 1].last[:3]) if begun.start else ()

    def pieces() -> Iterator[pa.Table]:
        for piece in catalog.read_parts(folder, parts[begun.start : begun.stop], [*columns]):
            yield piece.slice(rows_up_to(piece, before) if before else 0)
        for part in parts[begun.stop :]:
            if last == before or place_of(part.first[:3]) != last:
                return
            for piece in catalog.read_parts(folder, [part], [*columns]):
                yield piece.slice(0, rows_up_to(piece, last))

    return whole_partitions(matching(piece, topics) for piece in pieces())


def whole_partitions(pieces: Iterable[pa.Table], least: int | None = None) -> Iterator[pa.Table]:
    """Yield rows, which are in order, in tables that do not divide a partition.

    Tables have at least `least` rows, TABLE_ROWS without it, but for the last one.
    """
    held: list[pa.Table] = []
    least = TABLE_ROWS if least is None else least
    rows = 0
    for piece in pieces:
        if not piece.num_rows:
            continue
        held.append(piece)
        rows += piece.num_rows
        if rows >= least:
            together = pa.concat_tables(held)
            last = place_of(values_at(together, rows - 1, PARTITION))
            end = rows_up_to(together, last, before=True)
            if end:
                yield together.slice(0, end)
            held = [together.slice(end)]
            rows -= end
    if rows:
        yield pa.concat_tables(held)


def names_in(catalog: Catalog, snapshot: Snapshot) -> pa.Table:
    """Return the different log directories, topics and topic ids of a snapshot's rows."""
    none = SEGMENTS.empty_table().select(_NAMES)
    pieces = (
        piece.group_by(_NAMES).aggregate([]) for piece in catalog.read_pieces(snapshot, _NAMES)
    )
    return pa.concat_tables([none, *pieces]).group_by(_NAMES).aggregate([])


def topics_with_several_ids(names: pa.Table) -> frozenset[str]:
    """Return the topics of which some rows have one topic id, and others have another."""
    known = names.filter(pc.and_(pc.is_valid(names["topic"]), pc.is_valid(names["topic_id"])))
    pairs = known.group_by(["topic", "topic_id"]).aggregate([])
    ids = pairs.group_by("topic").aggregate([([], "count_all")])
    found: list[Any] = ids.filter(pc.greater(ids["count_all"], 1))["topic"].to_pylist()
    return frozenset(found)
