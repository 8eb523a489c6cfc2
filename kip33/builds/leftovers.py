"""Leftovers: files that belong to no segment, and the plan to remove them.

SOURCE and the index directory of a snapshot are listed now. An index file is ours if the newest
snapshot lists it as orphaned and it still has that size and time (`builds.orphans`). While the log
of a leftover index file exists, the file stays.

A plan has our own files. Files of brokers and of other programs are in it only if the user names
their kind. These are never planned:

- `.swap` and `.cleaned` files and `-future` directories: a broker that starts may use their data;
- uploads and manifests: only the uploader's own metadata says whether they are needed;
- unknown files.

The file of a plan has JSON objects, one per line:

    {"kind": "leftover plan", "version": 1, "plan_id": "5c1e...", "created_ms": ..., ...}
    {"kind": "leftover", "leftover": "index file of kip33 without a log", "uri": ..., "files": ...}
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from kip33.archive.index_listing import INDEX_SUFFIXES
from kip33.archive.layouts import layout_of
from kip33.archive.leftover_files import (
    INDEX_END,
    MARKED_DIRECTORIES,
    OWN_TEMPORARY,
    Leftover,
    LeftoverKind,
    leftover_file,
    list_leftovers,
)
from kip33.archive.listing import index_uris
from kip33.archive.output_files import (
    PlanForm,
    is_leftover_plan,
    is_plain_path,
    plan_id_of,
    plan_line,
    read_plan_lines,
    require_plain_path,
    require_plan_place,
    write_plan_lines,
)
from kip33.archive.segment_paths import is_link, link_in
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.draft import DEAD_AFTER_MS
from kip33.catalog.orphan_list import read_orphans
from kip33.errors import FileReadError, Kip33Error, LocationError, PlanError, is_of_the_machine
from kip33.formats.names import parse_partition_dir
from kip33.stores.concurrently import map_in_order
from kip33.stores.directory_checks import require_directory
from kip33.stores.files import FileStatus, entries_of, listed_status, one_line, status_of
from kip33.stores.locations import Location

_TIME: Final = INDEX_SUFFIXES[0]
ALWAYS_PLANNED: Final = (LeftoverKind.ORPHAN, LeftoverKind.TEMPORARY)
_FORM: Final = PlanForm(
    "leftover plan",
    1,
    "a plan of leftovers",
    "make another with `kip33 catalog CATALOG --orphans --plan FILE`",
)


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
    ours = {
        row["index_uri"]: FileStatus(row["size_bytes"], row["last_modified_ms"])
        for row in orphans.to_pylist()
    }
    exclude = [place for place in (catalog.location, index_dir) if place != source]
    leftovers, warnings = list_leftovers(source, layout_of(snapshot.layout), exclude)
    if index_dir != source:
        try:
            leftovers += _in_index_dir(catalog, snapshot, source, index_dir)
        except OSError as error:
            if is_of_the_machine(error):
                raise
            warnings.append(f"{index_dir.uri}: {one_line(error)}")
    warnings = [f"{warning}; leftovers in it are not shown" for warning in warnings]
    leftovers = [_with_owner(one, ours) for one in leftovers]
    listed = {one.uri for one in leftovers if one.kind == LeftoverKind.ORPHAN}
    roots = (source, index_dir)
    leftovers += _elsewhere({uri: was for uri, was in ours.items() if uri not in listed}, roots)
    order = {kind: number for number, kind in enumerate(LeftoverKind)}
    leftovers.sort(key=lambda one: (order[one.kind], one.uri))
    return Leftovers(leftovers, [problem, *warnings] if problem else warnings)


def index_dir_of(snapshot: Snapshot) -> Location:
    """Return the index directory of a snapshot's build: SOURCE for a build in place."""
    return Location.of(snapshot.settings.get("index_dir") or snapshot.source)


