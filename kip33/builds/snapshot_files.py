"""The `.snapshot` files of a build with `--producer-snapshots`.

A broker that rolled the segments has one at each base offset but the first, and so has a build. It
writes none at the end of the last segment: the end moves with each build, and a broker deletes a
file that is at no base offset when it starts. `kip33 restore` makes that one.

The states at a base offset depend on all segments before. Each row has what its segment changes
(`producer_changes`), so the states are computed from the catalog's rows without reading logs again.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kip33.builds.build_spec import BuildSpec
from kip33.builds.index_files import (
    Published,
    PublishedFile,
    Wanted,
    log_has_changed,
    state_together,
)
from kip33.builds.pending_rows import PRODUCERS, name_in_row, read_staged
from kip33.catalog.catalog import SnapshotPart
from kip33.catalog.schema import IndexFileState
from kip33.formats.producer_snapshot import ProducerState
from kip33.indexing.partition_replay import KnownProducers
from kip33.indexing.producer_chains import (
    ProducerLink,
    StatesAtBase,
    producers_beside,
    states_at_bases,
)
from kip33.indexing.transaction_chains import Key
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import FileStatus
from kip33.stores.locations import Location

_KEY: Final = ("log_dir", "topic", "partition")
_CRC: Final = "producer_snapshot_crc32c"
_LINK: Final = [*_KEY, "base_offset", "log_uri", "index_uri", "producer_changes"]
_WAITING: Final = [
    *("producer_snapshot_uri", "producer_snapshot_ours", "index_settings"),
    *("producer_snapshot_seen_bytes", "producer_snapshot_seen_modified_ms"),
    *("size_bytes", "last_modified_ms"),
]


class SnapshotOutcome(NamedTuple):
    """What became of a segment's `.snapshot`."""

    file: PublishedFile | None = None
    state: IndexFileState | None = None
    is_wanted: bool = False  # whether there should be a file
    notes: tuple[str, ...] = ()

    def complete(self, row: dict[str, Any]) -> None:
        """Record it in the segment's row."""
        if self.file:
            name_in_row(row, PRODUCERS, self.file)
        if row["index_file"] and (self.is_wanted or self.file):
            row["index_file"] = state_together((row["index_file"], self.state))
        row["error"] = "; ".join(filter(None, (row["error"], *self.notes))) or None


NO_SNAPSHOT: Final = SnapshotOutcome()


def publish_snapshots(
    build: BuildSpec,
    staging: Location,
    parts: Sequence[SnapshotPart],
    pending: Sequence[SnapshotPart],
) -> dict[str, SnapshotOutcome]:
    """Write the `.snapshot` files of pending rows; return what became of them, by the log's URI.

    `parts` are all other rows of the new snapshot. CatalogError if a part is missing.
    """
    waiting: dict[str, dict[str, Any]] = {}
    rows: dict[Key, list[dict[str, Any]]] = defaultdict(list)
    for part in pending:
        for row in read_staged(staging, part, [*_LINK, *_WAITING]).to_pylist():
            waiting[row["log_uri"]] = row
            rows[_key(row)].append(row)
    starts = _starts(staging, parts, rows)
    for part in parts:
        for row in _rows_since(read_staged(staging, part, _LINK), rows, starts).to_pylist():
            rows[_key(row)].append(row)
    states = (
        state for key, of_one in rows.items() for state in _states(of_one, starts.get(key), waiting)
    )
    return dict(map_in_order(build.index_dir, states, partial(_publish, build, waiting)))


def _key(row: dict[str, Any]) -> Key:
    return tuple(row[name] for name in _KEY)


def _starts(
    staging: Location, parts: Sequence[SnapshotPart], rows: dict[Key, list[dict[str, Any]]]
) -> dict[Key, KnownProducers]:
    """Return the states at the newest base offset before all pending rows that has a `.snapshot`.

    The file must still have the CRC of its row. A partition without one begins at its start.
    """
    first = {key: min(row["base_offset"] for row in waiting) for key, waiting in rows.items()}
    newest: dict[Key, dict[str, Any]] = {}
    for part in parts:
        table = read_staged(staging, part, [*_KEY, "base_offset", "index_uri", _CRC])
        for row in table.filter(pc.is_valid(table[_CRC])).to_pylist():
            key = _key(row)
            if row["base_offset"] < first.get(key, 0):
                before = newest.get(key)
                if before is None or before["base_offset"] < row["base_offset"]:
                    newest[key] = row
    found = {}
    for key, row in newest.items():
        producers = producers_beside(Location.of(row["index_uri"]), crc32c=row[_CRC])
        if producers is not None:
            found[key] = KnownProducers(row["base_offset"], producers)
    return found


def _rows_since(
    table: pa.Table, rows: dict[Key, list[dict[str, Any]]], starts: dict[Key, KnownProducers]
) -> pa.Table:
    """Return the segments of the partitions that have pending rows, from their start on."""
    from_offset = {key: starts[key].offset if key in starts else 0 for key in rows}
    columns = (table[name].to_pylist() for name in (*_KEY, "base_offset"))
    is_needed = [
        base_offset is not None and base_offset >= from_offset.get(tuple(key), base_offset + 1)
        for *key, base_offset in zip(*columns, strict=True)
    ]
    return table.filter(pa.array(is_needed, pa.bool_()))


def _states(
    rows: list[dict[str, Any]], known: KnownProducers | None, waiting: dict[str, dict[str, Any]]
) -> Iterator[StatesAtBase]:
    """Yield the states at the base offsets of a partition's segments that wait."""
    links = [
        ProducerLink(
            row["base_offset"], row["log_uri"], row["producer_changes"], row["log_uri"] in waiting
        )
        for row in rows
    ]
    if known is None:
        first = min(rows, key=lambda row: (row["base_offset"], row["log_uri"]))
        return states_at_bases(links, _at_start(first))
    return states_at_bases(links, known.producers)


def _at_start(first: dict[str, Any]) -> tuple[ProducerState, ...] | None:
    """Return the states at the first segment's base offset, None if no `.snapshot` has them."""
    if first["base_offset"] == 0:
        return None
    places = filter(None, (first["index_uri"], first["log_uri"]))
    found = (producers_beside(Location.of(uri)) for uri in places)
    return next((one for one in found if one is not None), None)


def _publish(
    build: BuildSpec, waiting: dict[str, dict[str, Any]], states: StatesAtBase
) -> tuple[str, SnapshotOutcome]:
    row = waiting[states.log_uri]
    seen_bytes = row["producer_snapshot_seen_bytes"]
    seen = None
    if seen_bytes is not None:
        seen = FileStatus(seen_bytes, row["producer_snapshot_seen_modified_ms"])
    notes = [f"the .snapshot is not written: {states.problem}"] if states.problem else []
    if states.data is None and seen is None:
        return states.log_uri, SnapshotOutcome(notes=tuple(notes))
    log = Location.of(states.log_uri)
    log_changed = partial(log_has_changed, log, row["size_bytes"], row["last_modified_ms"])
    published = Published(log_changed=log_changed)
    place = Location.of(row["producer_snapshot_uri"])
    wanted = Wanted(place, states.data, row["index_settings"], seen is not None, seen=seen)
    ours = row["producer_snapshot_ours"]
    published.add(wanted, ours=ours, overwrite=build.overwrite, proves_nothing=False)
    notes += published.notes
    is_wanted = states.data is not None
    outcome = SnapshotOutcome(published.files[0], published.state, is_wanted, tuple(notes))
    return states.log_uri, outcome
