"""The rows of a snapshot, a range of partitions at a time: memory does not grow with the catalog.

A snapshot's rows are in no order. So its partitions are counted first; then each row goes to the
range of its partition: to a temporary file without a name, or on Spark through a shuffle.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.catalog_columns import matching
from kip33.catalog.schema import SEGMENTS
from kip33.rules.retention import Int64s

RANGE_ROWS: Final = 100_000  # a partition with more is a range of its own
MOST_RANGES: Final = 200  # each has an open file
BY_REPLICA: Final = ("log_dir", "topic", "partition")
BY_PARTITION: Final = ("topic", "partition")  # with all its replicas
_COUNTED: Final = [*BY_REPLICA, "topic_id"]
_ROWS: Final = "count_all"


def count_rows(catalog: Catalog, snapshot: Snapshot) -> pa.Table:
    """Return the number of rows by log directory, topic, partition and topic id."""
    count: Any = [([], _ROWS)]
    pieces = [
        piece.group_by(_COUNTED).aggregate(count)
        for piece in catalog.read_pieces(snapshot, _COUNTED)
    ]
    none = SEGMENTS.empty_table().select(_COUNTED).append_column(_ROWS, pa.array([], pa.int64()))
    every = pa.concat_tables(pieces or [none])
    counts = every.group_by(_COUNTED).aggregate([(_ROWS, "sum")])
    return counts.select([*_COUNTED, f"{_ROWS}_sum"]).rename_columns([*_COUNTED, _ROWS])


def reborn_topics(rows: pa.Table) -> frozenset[str]:
    """Return the topics of which some rows have one topic id, and others have another."""
    known = rows.filter(pc.and_(pc.is_valid(rows["topic"]), pc.is_valid(rows["topic_id"])))
    pairs = known.group_by(["topic", "topic_id"]).aggregate([])
    ids = pairs.group_by("topic").aggregate([([], _ROWS)])
    names: list[Any] = ids.filter(pc.greater(ids[_ROWS], 1))["topic"].to_pylist()
    return frozenset(names)


class PartitionRanges(NamedTuple):
    """Ranges of partitions in order, which have about as many rows each."""

    key: tuple[str, ...]  # BY_REPLICA or BY_PARTITION
    texts: tuple[Any, ...]  # those of each column with texts, sorted
    most: int  # the largest number of a partition
    firsts: Int64s  # the place in order of each range's first partition

    @classmethod
    def of(cls, counts: pa.Table, key: tuple[str, ...], rows_each: int) -> Self:
        """Return the ranges of the rows that `count_rows` counted."""
        texts = []
        for name in key[:-1]:
            known = pc.unique(counts[name].drop_null())
            texts.append(known.take(pc.sort_indices(known)))
        most = pc.max(counts["partition"]).as_py()
        ranges = cls(key, tuple(texts), -1 if most is None else most, np.zeros(1, np.int64))
        places, at = np.unique(ranges._places(counts), return_inverse=True)
        sizes = np.bincount(at, counts[_ROWS].to_numpy(), places.size)
        begins = np.cumsum(sizes) - sizes
        numbers = begins // max(rows_each, int(sizes.sum()) // MOST_RANGES)
        return ranges._replace(firsts=places[np.diff(numbers, prepend=-1) != 0])

    def split(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Yield the number of each range and its rows, in the order of the given ones."""
        numbers = np.searchsorted(self.firsts, self._places(rows), side="right") - 1
        order = np.argsort(numbers, kind="stable")
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1)).tolist()
        if len(starts) > 1:
            rows = rows.take(pa.array(order))
        for start, end in zip(starts, [*starts[1:], order.size][: len(starts)], strict=True):
            yield int(numbers[order[start]]), rows.slice(start, end - start)

    def _places(self, rows: pa.Table) -> Int64s:
        """Return a number for the partition of each row, in the order of `key`, null first."""
        places = np.zeros(rows.num_rows, np.int64)
        for name, texts in zip(self.key[:-1], self.texts, strict=True):
            codes = pc.fill_null(pc.index_in(rows[name], value_set=texts), -1).to_numpy()
            places = places * (len(texts) + 1) + codes + 1
        numbers = pc.fill_null(pc.cast(rows["partition"], pa.int64()), -1).to_numpy()
        return np.asarray(places * (self.most + 2) + numbers + 1, np.int64)


def rows_in_ranges(
    catalog: Catalog,
    snapshot: Snapshot,
    columns: Sequence[str],
    key: tuple[str, ...],
    topics: Sequence[str] = (),
    *,
    counts: pa.Table | None = None,
) -> Iterator[pa.Table]:
    """Yield the rows whose topics match the globs, by ranges of partitions in order of `key`.

    The columns include those of `key`. Rows of a range are in the order of the snapshot. There is
    one table at least. `counts`: what `count_rows` returned, if it is known. CatalogError if a part
    is damaged.
    """
    pieces = (matching(piece, topics) for piece in catalog.read_pieces(snapshot, [*columns]))
    if snapshot.rows > RANGE_ROWS:
        counted = count_rows(catalog, snapshot) if counts is None else counts
        ranges = PartitionRanges.of(matching(counted, topics), key, RANGE_ROWS)
        if ranges.firsts.size > 1:
            yield from _sorted_on_disk(pieces, ranges)
            return
    yield pa.concat_tables([SEGMENTS.empty_table().select([*columns]), *pieces])


def _sorted_on_disk(pieces: Iterable[pa.Table], ranges: PartitionRanges) -> Iterator[pa.Table]:
    """Yield the rows of each range, from a temporary file each."""
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with ExitStack() as opened:
        files: dict[int, tuple[Any, Any]] = {}
        for piece in pieces:
            for number, rows in ranges.split(piece):
                if number not in files:
                    file = opened.enter_context(tempfile.TemporaryFile(prefix="kip33-"))
                    writer = pa.ipc.new_stream(file, rows.schema, options=options)
                    files[number] = file, writer
                files[number][1].write_table(rows)
        for number in sorted(files):
            written, writer = files.pop(number)
            writer.close()
            written.seek(0)
            yield pa.ipc.open_stream(written).read_all()
            written.close()