def _with_owner(leftover: Leftover, ours: dict[str, FileStatus]) -> Leftover:
    is_ours = ours.get(leftover.uri) == FileStatus(leftover.size_bytes, leftover.last_modified_ms)
    if leftover.kind != LeftoverKind.INDEX or not is_ours:
        return leftover
    return leftover._replace(kind=LeftoverKind.ORPHAN)


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
    others: list[Leftover] = []
    indexes: list[Leftover] = []
    for info in entries_of(index_dir, recursive=True):
        place = Location(index_dir.root, info.path)
        if info.type != fs.FileType.File or catalog.location.contains(place):
            continue
        if place.name.endswith(INDEX_SUFFIXES):
            indexes.append(leftover_file(index_dir, info, LeftoverKind.INDEX))
        elif OWN_TEMPORARY.fullmatch(place.name):
            others.append(leftover_file(index_dir, info, LeftoverKind.TEMPORARY))
        else:
            others.append(leftover_file(index_dir, info, LeftoverKind.OTHER))
    uris: Any = pa.array([one.uri for one in indexes], pa.string())
    stems = pc.replace_substring_regex(uris, INDEX_END, "", max_replacements=1)
    time_indexes = pc.binary_join_element_wise(stems, _TIME, "")
    has_log = pa.array([False] * len(indexes), pa.bool_())
    for piece in catalog.read_pieces(snapshot, ["log_uri"]):
        expected = index_uris(piece["log_uri"], source, index_dir)
        has_log = pc.or_(has_log, pc.is_in(time_indexes, value_set=expected.combine_chunks()))
    is_there = has_log.to_pylist()
    return others + [one for one, has in zip(indexes, is_there, strict=True) if not has]


_LOG, _SWAP = ".log", ".swap"  # a broker that starts removes `.swap` from a log's name
_ENDS: Final = ("", _LOG, f"{_LOG}{_SWAP}")


class LeftoverLogs(NamedTuple):
    """The logs of leftover index files: while one of them exists, its index file stays."""

    by_orphan: dict[str, str]  # the log's URI by the URI of our index file
    source: Location
    index_dir: Location

    @classmethod
    def of(cls, catalog: Catalog, snapshot: Snapshot) -> Self:
        """Return the logs of a snapshot's orphans; an unreadable list of them has no logs."""
        orphans, _ = read_orphans(catalog, snapshot)
        uris = (orphans[name].to_pylist() for name in ("index_uri", "log_uri"))
        source = Location.of(snapshot.source)
        return cls(dict(zip(*uris, strict=True)), source, index_dir_of(snapshot))

    @property
    def roots(self) -> tuple[Location, Location]:
        """Return SOURCE and the index directory."""
        return self.source, self.index_dir

    def of_leftover(self, leftover: Leftover) -> tuple[Location, ...]:
        """Return the places of the logs, none for a leftover that is no index file."""
        if leftover.kind == LeftoverKind.ORPHAN:
            log = Location.of(self.by_orphan[leftover.uri])
            return log, log._replace(path=log.path + _SWAP)
        if leftover.kind == LeftoverKind.INDEX:
            return tuple(self._beside(Location.of(leftover.uri)))
        return ()

    def _beside(self, index: Location) -> Iterator[Location]:
        """Yield the places of the logs of an index file that kip33 did not write, in any layout."""
        stem = index._replace(path=re.sub(INDEX_END, "", index.path))
        stems = [stem]
        if self.index_dir != self.source and self.index_dir.contains(index):
            below = stem.path.removeprefix(self.index_dir.path).lstrip("/")
            stems.append(self.source.child(below))
        for place in stems:
            yield from (place._replace(path=place.path + end) for end in _ENDS)


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
    """The leftovers to remove, and the catalog and directories that were listed for it."""

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
    leftover: Leftover, roots: tuple[Location, ...], now_ms: int
) -> PlannedLeftover | UnplannedLeftover:
    try:
        planned = PlannedLeftover(leftover.kind, leftover.uri, _files_of(leftover))
        why = _why_not(planned, roots, now_ms)
    except OSError as error:
        if is_of_the_machine(error):
            raise
        why = f"cannot be planned: {one_line(error)}"
    return UnplannedLeftover(leftover.kind, leftover.uri, why) if why else planned


def _files_of(leftover: Leftover) -> tuple[PlannedLeftoverFile, ...]:
    """Return the files of a leftover; OSError if it has other entries, or no time."""
    if leftover.kind not in MARKED_DIRECTORIES:
        if leftover.last_modified_ms is None:
            raise OSError("the store has no modification time")
        return (PlannedLeftoverFile(leftover.uri, leftover.size_bytes, leftover.last_modified_ms),)
    place = Location.of(leftover.uri)
    files = []
    for info in place.filesystem().get_file_info(fs.FileSelector(place.path)):
        file = Location(place.root, info.path)
        if info.type != fs.FileType.File:
            raise OSError(f"{file.uri} is not a file: Kafka puts only files there")
        size_bytes, modified_ms = listed_status(place, info)
        if modified_ms is None:
            raise OSError(f"{file.uri}: the store has no modification time")
        files.append(PlannedLeftoverFile(file.uri, size_bytes, modified_ms))
    return tuple(sorted(files))


