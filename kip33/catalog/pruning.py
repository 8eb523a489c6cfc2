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
from typing import NamedTuple

from kip33.catalog.catalog import Catalog
from kip33.catalog.removable_files import CatalogFiles, Removal, RemovalKind
from kip33.stores.files import one_line, size_of
from kip33.stores.locations import Location


class Plan(NamedTuple):
    """What to remove, in this order, and what to report about the rest."""

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

    def count(self, *kinds: str) -> int:
        """Return the number of removals of these kinds."""
        return sum(removal.what in kinds for removal in self.removed)


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
    found = CatalogFiles.look(catalog, now_ms)
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


def _delete(delete: Callable[[str], None], place: Location) -> None:
    try:
        delete(place.path)
    except FileNotFoundError:
        return  # another process is pruning, too
