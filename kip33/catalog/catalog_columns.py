"""A snapshot's rows as columns, in order of partition and base offset.

Retention and the audits read catalogs in this form. Texts that repeat, above all directories, are
stored once. The rows are not moved: `order` has their sorted positions, so only requested columns
are copied.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.schema import SEGMENTS, IndexFileState
from kip33.formats.index_kinds import IndexKind
from kip33.formats.names import TIME_INDEX_FILE, parse_partition_dir
from kip33.rules.policies import TopicGlobs
from kip33.rules.retention import Bools, Int64Column, Int64s

_REPEATED: Final = ("log_dir", "topic", "status", "largest_timestamp_source")
_NUMBERS: Final = (
    *("base_offset", "size_bytes", "last_modified_ms", "largest_timestamp"),
    *("last_offset", "offset_of_max_timestamp", "max_timestamp"),
)
_SIZES: Final = [f"{kind}_bytes" for kind in IndexKind]
_OF_FILES: Final = ("index_uri", "index_file", *_SIZES)
JUDGED: Final = (*_REPEATED, "partition", *_NUMBERS, "log_uri", "timestamp_types")
CREATE_TIME: Final = "CreateTime"


class CatalogColumns:
    """The rows of a snapshot in the selected topics; see `read_columns`."""

    def __init__(self, rows: pa.Table, unlistable_uris: Sequence[str]) -> None:
        """Take the rows as `read_columns` makes them, and sort them."""
        self.unlistable_uris = unlistable_uris  # of the whole snapshot, for any topics
        self._rows = rows.combine_chunks()  # to take some rows of many chunks copies all of them
        codes = {name: _codes(rows[name]) for name in ("log_dir", "topic")}
        keys = _partition_keys(codes["log_dir"], codes["topic"], int64_column_of(rows["partition"]))
        base = int64_column_of(rows["base_offset"])
        places = np.where(base.known, base.values, -1)  # directories without an offset come first
        order = np.lexsort((places, keys))
        begins = np.diff(keys[order], prepend=-1) != 0
        ties = ~begins & (np.diff(places[order], prepend=-2) == 0)
        self.order = _in_order_of_uris(order, ties, rows)
        self.starts = np.flatnonzero(begins)
        self._codes = {name: values[self.order] for name, values in codes.items()}
        self._numbers: dict[str, Int64Column] = {}
        self._repeated: dict[str, tuple[list[str | None], Int64s]] = {}

    @property
    def size(self) -> int:
        """Return the number of rows."""
        return self.order.size

    @cached_property
    def lengths(self) -> Int64s:
        """Return the number of rows of each partition."""
        return np.diff(self.starts, append=self.size)

    def int64(self, name: str) -> Int64Column:
        """Return a column of numbers, in order."""
        return int64_column_of(self._rows[name]).take(self.order)

    def codes(self, name: str) -> Int64s:
        """Return the indexes in `texts` of a column with repeated texts, in order; -1: null."""
        if name not in self._codes:
            self._codes[name] = _codes(self._rows[name])[self.order]
        return self._codes[name]

    def texts(self, name: str) -> list[str]:
        """Return the distinct texts of a column with repeated texts, sorted."""
        return sorted(text for text in repeated(self._rows[name])[0] if text is not None)

    def equals(self, name: str, text: str) -> Bools:
        """Return which rows have this text, in a column with repeated texts."""
        texts = self.texts(name)
        if text not in texts:
            return np.zeros(self.size, bool)
        return np.equal(self.codes(name), texts.index(text))

    @cached_property
    def is_create_time(self) -> Bools:
        """Return which rows may have timestamps set by producers."""
        flags = pc.fill_null(self._rows["is_create_time"], True)
        return np.asarray(flags.to_numpy())[self.order]

    @cached_property
    def keys(self) -> list[tuple[str | None, str | None, int | None]]:
        """Return log_dir, topic and number of each partition."""
        log_dirs, topics = self.texts("log_dir"), self.texts("topic")
        numbers = self.int64("partition").take(self.starts).to_list()
        return [
            (log_dirs[a] if a >= 0 else None, topics[b] if b >= 0 else None, number)
            for a, b, number in zip(
                self.codes("log_dir")[self.starts].tolist(),
                self.codes("topic")[self.starts].tolist(),
                numbers,
                strict=True,
            )
        ]

    @cached_property
    def directory_names(self) -> Int64s:
        """Return a number for the name of each log's directory.

        -1 if the name does not belong to its partition. One partition may have two directories:
        `orders-00` and `orders-0`.
        """
        topics = {topic: code for code, topic in enumerate(self.texts("topic"))}
        names: dict[str, int] = {}
        rows = []
        for uri in self.texts("directory_uri"):
            name = uri.rpartition("/")[2]
            named = parse_partition_dir(name)
            is_unknown = named is None or named.kind or named.topic not in topics
            topic, number = (-2, -2) if is_unknown or not named else (topics[named.topic], named[1])
            rows.append((names.setdefault(name, len(names)), topic, number))
        table = np.array(rows or [(-1, -2, -2)], np.int64)
        number, topic, partition = table[self.codes("directory_uri")].T
        base = self.int64("base_offset").known
        own = (topic == self.codes("topic")) & (partition == self.int64("partition").values) & base
        return np.where(own, number, -1)

    def rows(self, first: int, count: int, names: Sequence[str]) -> dict[str, list[Any]]:
        """Return some rows in order, as lists of plain values by column."""
        rows = self.order[first : first + count]
        return {name: self._plain_values(name, rows) for name in names}

    def _plain_values(self, name: str, rows: Int64s) -> list[Any]:
        """Return some values of a column, by their position in the snapshot.

        A partition has few rows, so what is made once for all of them is kept.
        """
        column = self._rows[name]
        if pa.types.is_integer(column.type):
            if name not in self._numbers:
                self._numbers[name] = int64_column_of(column)
            return self._numbers[name].take(rows).to_list()
        if pa.types.is_dictionary(column.type):
            if name not in self._repeated:
                self._repeated[name] = repeated(column)
            texts, indices = self._repeated[name]
            return [texts[index] for index in indices[rows].tolist()]
        return column.take(pa.array(rows)).to_pylist()

    def log_uris(self, numbers: Int64s) -> list[str]:
        """Return the log URIs of some rows, by their positions in the order."""
        some = self._rows.select(["directory_uri", "name"]).take(pa.array(self.order[numbers]))
        pairs = zip(some["directory_uri"].to_pylist(), some["name"].to_pylist(), strict=True)
        return [f"{directory}/{name}" for directory, name in pairs]

    def column(self, name: str) -> Any:
        """Return a column in order; `log_uri` is joined from its two parts."""
        if name != "log_uri":
            return self._rows[name].take(pa.array(self.order))
        parts = [pc.cast(self.column(part), pa.string()) for part in ("directory_uri", "name")]
        return pc.binary_join_element_wise(*parts, "/")


def read_columns(
    catalog: Catalog,
    snapshot: Snapshot,
    topics: Sequence[str] = (),
    *,
    with_files: bool = False,
    more: Sequence[str] = (),
) -> CatalogColumns:
    """Return the rows of a snapshot whose topics match; CatalogError for a damaged part.

    `with_files` adds the columns about index files that a plan needs. `more` are further columns of
    integers.
    """
    names = [*JUDGED, *more, *(_OF_FILES if with_files else ())]
    return columns_of(catalog.read_pieces(snapshot, names), topics, more=more)


def columns_of(
    pieces: Iterable[pa.Table], topics: Sequence[str] = (), *, more: Sequence[str] = ()
) -> CatalogColumns:
    """Return rows of SEGMENTS whose topics match; `more` as in `read_columns`."""
    compact = [_compact(piece, more) for piece in pieces]
    rows = pa.concat_tables(compact or [_compact(SEGMENTS.empty_table(), more)])
    return CatalogColumns(matching(rows.unify_dictionaries(), topics), _unlistable_uris(rows))


def matching(rows: pa.Table, topics: Sequence[str]) -> pa.Table:
    """Return the rows whose topics match the globs; without globs all rows."""
    if not topics:
        return rows
    globs = TopicGlobs.of(topics)
    present: list[Any] = rows["topic"].unique().to_pylist()
    wanted = [topic for topic in present if topic is not None and globs.matches(topic)]
    return rows.filter(pc.is_in(pc.cast(rows["topic"], pa.string()), pa.array(wanted, pa.string())))


def _unlistable_uris(rows: pa.Table) -> list[str]:
    """Return the directories that could not be listed, for any topics."""
    some = rows.select(["directory_uri", "name"]).filter(pc.is_null(rows["base_offset"]))
    return sorted("/".join(row.values()) for row in some.to_pylist())


def split_uris(uris: Any) -> tuple[Any, Any]:
    """Return the directories and the file names of URIs."""
    parts = pc.split_pattern(uris, "/", max_splits=1, reverse=True)
    return pc.list_element(parts, 0), pc.list_element(parts, 1)


def _compact(rows: pa.Table, more: Sequence[str] = ()) -> pa.Table:
    """Return the needed columns; texts that repeat are stored once."""
    directory, name = split_uris(rows["log_uri"])
    columns = {name: rows[name].dictionary_encode() for name in _REPEATED}
    columns |= {name: rows[name] for name in ("partition", *_NUMBERS, *more)}
    columns |= {"directory_uri": directory.dictionary_encode(), "name": name}
    columns["is_create_time"] = _has_create_time(rows["timestamp_types"])
    if "index_uri" in rows.column_names:
        index_directory, index_name = split_uris(rows["index_uri"])
        is_written = pc.equal(rows["index_file"], IndexFileState.WRITTEN).fill_null(False)
        # A plan has no index files but Kafka's: the next build names the others as orphaned.
        is_written = pc.and_(
            is_written, pc.ends_with(index_name, f".{TIME_INDEX_FILE}").fill_null(False)
        )
        differs = pc.not_equal(index_directory, directory).fill_null(False)
        elsewhere = pc.if_else(pc.and_(is_written, differs), index_directory, None)
        columns["index_directory_uri"] = elsewhere.dictionary_encode()
        columns |= {name: rows[name] for name in _SIZES}
    return pa.table(columns)


def _has_create_time(types: "pa.ChunkedArray[Any]") -> Any:
    """Return for each list whether it contains CreateTime, null for null."""
    lists = types.combine_chunks()
    has_create_time = np.zeros(len(lists), bool)
    is_one = pc.equal(pc.list_flatten(lists), CREATE_TIME).fill_null(False)
    has_create_time[pc.list_parent_indices(lists).filter(is_one).to_numpy()] = True
    return pc.if_else(lists.is_valid(), pa.array(has_create_time), None)


def _codes(column: Any) -> Int64s:
    """Return each text's index in the sorted dictionary, -1 for null."""
    texts, indices = repeated(column)
    ranks = np.append(np.argsort(np.argsort(np.array(texts[:-1], object))), -1)
    return np.asarray(ranks[indices])


