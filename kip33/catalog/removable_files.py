"""The files of a catalog, listed once, and which of them are not needed any more."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple, Self

from pyarrow import fs

from kip33.catalog.catalog import Catalog
from kip33.catalog.draft import CLAIMS, DEAD_AFTER_MS
from kip33.catalog.folders import Folder, has_own_name, is_orphan_list, list_folders, modified_ms
from kip33.catalog.snapshot import Candidate, sequence_of
from kip33.errors import CatalogError, UnreadableCatalogError
from kip33.stores.locations import Location
from kip33.stores.own_files import TEMPORARY_SUFFIX

YOUNG_MS: Final = 60 * 60 * 1000


class RemovalKind(StrEnum):
    """What a removal removes; each member is its own text."""

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


def _proved(catalog: Catalog) -> Iterator[Candidate]:
    """Yield the candidates; the newest undamaged one is read completely, because others depend on
    it."""
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


class CatalogFiles(NamedTuple):
    """The files of a catalog, listed once."""

    catalog: Catalog
    now_ms: int
    staging: dict[str, Folder]
    folders: dict[str, Folder]
    commits: dict[str, fs.FileInfo]
    orphan_lists: dict[str, fs.FileInfo]  # by snapshot; of a killed commit, by their own name
    claims: dict[str, fs.FileInfo]  # by snapshot
    candidates: list[Candidate]  # newest first
    whole: list[str]  # the names of the undamaged candidates

    @classmethod
    def look(cls, catalog: Catalog, now_ms: int) -> Self:
        """Return what is there.

        Folders are listed before commits, so that a build committed in between does not seem dead.
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
        whole = [candidate.name for candidate in candidates if not candidate.problem]
        return cls(
            catalog, now_ms, staging, folders, commits, orphan_lists, claims, candidates, whole
        )

    def is_surely_past(self, candidate: Candidate) -> bool:
        """Return whether an undamaged snapshot is newer, and this one is readable or damaged."""
        if not self.whole or candidate.name >= self.whole[0]:
            return False
        return not candidate.is_unreadable

    def is_young(self, candidate: Candidate) -> bool:
        """Return whether a snapshot is younger than an hour by any of its times."""
        commit = self.commits.get(candidate.name)
        times = [modified_ms(commit) if commit else None]
        if candidate.snapshot:
            times.append(candidate.snapshot.created_ms)
        return not all(self._is_past(time_ms, YOUNG_MS) for time_ms in times)

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
        """Return a removal limited to our files; a folder with foreign files is kept."""
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
            f"{removal.folder.uri}: contains {len(others)} files that kip33 did not "
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
            older = (base for base in self.whole if _sequence(base) < _sequence(name))
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
        for info in self.commits.values():
            if info.base_name.endswith(TEMPORARY_SUFFIX) and self._is_past(
                modified_ms(info), DEAD_AFTER_MS
            ):  # from a killed commit
                place = self.catalog.location.child(f"commits/{info.base_name}")
                yield Removal(
                    RemovalKind.DEAD_BUILD, info.base_name, (place,), None, info.size or 0
                )
        yield from self._dead_orphan_lists()
        for name, folder in sorted(self.folders.items()):
            if self.whole and name not in self.commits and self._is_dead(name):
                place = self.catalog.snapshot_folder(name)
                yield Removal(RemovalKind.DEAD_BUILD, name, (), place, folder.size_bytes)

    def _dead_orphan_lists(self) -> Iterator[Removal]:
        """Yield removals of orphan lists that no commit names: their builds died before it."""
        for name, info in sorted(self.orphan_lists.items()):
            is_named = name in self.commits or not self.whole
            if not is_named and self._is_past(modified_ms(info), DEAD_AFTER_MS):
                place = self.catalog.location.child(f"orphaned/{info.base_name}")
                yield Removal(RemovalKind.DEAD_BUILD, name, (place,), None, info.size or 0)

    def _needs_claims(self, name: str) -> bool:
        if CLAIMS not in self.staging[name].sizes:
            return False
        newest = self.whole[0] if self.whole else None
        return not newest or _sequence(name) >= _sequence(newest)

    def _is_dead(self, name: str) -> bool:
        there = [folders[name] for folders in (self.staging, self.folders) if name in folders]
        times = [folder.touched_ms for folder in there if folder.touched_ms is not None]
        return self._is_past(max(times, default=None), DEAD_AFTER_MS)

    def _is_past(self, time_ms: int | None, period_ms: int) -> bool:
        return time_ms is not None and self.now_ms - time_ms >= period_ms


def _sequence(name: str) -> int:
    return sequence_of(name) or 0
