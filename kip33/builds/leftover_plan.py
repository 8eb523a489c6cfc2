"""A plan to remove leftovers: files that belong to no segment, as they are when it is made.

A plan has our own files. Files of brokers and of other programs are in it only if the user names
their kind. These are never planned:

- `.swap` and `.cleaned` files and `-future` directories: a broker that starts may use their data;
- uploads and manifests: only the uploader's own metadata says whether they are needed;
- unknown files.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyarrow import fs

from kip33.archive.leftover_files import MARKED_DIRECTORIES, Leftover, LeftoverKind
from kip33.archive.segment_paths import is_link, link_in
from kip33.builds.leftovers import Leftovers, index_dir_of
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.draft import DEAD_AFTER_MS
from kip33.errors import is_of_the_machine
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import listed_status, one_line
from kip33.stores.locations import Location

ALWAYS_PLANNED: Final = (LeftoverKind.ORPHAN, LeftoverKind.TEMPORARY)
PLANNED_ON_REQUEST: Final = {
    "foreign-indexes": LeftoverKind.INDEX,
    "deleted-files": LeftoverKind.DELETED,
    "delete-directories": LeftoverKind.DELETE,
    "stray-directories": LeftoverKind.STRAY,
}
"""Kinds that kip33 does not own, by the names with which a user asks for them."""


class PlannedLeftoverFile(NamedTuple):
    """One file to remove, with the size and time it must have."""

    uri: str
    size_bytes: int
    last_modified_ms: int


class PlannedLeftover(NamedTuple):
    """A leftover to remove: one file, or a directory with its files."""

    kind: LeftoverKind
    uri: str  # of the file, or of the directory
    files: tuple[PlannedLeftoverFile, ...]

    @property
    def is_directory(self) -> bool:
        """Return whether it is a directory."""
        return self.kind in MARKED_DIRECTORIES

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all its files."""
        return sum(file.size_bytes for file in self.files)


class UnplannedLeftover(NamedTuple):
    """A leftover of a wanted kind that is not in the plan, and why."""

    kind: LeftoverKind
    uri: str
    why: str


@dataclass(frozen=True)
class LeftoverPlan:
    """What to remove, and from which listing that was decided."""

    plan_id: str
    created_ms: int
    catalog: str  # URIs
    snapshot: str
    source: str
    index_dir: str
    leftovers: tuple[PlannedLeftover, ...]

    @property
    def files(self) -> int:
        """Return the number of files."""
        return sum(len(one.files) for one in self.leftovers)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all files."""
        return sum(one.size_bytes for one in self.leftovers)


def plan_leftovers(
    catalog: Catalog,
    snapshot: Snapshot,
    leftovers: Leftovers,
    *,
    kinds: Collection[LeftoverKind] = (),
    now_ms: int,
) -> tuple[LeftoverPlan, list[UnplannedLeftover]]:
    """Return the plan for our leftovers and those of `kinds`, and which of them it leaves out.

    `leftovers` are those of `snapshot`. The plan has no id yet. Raises ValueError for a kind that
    no plan may have.
    """
    if others := set(kinds) - {*ALWAYS_PLANNED, *PLANNED_ON_REQUEST.values()}:
        raise ValueError(f"{sorted(others)}: leftovers that kip33 never removes")
    wanted = [one for one in leftovers.found if one.kind in {*ALWAYS_PLANNED, *kinds}]
    planned: list[PlannedLeftover] = []
    unplanned: list[UnplannedLeftover] = []
    source = Location.of(snapshot.source)
    roots = (source, index_dir_of(snapshot))
    for one in map_in_order(source, wanted, lambda leftover: _look_at(leftover, roots, now_ms)):
        if isinstance(one, PlannedLeftover):
            planned.append(one)
        else:
            unplanned.append(one)
    plan = LeftoverPlan(
        "",
        now_ms,
        catalog.location.uri,
        snapshot.name,
        snapshot.source,
        index_dir_of(snapshot).uri,
        tuple(planned),
    )
    return plan, unplanned


def is_linked(place: Location, roots: tuple[Location, ...]) -> bool:
    """Return whether a leftover is a link, or is reached by one below the roots.

    Index files in index directories of earlier builds are below neither.
    """
    above = [root for root in roots if place.path.startswith(root.path.rstrip("/") + "/")]
    if place.root not in {root.root for root in above}:
        return is_link(place)
    return link_in(place, max(above, key=lambda root: len(root.path))) is not None


def _look_at(
    one: Leftover, roots: tuple[Location, ...], now_ms: int
) -> PlannedLeftover | UnplannedLeftover:
    try:
        found = PlannedLeftover(one.kind, one.uri, _files_of(one))
        why = _why_not(found, roots, now_ms)
    except OSError as error:
        if is_of_the_machine(error):
            raise
        why = f"cannot be planned: {one_line(error)}"
    return UnplannedLeftover(one.kind, one.uri, why) if why else found


def _files_of(one: Leftover) -> tuple[PlannedLeftoverFile, ...]:
    """Return the files of a leftover; OSError if it has other entries, or no time."""
    if one.kind not in MARKED_DIRECTORIES:
        if one.last_modified_ms is None:
            raise OSError("the store has no modification time")
        return (PlannedLeftoverFile(one.uri, one.size_bytes, one.last_modified_ms),)
    place = Location.of(one.uri)
    found = []
    for info in place.filesystem().get_file_info(fs.FileSelector(place.path)):
        file = Location(place.root, info.path)
        if info.type != fs.FileType.File:
            raise OSError(f"{file.uri} is not a file: Kafka puts only files there")
        size_bytes, modified_ms = listed_status(place, info)
        if modified_ms is None:
            raise OSError(f"{file.uri}: the store has no modification time")
        found.append(PlannedLeftoverFile(file.uri, size_bytes, modified_ms))
    return tuple(sorted(found))


def _why_not(one: PlannedLeftover, roots: tuple[Location, ...], now_ms: int) -> str:
    """Return why a leftover must not be planned, an empty text if it may be."""
    if any(is_linked(Location.of(uri), roots) for uri in (one.uri, *(f.uri for f in one.files))):
        return "is, has, or is reached by, a symbolic link: remove it by hand"
    if one.kind == LeftoverKind.ORPHAN:
        return ""
    if any(now_ms - file.last_modified_ms < DEAD_AFTER_MS for file in one.files):
        return "was modified less than a day ago: a program may still use it"
    return ""
