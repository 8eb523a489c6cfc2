"""Removing what a catalog needs no more: old snapshots, damaged ones, what dead builds left.

Decided first, on one look at the catalog; then removed, and nothing else. What stays:

- the newest `keep` snapshots that are whole, so always the newest whole one;
- a snapshot younger than an hour, by its own clock or its commit file's, and one that was the
  newest within the last hour, because all newer ones are so young: a program may read it;
- the whole snapshot that a running build began from: it may carry rows over from it;
- a damaged snapshot newer than every whole one: it is the last state anybody wrote, its parts may
  only be out of sight (a disk that is not mounted, a copy under way), and readers pass it over;
- a snapshot whose commit file cannot be read now, which does not prove that it is damaged;
- what a build without a commit put somewhere within 24 hours, and its claims until a newer
  snapshot is committed: by them the next build knows its own index files;
- all of `snapshots/` and `orphaned/` that has no commit while no snapshot is whole: commit files
  that are only out of sight must not cost the data; and everything without a snapshot's name;
- a file that kip33 did not write, and its folder.

A time in the future is young, and so is one that the store does not tell.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Self

from pyarrow import fs

from kip33.catalog.catalog import Catalog
from kip33.catalog.draft import CLAIMS, DEAD_AFTER_MS
from kip33.catalog.folders import (
    Folder,
    has_own_name,
    is_orphan_list,
    list_folders,
    modified_ms,
)
from kip33.catalog.snapshot import Candidate, sequence_of
from kip33.errors import CatalogError, UnreadableCatalogError
from kip33.stores.files import TEMPORARY_SUFFIX, one_line, size_of
from kip33.stores.locations import Location

YOUNG_MS: Final = 60 * 60 * 1000

OLD, DAMAGED, DEAD_BUILD = "old snapshot", "damaged snapshot", "dead build"


class Removal(NamedTuple):
    """One thing to remove: its files in this order, then its folder if that goes, too."""

    what: str  # OLD | DAMAGED | DEAD_BUILD
    name: str
    files: tuple[Location, ...]
    folder: Location | None
    size_bytes: int


class Plan(NamedTuple):
    """What is to go, in this order, and what is to be said of the rest."""

    removals: tuple[Removal, ...]
    kept: int  # committed snapshots that stay
    kept_young: int  # of them: only because they were the newest within the last hour
    problems: tuple[str, ...]  # of those that stay and count as none, a line each
    foreign: tuple[str, ...] = ()  # folders that stay because of files of others, a line each


class Pruned(NamedTuple):
    """What became of a plan."""

    plan: Plan
    removed: tuple[Removal, ...]
    failures: tuple[str, ...]  # a line each: what could not be removed, and why

    @property
    def bytes_freed(self) -> int:
        """Return the size of what went whole; where that failed, some of it may have gone."""
        return sum(removal.size_bytes for removal in self.removed)

    def count(self, *kinds: str) -> int:
        """Return how many things of these kinds were removed."""
        return sum(removal.what in kinds for removal in self.removed)


def prune(
    catalog: Catalog,
    *,
    keep: int,
    now_ms: int,
    on_plan: Callable[[Plan], None] | None = None,
) -> Pruned:
    """Remove all but the newest `keep` snapshots and what dead builds left; return what went.

    `on_plan` is called before anything is removed. What cannot be removed is a line of
    `failures`, and the rest goes on. Raises CatalogError, with nothing removed, where the catalog
    cannot be listed or has a snapshot of a later version of kip33.
    """
    if keep < 1:
        raise ValueError(f"keep {keep}: expected 1 or more, the newest snapshot always stays")
    plan = plan_pruning(catalog, keep=keep, now_ms=now_ms)
    if on_plan:
        on_plan(plan)
    removed: list[Removal] = []
    failures = list(_carry_out(catalog, plan, removed))
    return Pruned(plan, tuple(removed), tuple(failures))


def plan_pruning(catalog: Catalog, *, keep: int, now_ms: int) -> Plan:
    """Return what `prune` would remove."""
    found = _CatalogFiles.look(catalog, now_ms)
    stay = {*found.whole[:keep], *found.bases()}
    removals = list(found.dead_builds())
    problems, kept, kept_young = [], 0, 0
    for candidate in reversed(found.candidates):
        may_go = candidate.name not in stay and found.is_surely_past(candidate)
        if may_go and not found.may_be_read(candidate):
            removals.append(found.removal(candidate))
            continue
        kept += 1
        kept_young += may_go
        if candidate.problem:
            problems.append(candidate.problem)
    foreign = tuple(filter(None, map(found.foreign_in, removals)))
    wanted = (found.own_part(removal) for removal in removals)
    return Plan(tuple(filter(None, wanted)), kept, kept_young, tuple(problems), foreign)


def _carry_out(catalog: Catalog, plan: Plan, removed: list[Removal]) -> Iterator[str]:
    """Remove one thing after the other; add it to `removed` or yield why it did not go."""
    for removal in plan.removals:
        place = catalog.commit_place(removal.name)
        try:
            folder = catalog.snapshot_folder(removal.name)
            is_snapshot = removal.folder == folder or any(map(folder.contains, removal.files))
            is_snapshot |= catalog.orphaned_place(removal.name) in removal.files
            is_dead = removal.what == DEAD_BUILD
            if is_snapshot and is_dead and size_of(place) is not None:
                continue  # a build that looked dead has committed it since
            for place in removal.files:
                _delete(place.filesystem().delete_file, place)
            if removal.folder:
                place = removal.folder
                _delete(place.filesystem().delete_dir, place)
        except OSError as error:
            yield (
                f"{place.uri}: cannot be removed: {one_line(error)}; fix it and run the "
                "command again"
            )
        else:
            removed.append(removal)


def _proved(catalog: Catalog) -> Iterator[Candidate]:
    """Yield the candidates, the newest whole one read to the byte: the others go because of it."""
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


def _delete(delete: Callable[[str], None], place: Location) -> None:
    try:
        delete(place.path)
    except FileNotFoundError:
        return  # somebody else prunes, too


class _CatalogFiles(NamedTuple):
    """A catalog as it was when we looked."""

    catalog: Catalog
    now_ms: int
    staging: dict[str, Folder]
    folders: dict[str, Folder]
    commits: dict[str, fs.FileInfo]
    orphan_lists: dict[str, fs.FileInfo]  # by the snapshot's name; of a killed commit by their own
    candidates: list[Candidate]  # newest first
    whole: list[str]  # the names of those without a problem

    @classmethod
    def look(cls, catalog: Catalog, now_ms: int) -> Self:
        """Return what is there; folders first: what is committed meanwhile does not look dead."""
        staging, folders = list_folders(catalog, "staging"), list_folders(catalog, "snapshots")
        candidates = list(_proved(catalog))
        commits = {info.base_name.removesuffix(".json"): info for info in catalog.infos("commits")}
        orphan_lists = {
            info.base_name.removesuffix(".arrow"): info
            for info in catalog.infos("orphaned")
            if info.type == fs.FileType.File and is_orphan_list(info.base_name)
        }
        whole = [candidate.name for candidate in candidates if not candidate.problem]
        return cls(catalog, now_ms, staging, folders, commits, orphan_lists, candidates, whole)

    def is_surely_past(self, candidate: Candidate) -> bool:
        """Return whether a whole snapshot is newer, and this one whole or proved to be damaged."""
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
        if candidate.problem:  # readers pass it over
            return False
        return all(
            self.is_young(newer)
            for newer in self.candidates
            if not newer.problem and newer.name > candidate.name
        )

    def removal(self, candidate: Candidate) -> Removal:
        """Return how a snapshot goes: its commit first, no reader finds one without its parts."""
        name = candidate.name
        commit, folder = self.commits[name], self.folders.get(name)
        orphans = self.orphan_lists.get(name)
        places = [self.catalog.commit_place(name)]
        places += [self.catalog.orphaned_place(name)] if orphans else []
        sizes = (commit.size, orphans and orphans.size, folder and folder.size_bytes)
        return Removal(
            DAMAGED if candidate.problem else OLD,
            name,
            tuple(places),
            self.catalog.snapshot_folder(name) if folder else None,
            sum(size or 0 for size in sizes),
        )

    def own_part(self, removal: Removal) -> Removal | None:
        """Return what of a removal is ours: with files of others in its folder, that stays."""
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
        """Return what to say of files of others in a folder that would go, None without any."""
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
        """Yield the whole snapshots that running builds began from."""
        for name in self.staging.keys() - self.commits.keys():
            older = (base for base in self.whole if _sequence(base) < _sequence(name))
            if not self._is_dead(name):
                yield from list(older)[:1]

    def dead_builds(self) -> Iterator[Removal]:
        """Yield what no build writes any more and no reader looks for."""
        for name, folder in sorted(self.staging.items()):
            place = self.catalog.staging_folder(name)
            others = {
                path: size
                for path, size in folder.sizes.items()
                if path != CLAIMS and has_own_name(path)
            }
            if self._is_dead(name) and not self._needs_claims(name):
                yield Removal(DEAD_BUILD, name, (), place, folder.size_bytes)
            elif self._is_dead(name) and others:
                files = tuple(place.child(path) for path in others)
                yield Removal(DEAD_BUILD, name, files, None, sum(others.values()))
        for info in self.commits.values():
            if info.base_name.endswith(TEMPORARY_SUFFIX) and self._is_past(
                modified_ms(info), DEAD_AFTER_MS
            ):  # of a commit that was killed
                place = self.catalog.location.child(f"commits/{info.base_name}")
                yield Removal(DEAD_BUILD, info.base_name, (place,), None, info.size or 0)
        yield from self._dead_orphan_lists()
        for name, folder in sorted(self.folders.items()):
            if self.whole and name not in self.commits and self._is_dead(name):
                place = self.catalog.snapshot_folder(name)
                yield Removal(DEAD_BUILD, name, (), place, folder.size_bytes)

    def _dead_orphan_lists(self) -> Iterator[Removal]:
        """Yield the lists of orphaned files that no commit names: their builds died before it."""
        for name, info in sorted(self.orphan_lists.items()):
            is_named = name in self.commits or not self.whole
            if not is_named and self._is_past(modified_ms(info), DEAD_AFTER_MS):
                place = self.catalog.location.child(f"orphaned/{info.base_name}")
                yield Removal(DEAD_BUILD, name, (place,), None, info.size or 0)

    def _needs_claims(self, name: str) -> bool:
        if CLAIMS not in self.staging[name].sizes:
            return False
        newest = self.whole[0] if self.whole else None
        return not newest or (name != newest and _sequence(name) >= _sequence(newest))

    def _is_dead(self, name: str) -> bool:
        there = [folders[name] for folders in (self.staging, self.folders) if name in folders]
        times = [folder.touched_ms for folder in there if folder.touched_ms is not None]
        return self._is_past(max(times, default=None), DEAD_AFTER_MS)

    def _is_past(self, time_ms: int | None, period_ms: int) -> bool:
        return time_ms is not None and self.now_ms - time_ms >= period_ms


def _sequence(name: str) -> int:
    return sequence_of(name) or 0
