"""A snapshot that is being written: it is invisible until its commit file is put.

    CATALOG/staging/<name>/
      part-00003.5c1e9b02.parquet    a task's rows; each attempt of a task has its own name
      claims.arrow                   index files this build may write; put before any of them

The commit moves the parts of the successful attempts to the snapshot's folder, and puts the commit
file of the next number if no other build took that number first. Files of killed,
retried or speculative attempts stay in staging, where no reader looks; a zombie task that continues
after the commit also writes there. Claims survive a killed build, so that the next build knows
which index files kip33 owns. The commit moves them to `CATALOG/claims/<name>.arrow`: they are read
again if the snapshot is lost or damaged.
"""

import json
import uuid
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from kip33.catalog.catalog import (
    Catalog,
    Snapshot,
    ipc_bytes,
    remove_own_quietly,
    sequence_of,
    snapshot_name,
)
from kip33.catalog.orphan_list import read_owned, write_orphans
from kip33.catalog.schema import PARTS, SCHEMA_VERSION, SEGMENTS, with_times
from kip33.catalog.segment_order import NO_KEY, in_order, key_at, place_of
from kip33.catalog.snapshot_parts import SnapshotPart
from kip33.errors import CatalogError, PublishError, UnreadableCatalogError
from kip33.stores.directory_checks import require_writable
from kip33.stores.files import one_line
from kip33.stores.locations import Location
from kip33.stores.own_files import (
    move,
    publish_if_free,
    publish_or_raise,
    remove_folder_quietly,
    remove_quietly,
    unpublished,
)

CLAIMS: Final = "claims.arrow"
CLAIMED: Final = pa.schema([pa.field("index_uri", pa.string(), nullable=False)])
DEAD_AFTER_MS: Final = 24 * 3_600_000  # an unfinished build of this age is dead
ROWS_PER_GROUP: Final = 10_000
STAYS: Final = "the newest snapshot does not change"


class NumberTakenError(Exception):
    """Another build has committed a snapshot with this number."""


