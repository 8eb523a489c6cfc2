"""Count the segments of a snapshot that share offsets with others, by topic.

Also find partitions with two directories, `orders-0` and `orders-00`.
"""

from collections import Counter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.snapshot import Snapshot
from kip33.formats.names import two_directories_in
from kip33.rules.offset_holes import APART, NAMES, UNKNOWN_OFFSET, overlaps

_KEY: Final = ("log_dir", "topic", "partition")
_COLUMNS: Final = [*_KEY, "base_offset", "last_offset"]


def overlaps_by_topic(catalog: Catalog, snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """Return the number of segments for each kind of `rules.offset_holes.NAMES`, by topic.

    Topics without overlaps are left out. Only segments of one log directory are compared: replicas
    in several are expected. Raises CatalogError if a part is damaged.
    """
    pieces = [_compact(piece) for piece in catalog.read_pieces(snapshot, _COLUMNS)]
    rows = pa.concat_tables(pieces or [_compact(SEGMENTS.empty_table())]).unify_dictionaries()
    codes = [_codes(rows["log_dir"]), _codes(rows["topic"]), rows["partition"].to_numpy()]
    base_offsets = rows["base_offset"].to_numpy()
    order = np.lexsort((base_offsets, *codes))
    ordered = [code[order] for code in codes]
    changes = np.zeros(len(order), bool)
    for code in ordered:
        changes[1:] |= code[1:] != code[:-1]
    found = overlaps(np.cumsum(changes), base_offsets[order], rows["last_offset"].to_numpy()[order])
    at = np.flatnonzero(found != APART)
    topics = pc.cast(rows["topic"], pa.string()).take(pa.array(order[at]))
    counts: dict[str, Counter[str]] = {}
    for topic, kind in zip(topics.to_pylist(), found[at].tolist(), strict=True):
        counts.setdefault(topic, Counter())[NAMES[kind]] += 1
    return {topic: dict(sorted(count.items())) for topic, count in sorted(counts.items())}


class DirectoriesOfPartitions:
    """Collects the directories of each partition."""

    def __init__(self) -> None:
        """Start without partitions."""
        self._directories: dict[tuple[Any, ...], set[str]] = {}

    def add(self, rows: pa.Table) -> None:
        """Add catalog rows with the columns log_dir, topic, partition, base_offset, log_uri."""
        rows = rows.filter(pc.and_(pc.is_valid(rows["base_offset"]), pc.is_valid(rows["topic"])))
        parts: Any = pc.split_pattern(rows["log_uri"], "/", max_splits=1, reverse=True)
        keys = rows.select(_KEY).append_column("directory", pc.list_element(parts, 0))
        for row in keys.group_by([*_KEY, "directory"]).aggregate([]).to_pylist():
            key = tuple(row[name] for name in _KEY)
            self._directories.setdefault(key, set()).add(row["directory"])

    def doubled(self) -> tuple[str, ...]:
        """Return a note, `A and B`, for each partition with two directories."""
        pairs = map(two_directories_in, self._directories.values())
        return tuple(sorted(" and ".join(pair) for pair in pairs if pair))


def _compact(rows: pa.Table) -> pa.Table:
    rows = rows.filter(pc.and_(pc.is_valid(rows["base_offset"]), pc.is_valid(rows["topic"])))
    columns: dict[str, Any] = {name: rows[name].dictionary_encode() for name in _KEY[:2]}
    columns |= {"partition": rows["partition"], "base_offset": rows["base_offset"]}
    columns["last_offset"] = pc.fill_null(rows["last_offset"], UNKNOWN_OFFSET)
    return pa.table(columns)


def _codes(column: Any) -> Any:
    """Return the number of each value of a dictionary encoded column."""
    numbers = [chunk.indices.to_numpy() for chunk in column.chunks]
    return np.concatenate(numbers or [np.zeros(0, np.int64)])
