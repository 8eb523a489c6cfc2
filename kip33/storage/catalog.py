"""The catalog: one Parquet row a segment, in snapshots that are committed by one put (D7).

    CATALOG/
      snapshots/
        00000000000000000007-4f0c.../     one snapshot; what `kip33 catalog --path` prints
          part-00000.parquet              one a task, written whole by pyarrow
      commits/
        00000000000000000007-4f0c....json written last; lists the parts. No commit, no snapshot

A snapshot's folder holds `*.parquet` only, so any engine reads it as it is. The newest snapshot is
the one with the highest sequence number, ties by id; clocks are not asked. Nothing is rewritten.
"""

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from kip33.errors import CatalogError
from kip33.storage.files import publish, read_whole, reason, remove_quietly
from kip33.storage.locations import Location

SCHEMA_VERSION: Final = 1
MOST_COMMIT_BYTES: Final = 1 << 30

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_dir", pa.string()),  # between SOURCE and the partition's directory
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("base_offset", pa.int64()),
    pa.field("last_offset", pa.int64()),  # null where there is no valid batch
    pa.field("log_uri", pa.string(), nullable=False),
    pa.field("index_uri", pa.string()),  # null where no .timeindex is expected
    pa.field("size_bytes", pa.int64()),
    pa.field("valid_bytes", pa.int64()),  # whole, valid batches from the start
    pa.field("batch_count", pa.int64()),
    pa.field("record_count", pa.int64()),  # null with a v0 or v1 wrapper
    pa.field("first_batch_timestamp", pa.int64()),  # its max timestamp: rolling starts there
    pa.field("max_timestamp", pa.int64()),  # -1: no batch has a timestamp
    pa.field("offset_of_max_timestamp", pa.int64()),  # last offset of the first such batch
    pa.field("largest_timestamp", pa.int64()),  # what retention asks
    pa.field("largest_timestamp_source", pa.string()),  # log | last_modified
    pa.field("last_modified_ms", pa.int64()),
    pa.field("timestamp_types", pa.list_(pa.string())),
    pa.field("magics", pa.list_(pa.int32())),
    pa.field("codecs", pa.list_(pa.string())),
    pa.field("out_of_order_batches", pa.int64()),
    pa.field("time_index_entries", pa.int64()),  # null where there is no index
    pa.field("active_segment", pa.bool_()),
    pa.field("build_settings", pa.string()),  # JSON: dialect, interval, ...
    pa.field("status", pa.string(), nullable=False),
    pa.field("error", pa.string()),
    pa.field("index_file", pa.string()),  # written | kept (not ours, left as it was) | null
]
SEGMENTS: Final = pa.schema(_FIELDS)
"""The one schema; the Spark schema is derived from it."""


class Part(NamedTuple):
    """One Parquet file of a snapshot."""

    name: str
    rows: int
    size_bytes: int


@dataclass(frozen=True)
class Snapshot:
    """A committed snapshot, as its commit file has it."""

    sequence: int
    snapshot_id: str
    source: str
    created_ms: int
    parts: tuple[Part, ...]
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        """Return the name of its folder and commit file: 20 digits of sequence, a dash, the id."""
        return snapshot_name(self.sequence, self.snapshot_id)

    @property
    def rows(self) -> int:
        """Return the number of segments."""
        return sum(part.rows for part in self.parts)


def snapshot_name(sequence: int, snapshot_id: str) -> str:
    """Return `00000000000000000007-<id>`: names sort as sequences do."""
    return f"{sequence:020d}-{snapshot_id}"


