"""One Parquet file of a snapshot: what the commit file says of it, and its rows.

All rows of a part are read with its CRC checked. Of some topics only their row groups are read: the
commit file has the CRC of the footer, and Parquet's pages have their own.
"""

import io
import zlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from kip33.catalog.earlier_versions import TEXT_COLUMNS, has_texts_for_codes, in_this_version
from kip33.catalog.schema import PARTS, with_column
from kip33.catalog.segment_order import NO_KEY, Key, key_of
from kip33.errors import CatalogError, FileReadError, UnreadableCatalogError
from kip33.stores.files import one_line, opened_by_arrow, read_whole
from kip33.stores.locations import KEYS_IN_URI, Location

URI_COLUMNS: Final = ("log_uri", "index_uri")
HIDDEN_KEYS: Final = r"\1\2***@"
NO_FILE: Final = (FileNotFoundError, IsADirectoryError)  # other errors may be temporary
_TOPIC_COLUMN: Final = PARTS.get_field_index("topic")


class SnapshotPart(NamedTuple):
    """A part as a commit file lists it; its rows are in order (`catalog.segment_order`)."""

    name: str
    rows: int
    size_bytes: int
    crc32: int  # zlib's, over the file
    first: Key = NO_KEY  # of its first row
    last: Key = NO_KEY
    footer_bytes: int = 0  # at its end; pages have CRCs of their own
    footer_crc32: int = 0

    @classmethod
    def of(cls, record: Sequence[Any]) -> Self:
        """Return the part that a commit file lists; ValueError or TypeError for another value."""
        name, rows, size_bytes, crc32, *more = record
        known = (str(name), int(rows), int(size_bytes), int(crc32))
        if not more:  # before version 5
            return cls(*known)
        first, last, footer_bytes, footer_crc32 = more
        return cls(*known, key_of(first), key_of(last), int(footer_bytes), int(footer_crc32))

    def may_have(self, topics: Collection[str | None]) -> bool:
        """Return whether a row of it may be of one of some topics; None: of an unknown one."""
        (first_dir, first, *_), (last_dir, last, *_) = self.first, self.last
        if first_dir != last_dir or first is None or last is None:
            return True
        return any(topic is not None and first <= topic <= last for topic in topics)


def rows_of(folder: Location, part: SnapshotPart, columns: list[str]) -> Iterator[pa.Table]:
    """Yield the rows of a part in a folder, one row group at a time.

    Raises CatalogError if its bytes differ from what the commit file lists.
    """
    place = folder.child(part.name)
    data = _bytes_of(place, part)
    try:
        file = pq.ParquetFile(io.BytesIO(data), pre_buffer=False)
        if (rows_found := file.metadata.num_rows) != part.rows:
            raise ValueError(f"{rows_found} rows found, the commit file says {part.rows}")
        for group in range(file.num_row_groups):
            yield _without_keys(_rows_of_group(file, group, columns))
    except (OSError, ValueError) as error:
        raise CatalogError(f"{place.uri}: cannot be read: {one_line(error)}") from error


def rows_of_topics(
    folder: Location, part: SnapshotPart, columns: list[str], topics: Collection[str | None]
) -> Iterator[pa.Table]:
    """Yield the rows of some topics, None: without one; only their row groups are read.

    Errors are those of `rows_of`.
    """
    import pyarrow.compute as pc

    place = folder.child(part.name)
    wanted = pa.array(topics, pa.string())
    names = columns if "topic" in columns else ["topic", *columns]
    try:
        with opened_by_arrow(place) as source:
            file = pq.ParquetFile(
                source,
                metadata=_footer_of(source, part),
                pre_buffer=True,
                page_checksum_verification=True,
            )
            for group in range(file.num_row_groups):
                if _may_have(file.metadata.row_group(group), topics):
                    rows = _rows_of_group(file, group, names)
                    rows = rows.filter(pc.is_in(rows["topic"], value_set=wanted))
                    yield _without_keys(rows.select(columns))
    except (OSError, ValueError) as error:
        _bytes_of(place, part)  # raises what is wrong with the file
        raise UnreadableCatalogError(f"{place.uri}: cannot be read: {one_line(error)}") from error


def _rows_of_group(file: pq.ParquetFile, group: int, columns: list[str]) -> pa.Table:
    """Return the columns of a row group, also of one that an earlier version wrote."""
    has_texts = has_texts_for_codes(file.schema_arrow.names)
    asked = [*columns, *TEXT_COLUMNS] if has_texts else columns
    rows = file.read_row_group(group, columns=asked, use_threads=False)
    is_of_now = not has_texts and rows.num_columns == len(columns)
    return rows if is_of_now else in_this_version(rows, columns, has_texts=has_texts)


def _footer_of(source: Any, part: SnapshotPart) -> Any:
    """Return a part's footer; ValueError if it differs from the commit file."""
    source.seek(part.size_bytes - part.footer_bytes)
    footer = source.read(part.footer_bytes)
    if zlib.crc32(footer) != part.footer_crc32:
        raise ValueError("the CRC of the footer does not match the commit file")
    return pq.read_metadata(io.BytesIO(footer))


def _may_have(group: Any, topics: Collection[str | None]) -> bool:
    """Return whether a row group may have rows of some topics."""
    chunk = group.column(_TOPIC_COLUMN)
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return any(
        statistics.null_count if topic is None else statistics.min <= topic <= statistics.max
        for topic in topics
    )


def _bytes_of(place: Location, part: SnapshotPart) -> bytes:
    try:
        data = read_whole(place, most_bytes=part.size_bytes)
    except NO_FILE as error:
        raise CatalogError(f"{place.uri}: this part is missing: {one_line(error)}") from error
    except FileReadError as error:
        raise UnreadableCatalogError(f"{place.uri}: cannot be read: {one_line(error)}") from error
    if zlib.crc32(data) != part.crc32:
        raise CatalogError(
            f"{place.uri}: the CRC does not match the commit file; name an earlier snapshot, or "
            "run `kip33 build`, which makes a new one"
        )
    return data


def _without_keys(rows: pa.Table) -> pa.Table:
    """Hide keys in URIs, which kip33 refuses and never writes, so that no output has them."""
    import pyarrow.compute as pc

    for name in URI_COLUMNS:
        if name in rows.column_names and pc.any(pc.match_substring(rows[name], "@")).as_py():
            shown = pc.replace_substring_regex(rows[name], KEYS_IN_URI, HIDDEN_KEYS)
            rows = with_column(rows, name, shown)
    return rows