def repeated(column: Any) -> tuple[list[str | None], Int64s]:
    """Return the distinct texts with a None behind them, and each row's index; -1: null."""
    if not column.num_chunks or not len(column):
        return [None], np.zeros(0, np.int64)
    texts = column.chunk(0).dictionary.to_pylist()  # all chunks have the same dictionary
    indices = [pc.fill_null(chunk.indices, -1).to_numpy() for chunk in column.chunks]
    return [*texts, None], np.concatenate(indices).astype(np.int64, copy=False)


def int64_column_of(column: Any) -> Int64Column:
    """Return a column of numbers as the rules take it."""
    values = pc.fill_null(pc.cast(column, pa.int64()), 0).to_numpy()
    return Int64Column(np.asarray(values), np.asarray(column.is_valid().to_numpy()))


def _partition_keys(log_dirs: Int64s, topics: Int64s, partitions: Int64Column) -> Int64s:
    """Return a number for each row's log_dir, topic and partition, in sort order, null first."""
    if not log_dirs.size:
        return log_dirs
    names = (log_dirs + 1) * (topics.max() + 2) + topics + 1
    numbers = np.where(partitions.known, partitions.values + 1, 0)
    most = int(numbers.max()) + 1
    if int(names.max()) > (2**63 - 1) // most - 1:
        names = np.unique(names, return_inverse=True)[1]
    return np.asarray(names * most + numbers, np.int64)


def _in_order_of_uris(order: Int64s, ties: Bools, rows: pa.Table) -> Int64s:
    """Return the order with ties of partition and base offset sorted by log URI."""
    if not ties.any():
        return order
    runs = np.diff(np.concatenate(([False], ties, [False])).astype(np.int8))
    for first, end in zip(np.flatnonzero(runs == 1) - 1, np.flatnonzero(runs == -1), strict=True):
        some = rows.select(["directory_uri", "name"]).take(pa.array(order[first:end])).to_pylist()
        uris = [f"{row['directory_uri']}/{row['name']}" for row in some]
        order[first:end] = order[first:end][sorted(range(len(uris)), key=uris.__getitem__)]
    return order