class Draft(NamedTuple):
    """The next snapshot of a source, not yet committed."""

    catalog: Catalog
    source: Location
    sequence: int
    snapshot_id: str

    @classmethod
    def begin(cls, catalog: Catalog, source: Location) -> Self:
        """Return a draft with the next sequence number and make its staging folder.

        Raises CatalogError if the catalog describes another source (one SOURCE per catalog),
        LocationError if it cannot be written.
        """
        catalog.require_source(source)
        draft = cls(catalog, source, last_sequence(catalog) + 1, uuid.uuid4().hex[:12])
        require_writable(draft.staging, "the catalog's folder")
        return draft

    @property
    def name(self) -> str:
        """Return the draft's name; the snapshot's differs if another build committed since."""
        return snapshot_name(self.sequence, self.snapshot_id)

    @property
    def staging(self) -> Location:
        """Return the folder to which its parts are written."""
        return self.catalog.staging_folder(self.name)

    def claim(self, index_uris: "pa.ChunkedArray[Any] | pa.Array[Any]") -> None:
        """Record which index files this build may write: those that kip33 owns or that are missing.

        Every build writes this file. On an object store, which has no folders, it shows that a
        build is running.
        """
        claims = ipc_bytes(pa.table([index_uris], schema=CLAIMED))
        publish_or_raise(self.staging.child(CLAIMS), claims, STAYS)

    def commit(
        self,
        parts: Iterable[SnapshotPart],
        *,
        settings: dict[str, Any],
        now_ms: int,
        number: int | None = None,
        orphans: pa.Table | None = None,
        still_claimed: "pa.Array[Any] | None" = None,
    ) -> Snapshot:
        """Move `parts`, whose rows are in order, to the snapshot's folder; publish the commit file.

        `number` is the snapshot's: the draft's, or another from `next_number`. `orphans`: index
        files whose logs no longer exist, a table of ORPHANS. `still_claimed`: claims of earlier
        builds that stay valid. Raises NumberTakenError if another build has committed this number,
        CatalogError if a part in staging is missing or changed, PublishError if a file cannot be
        written. In each case the newest snapshot remains the same. After a NumberTakenError the
        draft is as before.
        """
        number = number or self.sequence
        parts = list(parts)
        for before, after in pairwise(parts):
            if before.rows and after.rows and place_of(after.first) <= place_of(before.last):
                raise ValueError(f"{after.name}: not in order behind {before.name}")  # a bug
        folder = self.catalog.snapshot_folder(snapshot_name(number, self.snapshot_id))
        listed = tuple(self._settle(*part, folder) for part in enumerate(parts))
        snapshot = Snapshot(number, self.snapshot_id, self.source.uri, now_ms, listed, settings)
        damage = self.catalog.damage(snapshot)
        if damage:
            raise CatalogError(
                f"{damage}; the snapshot is not committed, {STAYS}: run the command again"
            )
        if orphans is not None:
            listed_orphans = write_orphans(self.catalog, snapshot.name, orphans, STAYS)
            snapshot = replace(snapshot, orphaned=listed_orphans)
        record = {
            "schema_version": SCHEMA_VERSION,
            "sequence": number,
            "id": self.snapshot_id,
            "source": self.source.uri,
            "created_ms": now_ms,
            "rows": snapshot.rows,
            "settings": settings,
            "parts": [list(part) for part in listed],
        }
        if snapshot.orphaned:
            file = self.catalog.orphaned_place(snapshot.name).name
            record["orphaned"] = {"file": file, **snapshot.orphaned._asdict()}
        data = (json.dumps(record, indent=1) + "\n").encode()
        place = self.catalog.commit_place(snapshot.commit_name)
        with unpublished(place, STAYS):
            if not publish_if_free(place, data):
                for before, settled in zip(parts, listed, strict=True):
                    move(folder.child(settled.name), self.staging.child(before.name))
                remove_folder_quietly(folder)
                remove_quietly(self.catalog.orphaned_place(snapshot.name))
                raise NumberTakenError
        with suppress(OSError):  # without them only a damaged snapshot costs ownership
            move(self.staging.child(CLAIMS), self.catalog.claims_place(snapshot.name))
        remove_own_quietly(self.staging)
        if still_claimed is not None and len(still_claimed):
            with suppress(PublishError):  # the snapshot is committed
                self._replace(sequence=number).claim(still_claimed)
        return snapshot

    def _settle(self, number: int, part: SnapshotPart, folder: Location) -> SnapshotPart:
        """Move a part from staging to its place and give it the name of its place in the order."""
        settled = part._replace(name=f"part-{number:05d}.parquet")
        try:
            move(self.staging.child(part.name), folder.child(settled.name))
        except FileNotFoundError as error:
            raise CatalogError(
                f"{self.staging.child(part.name).uri}: this part is missing, it was "
                f"deleted while the build ran; the snapshot is not committed, {STAYS}: "
                "run the command again"
            ) from error
        except OSError as error:
            raise PublishError(
                f"{folder.child(settled.name).uri}: cannot be written: {one_line(error)}; "
                f"{STAYS}: fix it and run the command again"
            ) from error
        return settled


def next_number(catalog: Catalog) -> int:
    """Return the number of the next snapshot; PublishError if the commits cannot be listed.

    Whoever commits it has to know all earlier snapshots: it looks for them after this.
    """
    try:
        return last_sequence(catalog) + 1
    except UnreadableCatalogError as error:
        raise PublishError(f"{error}; the snapshot is not written, {STAYS}") from error


def last_sequence(catalog: Catalog) -> int:
    """Return the highest committed sequence number, 0 without a commit."""
    return max((sequence_of(name) or 0 for name in catalog.commit_names()), default=0)