def _why_not(leftover: PlannedLeftover, roots: tuple[Location, ...], now_ms: int) -> str:
    """Return why a leftover must not be planned, an empty text if it may be."""
    if any(
        is_linked(Location.of(uri), roots)
        for uri in (leftover.uri, *(f.uri for f in leftover.files))
    ):
        return "is, has, or is reached by, a symbolic link: remove it by hand"
    if leftover.kind == LeftoverKind.ORPHAN:
        return ""
    if any(now_ms - file.last_modified_ms < DEAD_AFTER_MS for file in leftover.files):
        return "was modified less than a day ago: a program may still use it"
    return ""


def require_leftover_plan_place(place: Location) -> None:
    """Raise LocationError unless a plan of leftovers may be written there."""
    require_plan_place(place, is_leftover_plan)


def write_leftover_plan(plan: LeftoverPlan, place: Location) -> LeftoverPlan:
    """Publish a plan atomically; return it with its id.

    The only file that it may replace is another such plan. Raises LocationError if the name does
    not end in `.jsonl` or is another file's, PublishError if it cannot be written.
    """
    require_leftover_plan_place(place)
    plan = replace(plan, plan_id="")
    plan = replace(plan, plan_id=plan_id_of(map(plan_line, _records(plan))))
    write_plan_lines(_records(plan), place)
    return plan


def read_leftover_plan(place: Location) -> LeftoverPlan:
    """Return the plan in a file; PlanError, one line, if it is not exactly as it was written."""
    lines = read_plan_lines(place, _FORM)
    header = lines.header
    try:
        roots = [Location.of(header[name]) for name in ("source", "index_dir")]
        return LeftoverPlan(
            header["plan_id"],
            int(header["created_ms"]),
            str(header["catalog"]),
            str(header["snapshot"]),
            str(header["source"]),
            str(header["index_dir"]),
            tuple(_leftover(record, roots) for record in lines.records()),
        )
    except (ValueError, TypeError, KeyError, AttributeError, Kip33Error) as error:
        raise PlanError(f"{place.uri}: not written by kip33: {one_line(error)}") from error


def _records(plan: LeftoverPlan) -> Iterator[dict[str, Any]]:
    yield {
        "kind": _FORM.kind,
        "version": _FORM.version,
        "plan_id": plan.plan_id,
        "created_ms": plan.created_ms,
        "catalog": plan.catalog,
        "snapshot": plan.snapshot,
        "source": plan.source,
        "index_dir": plan.index_dir,
        "leftovers": len(plan.leftovers),
        "files": plan.files,
        "bytes": plan.size_bytes,
    }
    for one in plan.leftovers:
        yield {
            "kind": "leftover",
            "leftover": one.kind.value,
            "uri": one.uri,
            "files": [file._asdict() for file in one.files],
        }


def _leftover(record: dict[str, Any], roots: list[Location]) -> PlannedLeftover:
    """Return a planned leftover; ValueError for a kind, a place or a file that no plan has."""
    kind = LeftoverKind(record["leftover"])
    if kind not in (*ALWAYS_PLANNED, *PLANNED_ON_REQUEST.values()):
        raise ValueError(f"{record['uri']}: {kind}, which kip33 never removes")
    files = tuple(
        PlannedLeftoverFile(
            str(file["uri"]), int(file["size_bytes"]), int(file["last_modified_ms"])
        )
        for file in record["files"]
    )
    leftover = PlannedLeftover(kind, str(record["uri"]), files)
    place = Location.of(leftover.uri)
    expected = place.parent if not leftover.is_directory else place
    for file in files:
        there = Location.of(file.uri)
        if there != expected.child(there.name) or there.name in ("", ".", ".."):
            raise ValueError(f"{file.uri}: not a file of {leftover.uri}")
    if not leftover.is_directory and [file.uri for file in files] != [leftover.uri]:
        raise ValueError(f"{leftover.uri}: expected this one file")
    # The catalog has the places of orphans, which an earlier build may have put elsewhere.
    if kind != LeftoverKind.ORPHAN or not is_plain_path(place):
        require_plain_path(place, roots)
    if not _has_name_of(kind, place.name):
        raise ValueError(f"{leftover.uri}: not the name of: {kind}")
    return leftover


def _has_name_of(kind: LeftoverKind, name: str) -> bool:
    if kind in (LeftoverKind.ORPHAN, LeftoverKind.INDEX):
        return re.search(INDEX_END, name) is not None
    if kind == LeftoverKind.TEMPORARY:
        return OWN_TEMPORARY.fullmatch(name) is not None
    if kind == LeftoverKind.DELETED:
        return name.endswith(".deleted")
    named = parse_partition_dir(name)
    return named is not None and kind == f"-{named.kind} directory"