class Catalog(NamedTuple):
    """A catalog at a place; opening it reads nothing."""

    location: Location

    @classmethod
    def at(cls, text: str) -> Self:
        """Return the catalog at a path or URI, there or not."""
        return cls(Location.of(text))

    def snapshots(self) -> list[Snapshot]:
        """Return the committed snapshots, oldest first; unreadable commit files are left out.

        Raises CatalogError where the newest was written by a later version of kip33.
        """
        loaded = (self._load(name) for name in sorted(self._commit_names()))
        return [snapshot for snapshot in loaded if snapshot]

    def newest(self) -> Snapshot | None:
        """Return the newest committed snapshot whose parts are all there, None if none is."""
        for name in sorted(self._commit_names(), reverse=True):
            snapshot = self._load(name)
            if snapshot and not self._damage(snapshot):
                return snapshot
        return None

    def require_newest(self) -> Snapshot:
        """Return the newest snapshot, or raise CatalogError for the user."""
        snapshot = self.newest()
        if snapshot is None:
            raise CatalogError(
                f"{self.location.uri}: no committed snapshot here; `kip33 build` makes one"
            )
        return snapshot

    def snapshot_folder(self, name: str) -> Location:
        """Return the folder of a snapshot's Parquet files."""
        return self.location.child(f"snapshots/{name}")

    def read(self, snapshot: Snapshot, columns: list[str] | None = None) -> pa.Table:
        """Return the rows of a snapshot, part by part; CatalogError where a part is damaged."""
        tables = list(self.read_parts(snapshot, columns))
        if not tables:
            return SEGMENTS.empty_table().select(columns or SEGMENTS.names)
        return pa.concat_tables(tables)

    def read_parts(
        self, snapshot: Snapshot, columns: list[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yield one table a part: summaries need no more memory than the largest part."""
        folder = self.snapshot_folder(snapshot.name)
        for part in snapshot.parts:
            place = folder.child(part.name)
            try:
                table = pq.read_table(
                    place.path, filesystem=place.filesystem(), columns=columns, partitioning=None
                )
            except (OSError, ValueError) as error:
                raise CatalogError(f"{place.uri}: cannot be read: {reason(error)}") from error
            if table.num_rows != part.rows:
                raise CatalogError(
                    f"{place.uri}: {table.num_rows} rows, the commit says {part.rows}"
                )
            yield table

    def require_source(self, source: Location) -> None:
        """Raise CatalogError where the newest snapshot describes another source (D7)."""
        newest = self.newest()
        if newest and newest.source != source.uri:
            raise CatalogError(
                f"{self.location.uri}: describes {newest.source}, not {source.uri}; "
                "one SOURCE per catalog: give another --catalog"
            )

    def begin(self, source: Location) -> "Draft":
        """Return a draft of the next snapshot of `source`.

        Raises CatalogError where the catalog describes another source: one SOURCE per catalog.
        """
        self.require_source(source)
        names = self._commit_names()
        last = max((int(name[:20]) for name in names), default=0)
        return Draft(self, source, last + 1, uuid.uuid4().hex[:12])

    def _commit_names(self) -> list[str]:
        place = self.location.child("commits")
        selector = fs.FileSelector(place.path, allow_not_found=True)
        try:
            infos = place.filesystem().get_file_info(selector)
        except OSError as error:
            raise CatalogError(f"{place.uri}: cannot be listed: {reason(error)}") from error
        names = (info.base_name for info in infos)
        return [
            name.removesuffix(".json")
            for name in names
            if name.endswith(".json") and name[:20].isdigit() and name[20:21] == "-"
        ]

    def _load(self, name: str) -> Snapshot | None:
        place = self.location.child(f"commits/{name}.json")
        try:
            record = json.loads(read_whole(place, most_bytes=MOST_COMMIT_BYTES))
            if record["schema_version"] > SCHEMA_VERSION:
                raise CatalogError(
                    f"{place.uri}: schema version {record['schema_version']}, this kip33 reads "
                    f"up to {SCHEMA_VERSION}; use a newer kip33"
                )
            return Snapshot(
                record["sequence"],
                record["id"],
                record["source"],
                record["created_ms"],
                tuple(Part(*part) for part in record["parts"]),
                record["settings"],
            )
        except (OSError, ValueError, TypeError, KeyError):
            return None  # a commit file that is no commit: as if it were not there

    def _damage(self, snapshot: Snapshot) -> str | None:
        """Return what is wrong with a snapshot's files, judged by their sizes; None if nothing."""
        folder = self.snapshot_folder(snapshot.name)
        selector = fs.FileSelector(folder.path, allow_not_found=True)
        infos = folder.filesystem().get_file_info(selector)
        sizes = {info.base_name: info.size for info in infos}
        for part in snapshot.parts:
            if sizes.get(part.name) != part.size_bytes:
                found = sizes.get(part.name, "no")
                return f"{part.name}: {found} bytes, the commit says {part.size_bytes}"
        return None


class Draft(NamedTuple):
    """A snapshot that is being written; nobody sees it before `commit`."""

    catalog: Catalog
    source: Location
    sequence: int
    snapshot_id: str

    @property
    def name(self) -> str:
        """Return the name the snapshot will have."""
        return snapshot_name(self.sequence, self.snapshot_id)

    @property
    def folder(self) -> Location:
        """Return the folder its parts are written to."""
        return self.catalog.snapshot_folder(self.name)

    def commit(self, parts: Iterable[Part], *, settings: dict[str, Any], now_ms: int) -> Snapshot:
        """Publish the commit file, which makes `parts` the newest snapshot.

        Raises CatalogError when a part that it would list is not there as it was written.
        """
        listed = tuple(sorted(parts))
        snapshot = Snapshot(
            self.sequence, self.snapshot_id, self.source.uri, now_ms, listed, settings
        )
        damage = self.catalog._damage(snapshot)
        if damage:
            raise CatalogError(f"{self.folder.uri}: {damage}; the snapshot is not committed")
        self._remove_leftovers({part.name for part in listed})
        record = {
            "schema_version": SCHEMA_VERSION,
            "sequence": self.sequence,
            "id": self.snapshot_id,
            "source": self.source.uri,
            "created_ms": now_ms,
            "rows": snapshot.rows,
            "settings": settings,
            "parts": [list(part) for part in listed],
        }
        place = self.catalog.location.child(f"commits/{self.name}.json")
        publish(place, (json.dumps(record, indent=1) + "\n").encode())
        return snapshot

    def _remove_leftovers(self, listed: set[str]) -> None:
        """Delete what a killed task left in the folder: readers take every file in it."""
        selector = fs.FileSelector(self.folder.path, allow_not_found=True)
        for info in self.folder.filesystem().get_file_info(selector):
            if info.base_name not in listed:
                remove_quietly(self.folder.child(info.base_name))
