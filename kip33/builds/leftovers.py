"""Leftovers: files that belong to no segment, the plan to remove them, and their removal.

SOURCE and the index directory of a snapshot are listed now. An index file is ours if the newest
snapshot lists it as orphaned and it still has that size and time (`builds.orphans`). While the log
of a leftover index file exists, the file stays.

A plan has our own files. Files of brokers and of other programs are in it only if the user names
their kind. These are never planned:

- `.swap` and `.cleaned` files and `-future` directories: a broker that starts may use their data;
- uploads and manifests: only the uploader's own metadata says whether they are needed;
- unknown files.

Before a removal everything is listed again with the newest snapshot, so a plan that is old, or was
made by hand, removes nothing that is not a leftover now. Right before its removal each file is
checked again: its size and time must be as planned, and its log must not exist. A plan can be
applied again after any interruption.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from kip33.archive.broker_locks import locked
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
from kip33.archive.plans import (
    LEFTOVER_PLAN,
    file_record,
    is_plain_path,
    plan_file,
    planned_file,
    read_plan_file,
    require_plain_path,
)
from kip33.archive.removal import exists, files_now
from kip33.archive.segment_paths import NS_PER, PlannedFile, is_link, link_in
from kip33.builds.orphans import index_stems
from kip33.catalog.catalog import Catalog, Snapshot, choose
from kip33.catalog.draft import DEAD_AFTER_MS
from kip33.catalog.orphan_list import read_orphans
from kip33.errors import FileReadError, Kip33Error, LocationError, PlanError, is_of_the_machine
from kip33.formats.names import parse_partition_dir
from kip33.stores.concurrently import map_in_order
from kip33.stores.directory_checks import require_directory
from kip33.stores.files import (
    FileStatus,
    entries_of,
    listed_status,
    one_line,
    shown_name,
    status_of,
)
from kip33.stores.locations import Location
from kip33.stores.own_files import remove, remove_empty_folder

_TIME: Final = INDEX_SUFFIXES[0]
_PLACES: Final = ("catalog", "snapshot", "source", "index_dir")  # in the first line of a plan
ALWAYS_PLANNED: Final = (LeftoverKind.ORPHAN, LeftoverKind.TEMPORARY)
_LOG, _SWAP = ".log", ".swap"  # a broker that starts removes `.swap` from a log's name
_ENDS: Final = ("", _LOG, f"{_LOG}{_SWAP}")
_FIELDS: Final[list["pa.Field[Any]"]] = [
    pa.field("leftover", pa.string(), nullable=False),  # a LeftoverKind
    pa.field("uri", pa.string(), nullable=False),
    pa.field("files", pa.int64(), nullable=False),
    pa.field("size_bytes", pa.int64(), nullable=False),
    pa.field("last_modified_ms", pa.int64()),  # null: of a directory, or the store has no time
    pa.field("is_ours", pa.bool_(), nullable=False),  # kip33 wrote it
]
LEFTOVERS: Final = pa.schema(_FIELDS)
_Roots: TypeAlias = tuple[Location, Location]  # SOURCE and the index directory


class Leftovers(NamedTuple):
    """Leftovers by kind and URI."""

    found: list[Leftover]
    warnings: list[str]  # one line for each directory that could not be listed
    logs: dict[str, str]  # the log's URI by the URI of our index file; none if the list is damaged

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of LEFTOVERS for each."""
        return [
            {
                "leftover": one.kind.value,
                "uri": one.uri,
                "files": one.files,
                "size_bytes": one.size_bytes,
                "last_modified_ms": one.last_modified_ms,
                "is_ours": one.kind in ALWAYS_PLANNED,
            }
            for one in self.found
        ]

    def table(self) -> pa.Table:
        """Return a table of LEFTOVERS."""
        return pa.Table.from_pylist(self.rows(), LEFTOVERS)

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
    roots = source, index_dir = _roots_of(snapshot)
    require_directory(source, "SOURCE")
    orphans, problem = read_orphans(catalog, snapshot)
    rows = orphans.to_pylist()
    ours = {
        row["index_uri"]: FileStatus(row["size_bytes"], row["last_modified_ms"]) for row in rows
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
    listed = set()
    for number, one in enumerate(leftovers):
        is_ours = ours.get(one.uri) == FileStatus(one.size_bytes, one.last_modified_ms)
        if is_ours and one.kind == LeftoverKind.INDEX:
            leftovers[number] = one._replace(kind=LeftoverKind.ORPHAN)
            listed.add(one.uri)
    leftovers += _elsewhere({uri: was for uri, was in ours.items() if uri not in listed}, roots)
    order = {kind: number for number, kind in enumerate(LeftoverKind)}
    leftovers.sort(key=lambda one: (order[one.kind], one.uri))
    logs = {row["index_uri"]: row["log_uri"] for row in rows}
    return Leftovers(leftovers, [problem, *warnings] if problem else warnings, logs)


def _elsewhere(ours: dict[str, FileStatus], roots: _Roots) -> Iterator[Leftover]:
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
    others, indexes = [], []
    for info in entries_of(index_dir, recursive=True):
        place = Location(index_dir.root, info.path)
        if info.type != fs.FileType.File or catalog.location.contains(place):
            continue
        if place.name.endswith(INDEX_SUFFIXES):
            indexes.append(leftover_file(index_dir, info, LeftoverKind.INDEX))
        else:
            is_own = OWN_TEMPORARY.fullmatch(place.name)
            kind = LeftoverKind.TEMPORARY if is_own else LeftoverKind.OTHER
            others.append(leftover_file(index_dir, info, kind))
    uris: Any = pa.array([one.uri for one in indexes], pa.string())
    time_indexes = pc.binary_join_element_wise(index_stems(uris), _TIME, "")
    has_log = pa.array([False] * len(indexes), pa.bool_())
    for piece in catalog.read_pieces(snapshot, ["log_uri"]):
        expected = index_uris(piece["log_uri"], source, index_dir)
        has_log = pc.or_(has_log, pc.is_in(time_indexes, value_set=expected.combine_chunks()))
    is_there = has_log.to_pylist()
    return others + [one for one, has in zip(indexes, is_there, strict=True) if not has]


def _logs_of(
    leftover: "PlannedLeftover", logs: dict[str, str], roots: _Roots
) -> Iterator[Location]:
    """Yield where the logs of a leftover index file would be, in any layout.

    While one of them exists, the index file stays. Other leftovers have no logs.
    """
    if leftover.kind == LeftoverKind.ORPHAN:
        log = Location.of(logs[leftover.uri])
        yield from (log, log._replace(path=log.path + _SWAP))
    elif leftover.kind == LeftoverKind.INDEX:
        source, index_dir = roots
        index = Location.of(leftover.uri)
        stems = [index._replace(path=re.sub(INDEX_END, "", index.path))]
        if index_dir != source and index_dir.contains(index):
            stems.append(source.child(stems[0].path.removeprefix(index_dir.path).lstrip("/")))
        for place in stems:
            yield from (place._replace(path=place.path + end) for end in _ENDS)


PLANNED_ON_REQUEST: Final = {
    "foreign-indexes": LeftoverKind.INDEX,
    "deleted-files": LeftoverKind.DELETED,
    "delete-directories": LeftoverKind.DELETE,
    "stray-directories": LeftoverKind.STRAY,
}
"""Kinds that kip33 does not own, by the names with which a user asks for them."""


class PlannedLeftover(NamedTuple):
    """A leftover to remove: one file, or a directory with its files."""

    kind: LeftoverKind
    uri: str  # of the file, or of the directory
    files: tuple[PlannedFile, ...]  # times are of whole ms

    @property
    def is_directory(self) -> bool:
        """Return whether it is a directory."""
        return self.kind in MARKED_DIRECTORIES


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
        return sum(file.size_bytes for one in self.leftovers for file in one.files)


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
    roots = source, index_dir = _roots_of(snapshot)
    looks = list(map_in_order(source, wanted, lambda leftover: _look_at(leftover, roots, now_ms)))
    planned = tuple(one for one in looks if isinstance(one, PlannedLeftover))
    places = (catalog.location.uri, snapshot.name, snapshot.source, index_dir.uri)
    plan = LeftoverPlan("", now_ms, *places, planned)
    return plan, [one for one in looks if isinstance(one, UnplannedLeftover)]


def _roots_of(snapshot: Snapshot) -> _Roots:
    """Return SOURCE and the index directory, which is SOURCE for a build in place."""
    index_dir = snapshot.settings.get("index_dir") or snapshot.source
    return Location.of(snapshot.source), Location.of(index_dir)


def _is_linked(place: Location, roots: _Roots) -> bool:
    """Return whether a leftover is a link, or is reached by one below the roots.

    Index files in index directories of earlier builds are below neither.
    """
    above = [root for root in roots if place.path.startswith(root.path.rstrip("/") + "/")]
    if place.root not in {root.root for root in above}:
        return is_link(place)
    return link_in(place, max(above, key=lambda root: len(root.path))) is not None


def _look_at(leftover: Leftover, roots: _Roots, now_ms: int) -> PlannedLeftover | UnplannedLeftover:
    kind, uri = leftover.kind, leftover.uri
    try:
        files = _files_of(leftover)
        times_ms = [file.last_modified_ns // NS_PER["ms"] for file in files]
        if any(_is_linked(place, roots) for place in (Location.of(uri), *(f.place for f in files))):
            why = "is, has, or is reached by, a symbolic link: remove it by hand"
        elif kind != LeftoverKind.ORPHAN and max(times_ms, default=0) > now_ms - DEAD_AFTER_MS:
            why = "was modified less than a day ago: a program may still use it"
        else:
            return PlannedLeftover(kind, uri, files)
    except OSError as error:
        if is_of_the_machine(error):
            raise
        why = f"cannot be planned: {one_line(error)}"
    return UnplannedLeftover(kind, uri, why)


def _files_of(leftover: Leftover) -> tuple[PlannedFile, ...]:
    """Return the files of a leftover; OSError if it has other entries, or no time."""
    place = Location.of(leftover.uri)
    if leftover.kind not in MARKED_DIRECTORIES:
        if leftover.last_modified_ms is None:
            raise OSError("the store has no modification time")
        modified_ns = leftover.last_modified_ms * NS_PER["ms"]
        return (PlannedFile(place.name, leftover.size_bytes, modified_ns, place.parent),)
    files = []
    for info in _entries_of(place):
        file = Location(place.root, info.path)
        if info.type != fs.FileType.File:
            raise OSError(f"{file.uri} is not a file: Kafka puts only files there")
        size_bytes, modified_ms = listed_status(place, info)
        if modified_ms is None:
            raise OSError(f"{file.uri}: the store has no modification time")
        files.append(PlannedFile(file.name, size_bytes, modified_ms * NS_PER["ms"], place))
    return tuple(sorted(files))


def write_leftover_plan(plan: LeftoverPlan, place: Location) -> LeftoverPlan:
    """Publish a plan as `archive.plans.plan_file` does; return it with its id."""
    places = {name: getattr(plan, name) for name in _PLACES}
    with plan_file(place, LEFTOVER_PLAN, {"created_ms": plan.created_ms, **places}) as lines:
        for one in plan.leftovers:
            files = [file_record(file, "ms") for file in one.files]
            lines.add(
                {"kind": "leftover", "leftover": one.kind.value, "uri": one.uri, "files": files}
            )
        sums = {"leftovers": len(plan.leftovers), "files": plan.files, "bytes": plan.size_bytes}
        return replace(plan, plan_id=lines.end(sums))


def read_leftover_plan(place: Location) -> LeftoverPlan:
    """Return the plan in a file; PlanError, one line, if it is not exactly as it was written."""
    return read_plan_file(place, LEFTOVER_PLAN, _plan_of)


def _plan_of(header: dict[str, Any], records: list[dict[str, Any]]) -> LeftoverPlan:
    roots = [Location.of(header[name]) for name in ("source", "index_dir")]
    leftovers = tuple(_leftover(record, roots) for record in records)
    places = {name: str(header[name]) for name in _PLACES}
    created_ms = int(header["created_ms"])
    return LeftoverPlan(header["plan_id"], created_ms, **places, leftovers=leftovers)


def _leftover(record: dict[str, Any], roots: list[Location]) -> PlannedLeftover:
    """Return a planned leftover; ValueError for a kind, a place or a file that no plan has."""
    kind = LeftoverKind(record["leftover"])
    if kind not in (*ALWAYS_PLANNED, *PLANNED_ON_REQUEST.values()):
        raise ValueError(f"{record['uri']}: {kind}, which kip33 never removes")
    uri = str(record["uri"])
    place, is_directory = Location.of(uri), kind in MARKED_DIRECTORIES
    folder = place if is_directory else place.parent
    files = []
    for of_file in record["files"]:
        file = planned_file(of_file, [folder], "ms")
        if file is None:
            raise ValueError(f"{of_file['uri']}: not a file of {uri}")
        files.append(file)
    if not is_directory and [file.place.uri for file in files] != [uri]:
        raise ValueError(f"{uri}: expected this one file")
    # The catalog has the places of orphans, which an earlier build may have put elsewhere.
    if kind != LeftoverKind.ORPHAN or not is_plain_path(place):
        require_plain_path(place, roots)
    if not _has_name_of(kind, place.name):
        raise ValueError(f"{uri}: not the name of: {kind}")
    return PlannedLeftover(kind, uri, tuple(files))


def _has_name_of(kind: LeftoverKind, name: str) -> bool:
    if kind in (LeftoverKind.ORPHAN, LeftoverKind.INDEX):
        return re.search(INDEX_END, name) is not None
    if kind == LeftoverKind.TEMPORARY:
        return OWN_TEMPORARY.fullmatch(name) is not None
    if kind == LeftoverKind.DELETED:
        return name.endswith(".deleted")
    named = parse_partition_dir(name)
    return named is not None and kind == f"-{named.kind} directory"


class LeftoverOutcome(StrEnum):
    """The outcome for a planned leftover; each member is its own text."""

    REMOVED = "removed"
    MISSING = "already removed"
    KEPT = "kept"
    FAILED = "not removed"  # the store refused


class LeftoverResult(NamedTuple):
    """The outcome of a planned leftover; `why` it was kept or not removed."""

    leftover: LeftoverKind
    uri: str
    outcome: LeftoverOutcome
    files_removed: int
    bytes_removed: int
    why: str | None


@dataclass(frozen=True)
class RemovedLeftovers:
    """The result of an apply; for a dry run, the result it would have had."""

    plan: LeftoverPlan
    dry_run: bool
    results: tuple[LeftoverResult, ...]
    warnings: tuple[str, ...]

    @property
    def files(self) -> int:
        """Return the number of removed files."""
        return sum(one.files_removed for one in self.results)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all removed files."""
        return sum(one.bytes_removed for one in self.results)


def remove_leftovers(
    catalog: Catalog, plan: LeftoverPlan, *, dry_run: bool = False
) -> RemovedLeftovers:
    """Remove the leftovers of a plan; return a result for each, in the plan's order.

    Raises PlanError if the plan is of another catalog or SOURCE, LockedError if a broker uses a log
    directory, and the errors of `find_leftovers`; then nothing was changed.
    """
    ignored: list[str] = []
    newest = choose(catalog, None, ignored.append).snapshot
    roots = source, index_dir = _roots_of(newest)
    expected = (plan.catalog, plan.source, plan.index_dir)
    current = (catalog.location.uri, newest.source, index_dir.uri)
    for planned, actual in zip(expected, current, strict=True):
        if planned != actual:
            raise PlanError(
                f"the plan is for {planned}, but the catalog has {actual}; make another"
            )
    folders = {Location.of(one.uri).parent for one in plan.leftovers}  # maybe log directories
    with locked(folders | {folder.child("leftover") for folder in folders}, make=not dry_run):
        found = find_leftovers(catalog, newest)
        listed = {(one.uri, one.kind) for one in found.found}

        def take(planned: PlannedLeftover) -> LeftoverResult:
            is_listed = (planned.uri, planned.kind) in listed
            logs = _logs_of(planned, found.logs, roots) if is_listed else None
            return _remove(planned, logs, roots, dry_run=dry_run)

        results = tuple(map_in_order(source, plan.leftovers, take))
    return RemovedLeftovers(plan, dry_run, results, (*ignored, *found.warnings))


def _remove(
    planned: PlannedLeftover, logs: Iterable[Location] | None, roots: _Roots, *, dry_run: bool
) -> LeftoverResult:
    """Remove a leftover if it is still as planned; of a directory all files or none."""
    place, outcome, why = Location.of(planned.uri), LeftoverOutcome.REMOVED, None
    removed: list[PlannedFile] = []
    try:
        if not exists(place):
            outcome = LeftoverOutcome.MISSING
        else:
            for file in _files_there(planned, logs, roots):
                if not dry_run:
                    remove(file.place)
                removed.append(file)
            if planned.is_directory and not dry_run:
                remove_empty_folder(place)
    except Kip33Error as keep:
        outcome, why = LeftoverOutcome.KEPT, str(keep)
    except OSError as error:
        outcome = LeftoverOutcome.FAILED
        why = f"{planned.uri}: cannot be removed: {one_line(error)}"
    size_bytes = sum(file.size_bytes for file in removed)
    return LeftoverResult(planned.kind, planned.uri, outcome, len(removed), size_bytes, why)


def _files_there(
    planned: PlannedLeftover, logs: Iterable[Location] | None, roots: _Roots
) -> list[PlannedFile]:
    """Return the files to remove; PlanError: it stays. Without `logs` it is not listed any more."""
    place = Location.of(planned.uri)
    for one in (place, *(file.place for file in planned.files)):
        if _is_linked(one, roots):
            raise PlanError(f"{one.uri}: is a symbolic link now, or reached by one")
    names = {file.name for file in planned.files}
    for info in _entries_of(place) if planned.is_directory else ():
        if shown_name(info) not in names:
            raise PlanError(f"{place.uri}/{shown_name(info)}: is not in the plan")
    now = files_now(planned.files, unit="ms")
    if now.others:
        raise PlanError(now.others[0])
    if logs is None:
        raise PlanError(
            f"{planned.uri}: is no longer listed as {planned.kind}: its log exists again, or its "
            "directory cannot be listed"
        )
    if log := next(filter(exists, logs), None):
        raise PlanError(f"{place.uri}: its log exists again: {log.uri}")
    return now.there


def _entries_of(directory: Location) -> list[fs.FileInfo]:
    return list(directory.filesystem().get_file_info(fs.FileSelector(directory.path)))