def claimed_index_uris(catalog: Catalog, *, since: int, above: str = "") -> "pa.Array[Any]":
    """Return the index files claimed by builds from sequence number `since` that never committed.

    Such a build was killed and may have written them. `above` is the name of the newest undamaged
    snapshot: the claims of builds with a later snapshot, which is lost, count as well. Unreadable
    claims are ignored.
    """
    claims = [pa.array([], pa.string())]
    names = (info.base_name.removesuffix(".arrow") for info in catalog.infos("claims"))
    places = [catalog.claims_place(name) for name in names if sequence_of(name) and name > above]
    for info in catalog.infos("staging"):
        sequence = sequence_of(info.base_name)
        if sequence is not None and sequence >= since:
            places.append(catalog.staging_folder(info.base_name).child(CLAIMS))
    return pa.concat_arrays([*claims, *map(read_claims, places)])


def read_claims(place: Location) -> "pa.Array[Any]":
    """Return the index files of one file of claims; none if it is missing or damaged.

    Raises UnreadableCatalogError if it cannot be read.
    """
    try:
        data = read_owned(place)
        table = pa.ipc.open_stream(pa.BufferReader(data)).read_all()
        return pa.concat_arrays([pa.array([], pa.string()), *table["index_uri"].chunks])
    except (FileNotFoundError, IsADirectoryError, ValueError, KeyError):
        return pa.array([], pa.string())


class PartWriter:
    """Collects rows and publishes them, in their order, as one Parquet part."""

    def __init__(
        self, staging: Location, number: int, kind: str = "part", schema: pa.Schema = SEGMENTS
    ) -> None:
        """Start part `number`; its name is unique, so that no other attempt replaces it.

        `kind` precedes the number in the name, `schema` has the columns of its rows. A part of
        SEGMENTS becomes one of PARTS.
        """
        self._place = staging.child(f"{kind}-{number:05d}.{uuid.uuid4().hex[:8]}.parquet")
        self._schema = schema
        self._tables: list[pa.Table] = []  # together less than a row group
        self.rows = 0
        self._first = self._last = NO_KEY
        self._sink = pa.BufferOutputStream()
        written = PARTS if schema is SEGMENTS else schema
        # Few numbers repeat: with dictionaries of them a part is half as large again.
        texts: Any = [field.name for field in written if field.type == pa.string()]
        self._writer = pq.ParquetWriter(
            self._sink,
            written,
            compression="zstd",
            use_dictionary=texts,
            write_page_checksum=True,
        )

    def append_table(self, rows: pa.Table) -> None:
        """Add a table of the schema; small tables share a row group."""
        self._tables.append(rows)
        self.rows += rows.num_rows
        if sum(table.num_rows for table in self._tables) >= ROWS_PER_GROUP:
            self._flush()

    def publish(self) -> SnapshotPart:
        """Write the part, even without rows: every task has one. PublishError if that fails."""
        self._flush()
        self._writer.close()
        data = self._sink.getvalue().to_pybytes()
        publish_or_raise(self._place, data, STAYS)
        footer = data[-8 - int.from_bytes(data[-8:-4], "little") :]  # its length and magic, too
        return SnapshotPart(
            self._place.name,
            self.rows,
            len(data),
            zlib.crc32(data),
            self._first,
            self._last,
            len(footer),
            zlib.crc32(footer),
        )

    def _flush(self) -> None:
        if self._tables:
            rows = pa.concat_tables(self._tables)
            self._require_order(rows)
            rows = with_times(rows) if self._schema is SEGMENTS else rows
            self._writer.write_table(rows, row_group_size=ROWS_PER_GROUP)
            self._tables = []

    def _require_order(self, rows: pa.Table) -> None:
        """Take the first and the last key; ValueError, a bug, if the rows are not in order."""
        first, last = key_at(rows, 0), key_at(rows, rows.num_rows - 1)
        if in_order(rows) is not rows or place_of(first) < place_of(self._last):
            raise ValueError(f"{self._place.uri}: rows are not in order between {first} and {last}")
        self._first = self._first if self._last != NO_KEY else first
        self._last = last
