"""Rows of a snapshot as columns of numbers, as the rules take them.

Retention and the audits read catalogs in this form. The rows are in the order of
`segment_order`, and of whole partitions. Texts that repeat, above all directories, are stored once.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.segment_order import PARTITION
from kip33.formats.index_kinds import IndexKind
from kip33.formats.names import TIME_INDEX_FILE, parse_partition_dir
from kip33.rules.publication import IndexFileState
from kip33.rules.retention import Bools, Codes, Int64Column, Int64s

_REPEATED: Final = ("log_dir", "topic", "status", "largest_timestamp_source")
_NUMBERS: Final = (
    *("base_offset", "size_bytes", "last_modified_ms", "largest_timestamp"),
    *("last_offset", "offset_of_max_timestamp", "max_timestamp"),
)
_ROWS_AT_ONCE: Final = 1_000
_SIZES: Final = [f"{kind}_bytes" for kind in IndexKind]
OF_FILES: Final = ("index_uri", "index_file", *_SIZES)
JUDGED: Final = (*_REPEATED, "partition", *_NUMBERS, "log_uri", "timestamp_types")
CREATE_TIME: Final = "CreateTime"


class CatalogColumns:
    """Rows in order, of whole partitions; see `columns_of`."""

    def __init__(self, rows: pa.Table) -> None:
        """Take the rows as `columns_of` makes them."""
        self._rows = rows.combine_chunks()
        self._codes: dict[str, Int64s] = {}
        partition = self.int64("partition")
        numbers = np.where(partition.known, partition.values, -1)
        codes = (self.codes("log_dir"), self.codes("topic"), numbers)
        changes = [np.diff(one, prepend=-2) != 0 for one in codes]
        self.starts = np.flatnonzero(np.logical_or.reduce(changes))

    @property
    def size(self) -> int:
        """Return the number of rows."""
        return self._rows.num_rows

    @cached_property
    def lengths(self) -> Int64s:
        """Return the number of rows of each partition."""
        return np.diff(self.starts, append=self.size)

    @cached_property
    def partition_numbers(self) -> Int64s:
        """Return the number of each row's partition."""
        return np.repeat(np.arange(self.starts.size), self.lengths)

    def int64(self, name: str) -> Int64Column:
        """Return a column of numbers."""
        return int64_column_of(self._rows[name])

    def codes(self, name: str) -> Int64s:
        """Return the indexes in `texts` of a column with repeated texts; -1: null."""
        if name not in self._codes:
            texts, indices = repeated(self._rows[name])
            ranks = np.append(np.argsort(np.argsort(np.array(texts[:-1], object))), -1)
            self._codes[name] = np.asarray(ranks[indices])
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
        return np.asarray(flags.to_numpy())

    @cached_property
    def keys(self) -> list[tuple[str | None, str | None, int | None]]:
        """Return log_dir, topic and number of each partition."""
        rows = self._rows.select(PARTITION).take(pa.array(self.starts))
        texts = [pc.cast(rows[name], pa.string()).to_pylist() for name in ("log_dir", "topic")]
        return [*zip(*texts, rows["partition"].to_pylist(), strict=True)]

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
        """Return some rows, as lists of plain values by column."""
        some = self._rows.slice(first, count)
        return {name: some[name].to_pylist() for name in names}

    def log_uris(self, numbers: Int64s) -> list[str]:
        """Return the log URIs of some rows."""
        uris: list[str] = _joined(self._rows.take(pa.array(numbers))).to_pylist()
        return uris

    def column(self, name: str) -> Any:
        """Return a column; `log_uri` is joined from its two parts."""
        return _joined(self._rows) if name == "log_uri" else self._rows[name]


def _joined(rows: pa.Table) -> Any:
    parts = [pc.cast(rows[part], pa.string()) for part in ("directory_uri", "name")]
    return pc.binary_join_element_wise(*parts, "/")


def split_uris(uris: Any) -> tuple[Any, Any]:
    """Return the directories and the file names of URIs."""
    parts = pc.split_pattern(uris, "/", max_splits=1, reverse=True)
    return pc.list_element(parts, 0), pc.list_element(parts, 1)


def columns_of(rows: pa.Table, *, more: Sequence[str] = ()) -> CatalogColumns:
    """Return rows with the columns JUDGED, in order and of whole partitions, as columns.

    With those in OF_FILES they have the columns that a plan needs. `more` are further columns of
    integers.
    """
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
    return CatalogColumns(pa.table(columns).unify_dictionaries())


def _has_create_time(types: "pa.ChunkedArray[Any]") -> Any:
    """Return for each list whether it contains CreateTime, null for null."""
    lists = types.combine_chunks()
    has_create_time = np.zeros(len(lists), bool)
    is_one = pc.equal(pc.list_flatten(lists), CREATE_TIME).fill_null(False)
    has_create_time[pc.list_parent_indices(lists).filter(is_one).to_numpy()] = True
    return pc.if_else(lists.is_valid(), pa.array(has_create_time), None)


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


def int64_array(column: Int64Column) -> Any:
    """Return the numbers as an Arrow array, null where they are unknown."""
    return pa.array(column.values, pa.int64(), mask=~column.known)


def texts_at(codes: Codes, texts: Sequence[str]) -> Any:
    """Return the text at each index as an Arrow array, null for -1."""
    indexes = codes.astype(np.int64) % (len(texts) + 1)
    return pa.array([*texts, None], pa.string()).take(pa.array(indexes))


def rows_of(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield a table's rows; maps become dicts."""
    maps = [field.name for field in table.schema if pa.types.is_map(field.type)]
    for some in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        for row in some.to_pylist():
            for name in maps:
                row[name] = dict(row[name])
            yield row
