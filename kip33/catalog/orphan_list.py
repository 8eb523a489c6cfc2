"""The list of orphaned index files that a commit names: a separate file beside the snapshot.

    CATALOG/orphaned/00000000000000000007-4f0c....arrow    no file if nothing is orphaned

It is put before the commit file. A lost or damaged list does not make its snapshot invalid: a build
warns and continues without it. One that exists but cannot be read ends the build.
"""

import zlib
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, OrphanList, Snapshot, ipc_bytes
from kip33.errors import FileReadError, UnreadableCatalogError
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location
from kip33.stores.own_files import publish_or_raise

_MOST_BYTES: Final = 1 << 30

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("index_uri", pa.string(), nullable=False),
    pa.field("size_bytes", pa.int64(), nullable=False),  # of the index file
    pa.field("last_modified_ms", pa.int64(), nullable=False),
    pa.field("topic", pa.string()),
    pa.field("log_uri", pa.string(), nullable=False),  # of the log that no longer exists
]
ORPHANS: Final = pa.schema(_FIELDS)
"""One row per index file that kip33 owns and no row of the snapshot names any more."""


def write_orphans(
    catalog: Catalog, name: str, orphans: pa.Table, consequence: str
) -> OrphanList | None:
    """Put the list of the snapshot `name`; return its entry for the commit, None without orphans.

    Raises PublishError if it cannot be written; `consequence` is part of the message.
    """
    if not orphans.num_rows:
        return None
    data = ipc_bytes(orphans)
    publish_or_raise(catalog.orphaned_place(name), data, consequence)
    index_bytes = pc.sum(orphans["size_bytes"]).as_py() or 0
    return OrphanList(orphans.num_rows, index_bytes, len(data), zlib.crc32(data))


def read_orphans(catalog: Catalog, snapshot: Snapshot) -> tuple[pa.Table, str | None]:
    """Return the orphaned files that a snapshot lists, and a warning if the list is damaged.

    Raises UnreadableCatalogError if it exists but cannot be read, which does not prove damage.
    """
    listed = snapshot.orphaned
    if listed is None:
        return ORPHANS.empty_table(), None
    place = catalog.orphaned_place(snapshot.name)
    try:
        data = read_owned(place)
        if zlib.crc32(data) != listed.crc32:
            raise ValueError("the CRC does not match the commit file")
        table = pa.ipc.open_stream(pa.BufferReader(data)).read_all()
        if table.schema != ORPHANS or table.num_rows != listed.rows:
            raise ValueError("the number of rows does not match the commit file")
    except (FileNotFoundError, IsADirectoryError, ValueError) as error:
        return ORPHANS.empty_table(), (
            f"{place.uri}: cannot be read: {one_line(error)}; kip33 no longer knows "
            f"{listed.rows} index files that it wrote for deleted logs: they stay, and "
            "count as not written by kip33"
        )
    return table, None


def read_owned(place: Location) -> bytes:
    """Return a file that says which index files kip33 owns.

    Raises FileNotFoundError or IsADirectoryError without a file, and UnreadableCatalogError if it
    cannot be read: without it these index files would count as foreign.
    """
    try:
        return read_whole(place, most_bytes=_MOST_BYTES)
    except (FileNotFoundError, IsADirectoryError):
        raise
    except FileReadError as error:
        raise UnreadableCatalogError(
            f"{place.uri}: cannot be read: {one_line(error)}; without it kip33 cannot tell which "
            "index files it owns: fix it and run the command again"
        ) from error
