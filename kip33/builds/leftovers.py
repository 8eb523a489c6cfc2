"""The files of an archive and its index directory that belong to no segment, ours and others.

SOURCE and the index directory are listed now. An index file is ours if the newest snapshot lists it
as orphaned and it still has that size and time (`builds.orphans`).
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from kip33.archive.layouts import layout_of
from kip33.archive.leftover_files import (
    INDEX_END,
    INDEX_SUFFIXES,
    OWN_TEMPORARY,
    Leftover,
    LeftoverKind,
    leftover_file,
    list_leftovers,
)
from kip33.archive.listing import index_uris
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.orphan_list import read_orphans
from kip33.errors import FileReadError, LocationError, is_of_the_machine
from kip33.stores.directory_checks import require_directory
from kip33.stores.files import FileStatus, entries_of, one_line, status_of
from kip33.stores.locations import Location

_TIME: Final = INDEX_SUFFIXES[0]


class Leftovers(NamedTuple):
    """Leftovers by kind and URI, and one line for each directory that could not be listed."""

    found: list[Leftover]
    warnings: list[str]

    def totals(self) -> dict[str, dict[str, int]]:
        """Return the number of files and their bytes for each kind that occurs."""
        totals: dict[str, dict[str, int]] = {}
        for one in self.found:
            total = totals.setdefault(one.kind.value, {"files": 0, "size_bytes": 0})
            total["files"] += one.files
            total["size_bytes"] += one.size_bytes
        return totals


def find_leftovers(catalog: Catalog, snapshot: Snapshot) -> Leftovers:
    """Return the leftovers below the SOURCE and the index directory of a snapshot.

    Raises LocationError if SOURCE is not there, CatalogError if a part is damaged.
    """
    source = Location.of(snapshot.source)
    require_directory(source, "SOURCE")
    index_dir = index_dir_of(snapshot)
    orphans, problem = read_orphans(catalog, snapshot)
    ours = _expected(orphans)
    exclude = [place for place in (catalog.location, index_dir) if place != source]
    found, warnings = list_leftovers(source, layout_of(snapshot.layout), exclude)
    if index_dir != source:
        try:
            found += _in_index_dir(catalog, snapshot, source, index_dir)
        except OSError as error:
            if is_of_the_machine(error):
                raise
            warnings.append(f"{index_dir.uri}: {one_line(error)}")
    warnings = [f"{warning}; leftovers in it are not shown" for warning in warnings]
    found = [_with_owner(one, ours) for one in found]
    listed = {one.uri for one in found if one.kind == LeftoverKind.ORPHAN}
    roots = (source, index_dir)
    found += _elsewhere({uri: was for uri, was in ours.items() if uri not in listed}, roots)
    order = {kind: number for number, kind in enumerate(LeftoverKind)}
    found.sort(key=lambda one: (order[one.kind], one.uri))
    return Leftovers(found, [problem, *warnings] if problem else warnings)


def index_dir_of(snapshot: Snapshot) -> Location:
    """Return the index directory of a snapshot's build: SOURCE for a build in place."""
    return Location.of(snapshot.settings.get("index_dir") or snapshot.source)


def _expected(orphans: pa.Table) -> dict[str, FileStatus]:
    return {
        row["index_uri"]: FileStatus(row["size_bytes"], row["last_modified_ms"])
        for row in orphans.to_pylist()
    }


def _with_owner(one: Leftover, ours: dict[str, FileStatus]) -> Leftover:
    is_ours = ours.get(one.uri) == FileStatus(one.size_bytes, one.last_modified_ms)
    if one.kind != LeftoverKind.INDEX or not is_ours:
        return one
    return one._replace(kind=LeftoverKind.ORPHAN)


def _elsewhere(ours: dict[str, FileStatus], roots: tuple[Location, ...]) -> Iterator[Leftover]:
    """Yield our orphaned files in index directories of earlier builds."""
    for uri, was in ours.items():
        place = Location.of(uri)
        if any(root.contains(place) for root in roots):
            continue
        try:
            there = status_of(place)
        except (FileReadError, LocationError):
            continue
        if there == was:
            size_bytes, modified_ms = there
            yield Leftover(uri, LeftoverKind.ORPHAN, 1, size_bytes, modified_ms)


def _in_index_dir(
    catalog: Catalog, snapshot: Snapshot, source: Location, index_dir: Location
) -> list[Leftover]:
    """Return the files of the index directory that belong to no log of the snapshot."""
    found: list[Leftover] = []
    indexes: list[Leftover] = []
    for info in entries_of(index_dir, recursive=True):
        place = Location(index_dir.root, info.path)
        if info.type != fs.FileType.File or catalog.location.contains(place):
            continue
        if place.name.endswith(INDEX_SUFFIXES):
            indexes.append(leftover_file(index_dir, info, LeftoverKind.INDEX))
        elif OWN_TEMPORARY.fullmatch(place.name):
            found.append(leftover_file(index_dir, info, LeftoverKind.TEMPORARY))
        else:
            found.append(leftover_file(index_dir, info, LeftoverKind.OTHER))
    uris: Any = pa.array([one.uri for one in indexes], pa.string())
    stems = pc.replace_substring_regex(uris, INDEX_END, "", max_replacements=1)
    time_indexes = pc.binary_join_element_wise(stems, _TIME, "")
    has_log = pa.array([False] * len(indexes), pa.bool_())
    for piece in catalog.read_pieces(snapshot, ["log_uri"]):
        expected = index_uris(piece["log_uri"], source, index_dir)
        has_log = pc.or_(has_log, pc.is_in(time_indexes, value_set=expected.combine_chunks()))
    is_there = has_log.to_pylist()
    return found + [one for one, has in zip(indexes, is_there, strict=True) if not has]
