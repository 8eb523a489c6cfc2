"""Remove what a catalog no longer needs: old and damaged snapshots, and files of dead builds.

The catalog is listed once and everything to remove is decided before anything is removed. These
are kept:

- the newest `keep` undamaged snapshots, so always the newest undamaged one;
- a snapshot younger than an hour, by its own time or its commit file's, and one that was the newest
  within the last hour because all newer ones are that young: a program may be reading it;
- the undamaged snapshot that a running build began from: the build may carry over rows from it;
- a damaged snapshot newer than every undamaged one: it is the latest state, its parts may only be
  unavailable (an unmounted disk, an unfinished copy), and readers ignore it;
- a snapshot whose commit file cannot be read now, which does not prove that it is damaged;
- files that a build without a commit wrote within 24 hours, and all claims in `staging` until a
  newer snapshot is committed: from them the next build knows which index files kip33 owns;
- everything without a commit in `snapshots/` and `orphaned/` while no snapshot is undamaged: commit
  files may only be unavailable; and everything without a snapshot's name;
- a file that kip33 did not write, and its folder.

A time in the future is treated as young, and so is a missing one.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
from pyarrow import fs

from kip33.catalog.catalog import (
    Candidate,
    Catalog,
    Folder,
    has_own_name,
    is_orphan_list,
    list_folders,
    modified_ms,
    sequence_of,
)
from kip33.catalog.draft import CLAIMS, DEAD_AFTER_MS
from kip33.errors import CatalogError, UnreadableCatalogError, counted
from kip33.options import number_of
from kip33.stores.files import one_line, size_of
from kip33.stores.locations import Location
from kip33.stores.own_files import TEMPORARY_SUFFIX, remove

_YOUNG_MS: Final = 60 * 60 * 1000


_FIELDS: Final[list["pa.Field[Any]"]] = [
    pa.field("what", pa.string(), nullable=False),  # a RemovalKind
    pa.field("name", pa.string(), nullable=False),
    pa.field("size_bytes", pa.int64(), nullable=False),
]
REMOVALS: Final = pa.schema(_FIELDS)


class RemovalKind(StrEnum):
    """The kind of a removed thing; each member is its own text."""

    OLD_SNAPSHOT = "old snapshot"
    DAMAGED_SNAPSHOT = "damaged snapshot"
    DEAD_BUILD = "dead build"


class Removal(NamedTuple):
    """One thing to remove: its files in this order, then its folder if it is removed, too."""

    what: RemovalKind
    name: str
    files: tuple[Location, ...]
    folder: Location | None
    size_bytes: int

    def as_row(self) -> dict[str, Any]:
        """Return the columns of REMOVALS."""
        return {name: getattr(self, name) for name in REMOVALS.names}


class Plan(NamedTuple):
    """The removals in order, and a report about the rest."""

    removals: tuple[Removal, ...]
    kept: int  # committed snapshots that are kept
    kept_young: int  # of these, kept only because one may still be read
    problems: tuple[str, ...]  # one line per kept snapshot that is ignored
    foreign: tuple[str, ...] = ()  # one line per folder kept because of foreign files


class Pruned(NamedTuple):
    """The result of carrying out a plan."""

    plan: Plan
    removed: tuple[Removal, ...]
    failures: tuple[str, ...]  # one line each: what could not be removed, and why

    @property
    def bytes_freed(self) -> int:
        """Return the size of complete removals; a failed one may have removed some files, too."""
        return sum(removal.size_bytes for removal in self.removed)

    @property
    def warnings(self) -> list[str]:
        """Return a line for each snapshot that is ignored, and each folder that stays."""
        ignored = (f"{problem}; this snapshot is ignored" for problem in self.plan.problems)
        return [*ignored, *self.plan.foreign]

    def count(self, *kinds: str) -> int:
        """Return the number of removals of these kinds."""
        return sum(removal.what in kinds for removal in self.removed)

    def table(self) -> pa.Table:
        """Return what was removed as a table of REMOVALS."""
        rows = [removal.as_row() for removal in self.removed]
        return pa.Table.from_pylist(rows, REMOVALS)


def prune(
    catalog: Catalog,
    *,
    keep: int,
    now_ms: int,
    on_plan: Callable[[Plan], None] | None = None,
) -> Pruned:
    """Remove all but the newest `keep` snapshots and files of dead builds; return what was removed.

    `on_plan` is called before anything is removed. A failed removal is a line in `failures`, and
    the others continue. Raises CatalogError, with nothing removed, if the catalog cannot be listed
    or has a snapshot of a later version of kip33.
    """
    plan = plan_pruning(catalog, keep=number_of("keep", keep, least=1), now_ms=now_ms)
    if on_plan:
        on_plan(plan)
    removed: list[Removal] = []
    failures = list(_carry_out(catalog, plan, removed))
    return Pruned(plan, tuple(removed), tuple(failures))


def plan_pruning(catalog: Catalog, *, keep: int, now_ms: int) -> Plan:
    """Return the removals that `prune` would carry out."""
    files = _CatalogFiles.of(catalog, now_ms)
    needed = {*files.undamaged[:keep], *files.bases()}
    removals = list(files.dead_builds())
    problems, kept, kept_young = [], 0, 0
    for candidate in reversed(files.candidates):
        may_go = candidate.name not in needed and files.is_surely_past(candidate)
        if may_go and not files.may_be_read(candidate):
            removals.append(files.removal(candidate))
            continue
        kept += 1
        kept_young += may_go
        if candidate.problem:
            problems.append(candidate.problem)
    foreign = tuple(filter(None, map(files.foreign_in, removals)))
    own_parts = (files.own_part(removal) for removal in removals)
    return Plan(tuple(filter(None, own_parts)), kept, kept_young, tuple(problems), foreign)


def _carry_out(catalog: Catalog, plan: Plan, removed: list[Removal]) -> Iterator[str]:
    """Carry out each removal; add it to `removed`, or yield why it failed."""
    for removal in plan.removals:
        place = catalog.commit_place(removal.name)
        try:
            folder = catalog.snapshot_folder(removal.name)
            is_snapshot = removal.folder == folder or any(map(folder.contains, removal.files))
            is_snapshot |= catalog.orphaned_place(removal.name) in removal.files
            is_dead = removal.what == RemovalKind.DEAD_BUILD
            if is_snapshot and is_dead and size_of(place) is not None:
                continue  # a build that seemed dead has committed it since
            for place in removal.files:
                remove(place)
            if removal.folder:
                place = removal.folder
                with suppress(FileNotFoundError):  # another process is pruning, too
                    place.filesystem().delete_dir(place.path)
        except OSError as error:
            yield (
                f"{place.uri}: cannot be removed: {one_line(error)}; fix it and run the "
                "command again"
            )
        else:
            removed.append(removal)


def _proved(catalog: Catalog) -> Iterator[Candidate]:
    """Yield the candidates; the newest undamaged one is read, because others depend on it."""
    candidates = catalog.candidates()
    for candidate in candidates:
        if candidate.snapshot and not candidate.problem:
            try:
                catalog.require_whole(candidate.snapshot)
            except CatalogError as error:
                is_unreadable = isinstance(error, UnreadableCatalogError)
                yield candidate._replace(problem=str(error), is_unreadable=is_unreadable)
                continue
        yield candidate
        if not candidate.problem:
            break
    yield from candidates


class _CatalogFiles(NamedTuple):
    """The files of a catalog, listed once."""

    catalog: Catalog
    now_ms: int
    staging: dict[str, Folder]
    folders: dict[str, Folder]
    commits: dict[str, fs.FileInfo]
    orphan_lists: dict[str, fs.FileInfo]  # by snapshot; of a killed commit, by their own name
    claims: dict[str, fs.FileInfo]  # by snapshot
    candidates: list[Candidate]  # newest first
    undamaged: list[str]  # the names of the undamaged candidates

    @classmethod
    def of(cls, catalog: Catalog, now_ms: int) -> Self:
        """List a catalog.

        Folders are listed before commits: a build that commits meanwhile does not seem dead.
        """
        staging, folders = list_folders(catalog, "staging"), list_folders(catalog, "snapshots")
        candidates = list(_proved(catalog))
        commits = {info.base_name.removesuffix(".json"): info for info in catalog.infos("commits")}
        orphan_lists, claims = (
            {
                info.base_name.removesuffix(".arrow"): info
                for info in catalog.infos(below)
                if info.type == fs.FileType.File and is_orphan_list(info.base_name)
            }
            for below in ("orphaned", "claims")
        )
        undamaged = [candidate.name for candidate in candidates if not candidate.problem]
        return cls(
            catalog, now_ms, staging, folders, commits, orphan_lists, claims, candidates, undamaged
        )

    def is_surely_past(self, candidate: Candidate) -> bool:
        """Return whether an undamaged snapshot is newer, and this one is readable or damaged."""
        if not self.undamaged or candidate.name >= self.undamaged[0]:
            return False
        return not candidate.is_unreadable

    def is_young(self, candidate: Candidate) -> bool:
        """Return whether a snapshot is younger than an hour by any of its times."""
        commit = self.commits.get(candidate.name)
        times = [modified_ms(commit) if commit else None]
        if candidate.snapshot:
            times.append(candidate.snapshot.created_ms)
        return not all(self._is_past(time_ms, _YOUNG_MS) for time_ms in times)

    def may_be_read(self, candidate: Candidate) -> bool:
        """Return whether a snapshot is young, or was the newest one within the last hour."""
        if self.is_young(candidate):
            return True
        if candidate.problem:  # readers ignore it
            return False
        return all(
            self.is_young(newer)
            for newer in self.candidates
            if not newer.problem and newer.name > candidate.name
        )

    def removal(self, candidate: Candidate) -> Removal:
        """Return the removal of a snapshot: commit first, so no reader finds it without parts."""
        name = candidate.name
        commit, folder = self.commits[name], self.folders.get(name)
        orphans, claims = self.orphan_lists.get(name), self.claims.get(name)
        places = [self.catalog.commit_place(name)]
        places += [self.catalog.orphaned_place(name)] if orphans else []
        places += [self.catalog.claims_place(name)] if claims else []
        beside = (orphans and orphans.size, claims and claims.size)
        sizes = (commit.size, *beside, folder and folder.size_bytes)
        return Removal(
            RemovalKind.DAMAGED_SNAPSHOT if candidate.problem else RemovalKind.OLD_SNAPSHOT,
            name,
            tuple(places),
            self.catalog.snapshot_folder(name) if folder else None,
            sum(size or 0 for size in sizes),
        )

    def own_part(self, removal: Removal) -> Removal | None:
        """Return a removal limited to kip33's files; a folder with foreign files is kept."""
        others, folder = self._others_in(removal), removal.folder
        if not others or folder is None:
            return removal
        sizes = self._folder_of(removal).sizes
        own = [path for path in sizes if path not in others]
        if not own and not removal.files:
            return None
        size_bytes = removal.size_bytes - sum(sizes[path] for path in others)
        files = (*removal.files, *map(folder.child, own))
        return removal._replace(files=files, folder=None, size_bytes=size_bytes)

    def foreign_in(self, removal: Removal) -> str | None:
        """Return a line on foreign files in a folder to remove, None without any."""
        others = self._others_in(removal)
        if not others or removal.folder is None:
            return None
        return (
            f"{removal.folder.uri}: contains {counted(len(others), 'file')} that kip33 did not "
            f"write, for example {others[0]!a}: they stay; move them elsewhere and run "
            "the command again"
        )

    def _others_in(self, removal: Removal) -> list[str]:
        if removal.folder is None:
            return []
        named = {candidate.name: candidate.snapshot for candidate in self.candidates}
        snapshot = named.get(removal.name)
        listed = {part.name for part in snapshot.parts} if snapshot else set()
        sizes = self._folder_of(removal).sizes
        return sorted(path for path in sizes if path not in listed and not has_own_name(path))

    def _folder_of(self, removal: Removal) -> Folder:
        is_staging = removal.folder == self.catalog.staging_folder(removal.name)
        return (self.staging if is_staging else self.folders)[removal.name]

    def bases(self) -> Iterator[str]:
        """Yield the undamaged snapshots from which running builds began."""
        for name in self.staging.keys() - self.commits.keys():
            older = (base for base in self.undamaged if _sequence(base) < _sequence(name))
            if not self._is_dead(name):
                yield from list(older)[:1]

    def dead_builds(self) -> Iterator[Removal]:
        """Yield removals of files that no build writes any more and no reader needs."""
        for name, folder in sorted(self.staging.items()):
            place = self.catalog.staging_folder(name)
            others = {
                path: size
                for path, size in folder.sizes.items()
                if path != CLAIMS and has_own_name(path)
            }
            if self._is_dead(name) and not self._needs_claims(name):
                yield Removal(RemovalKind.DEAD_BUILD, name, (), place, folder.size_bytes)
            elif self._is_dead(name) and others:
                files = tuple(place.child(path) for path in others)
                yield Removal(RemovalKind.DEAD_BUILD, name, files, None, sum(others.values()))
        for name, info in self.commits.items():
            if name.endswith(TEMPORARY_SUFFIX):  # of a killed commit
                yield from self._if_dead("commits", name, info)
        for name, info in sorted(self.orphan_lists.items()):
            if self.undamaged and name not in self.commits:  # its build died before its commit
                yield from self._if_dead("orphaned", name, info)
        for name, folder in sorted(self.folders.items()):
            if self.undamaged and name not in self.commits and self._is_dead(name):
                place = self.catalog.snapshot_folder(name)
                yield Removal(RemovalKind.DEAD_BUILD, name, (), place, folder.size_bytes)

    def _if_dead(self, below: str, name: str, info: fs.FileInfo) -> Iterator[Removal]:
        if self._is_past(modified_ms(info), DEAD_AFTER_MS):
            place = self.catalog.location.child(f"{below}/{info.base_name}")
            yield Removal(RemovalKind.DEAD_BUILD, name, (place,), None, info.size or 0)

    def _needs_claims(self, name: str) -> bool:
        if CLAIMS not in self.staging[name].sizes:
            return False
        newest = self.undamaged[0] if self.undamaged else None
        return not newest or _sequence(name) >= _sequence(newest)

    def _is_dead(self, name: str) -> bool:
        there = [folders[name] for folders in (self.staging, self.folders) if name in folders]
        times = [folder.touched_ms for folder in there if folder.touched_ms is not None]
        return self._is_past(max(times, default=None), DEAD_AFTER_MS)

    def _is_past(self, time_ms: int | None, period_ms: int) -> bool:
        return time_ms is not None and self.now_ms - time_ms >= period_ms


def _sequence(name: str) -> int:
    return sequence_of(name) or 0
