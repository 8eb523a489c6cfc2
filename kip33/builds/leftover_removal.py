"""Carry out a plan of leftovers: remove what is still as planned, and say what stays and why.

SOURCE and the index directory are listed again with the newest snapshot, so a plan that is old, or
was made by hand, removes nothing that is not a leftover now. Right before its removal each file is
checked again: its size and time must be as planned, and its log must not exist. A plan can be
applied again after any interruption.
"""

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pyarrow import fs

from kip33.archive.leftover_files import Leftover, LeftoverKind
from kip33.archive.segment_paths import is_link
from kip33.builds.leftovers import (
    LeftoverLogs,
    LeftoverPlan,
    PlannedLeftover,
    PlannedLeftoverFile,
    find_leftovers,
    index_dir_of,
    is_linked,
)
from kip33.catalog.catalog import Catalog, choose
from kip33.errors import Kip33Error, PlanError
from kip33.retention.broker_locks import locked
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import one_line, shown_name, status_of
from kip33.stores.locations import Location
from kip33.stores.own_files import remove, remove_empty_folder


class LeftoverOutcome(StrEnum):
    """The outcome for a planned leftover; each member is its own text."""

    REMOVED = "removed"
    MISSING = "already removed"
    KEPT = "kept"
    FAILED = "not removed"  # the store refused


class LeftoverResult(NamedTuple):
    """The outcome of a planned leftover; `why` it was kept or not removed."""

    leftover: PlannedLeftover
    outcome: LeftoverOutcome
    files: int = 0  # removed
    size_bytes: int = 0
    why: str | None = None


@dataclass(frozen=True)
class RemovedLeftovers:
    """The result of an apply; for a dry run, the result it would have had."""

    plan: LeftoverPlan
    dry_run: bool
    results: tuple[LeftoverResult, ...]
    warnings: tuple[str, ...]

    def count(self, outcome: LeftoverOutcome) -> int:
        """Return the number of leftovers with an outcome."""
        return sum(1 for one in self.results if one.outcome == outcome)

    @property
    def files(self) -> int:
        """Return the number of removed files."""
        return sum(one.files for one in self.results)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all removed files."""
        return sum(one.size_bytes for one in self.results)


def remove_leftovers(
    catalog: Catalog, plan: LeftoverPlan, *, dry_run: bool = False
) -> RemovedLeftovers:
    """Remove the leftovers of a plan; return a result for each, in the plan's order.

    Raises PlanError if the plan is of another catalog or SOURCE, LockedError if a broker uses a log
    directory, and the errors of `find_leftovers`; then nothing was changed.
    """
    ignored: list[str] = []
    newest = choose(catalog, None, ignored.append).snapshot
    expected = (plan.catalog, plan.source, plan.index_dir)
    current = (catalog.location.uri, newest.source, index_dir_of(newest).uri)
    for planned, actual in zip(expected, current, strict=True):
        if planned != actual:
            raise PlanError(
                f"the plan is for {planned}, but the catalog has {actual}; make another"
            )
    with locked(_places(plan), make=not dry_run):
        leftovers = find_leftovers(catalog, newest)
        there = {(one.uri, one.kind): one for one in leftovers.found}
        logs = LeftoverLogs.of(catalog, newest)
        removal = _Removal(logs, there, dry_run)
        results = tuple(map_in_order(logs.source, plan.leftovers, removal.take))
    return RemovedLeftovers(plan, dry_run, results, (*ignored, *leftovers.warnings))


def _places(plan: LeftoverPlan) -> set[Location]:
    """Return places whose parents may be log directories: of partitions, and of leftovers."""
    folders = {Location.of(one.uri).parent for one in plan.leftovers}
    return folders | {folder.child("leftover") for folder in folders}


class _KeepError(Exception):
    """A reason to keep a leftover."""


class _Removal:
    """Removes one leftover after another."""

    def __init__(
        self, logs: LeftoverLogs, there: dict[tuple[str, LeftoverKind], Leftover], dry_run: bool
    ) -> None:
        self._logs, self._there, self._dry_run = logs, there, dry_run

    def take(self, planned: PlannedLeftover) -> LeftoverResult:
        """Remove a leftover if it is still as planned; of a directory all files or none."""
        files = size_bytes = 0
        try:
            there = self._as_planned(planned)
            if there is None:
                return LeftoverResult(planned, LeftoverOutcome.MISSING)
            for file in there:
                if not self._dry_run:
                    remove(Location.of(file.uri))
                files += 1
                size_bytes += file.size_bytes
            if planned.is_directory and not self._dry_run:
                remove_empty_folder(Location.of(planned.uri))
        except (_KeepError, Kip33Error) as keep:
            return LeftoverResult(planned, LeftoverOutcome.KEPT, why=str(keep))
        except OSError as error:
            why = f"{planned.uri}: cannot be removed: {one_line(error)}"
            return LeftoverResult(planned, LeftoverOutcome.FAILED, files, size_bytes, why)
        return LeftoverResult(planned, LeftoverOutcome.REMOVED, files, size_bytes)

    def _as_planned(self, planned: PlannedLeftover) -> list[PlannedLeftoverFile] | None:
        """Return the files to remove, None if the leftover is missing; _KeepError: it stays."""
        place = Location.of(planned.uri)
        if not _exists(place):
            return None
        if is_linked(place, self._logs.roots):
            raise _KeepError(f"{place.uri}: is a symbolic link now, or reached by one")
        if planned.is_directory:
            _require_no_other(planned, place)
        files = [file for file in planned.files if _is_as_planned(file)]
        leftover = self._there.get((planned.uri, planned.kind))
        if leftover is None:
            raise _KeepError(
                f"{planned.uri}: is no longer listed as {planned.kind}: its log exists again, or "
                "its directory cannot be listed"
            )
        for log in self._logs.of_leftover(leftover):
            if _exists(log):
                raise _KeepError(f"{place.uri}: its log exists again: {log.uri}")
        return files


def _exists(place: Location) -> bool:
    """Return whether there is anything at a place; OSError if the store does not answer."""
    if place.is_local:
        return os.path.lexists(place.path)
    return bool(place.filesystem().get_file_info(place.path).type != fs.FileType.NotFound)


def _require_no_other(planned: PlannedLeftover, directory: Location) -> None:
    """Raise _KeepError if a directory has an entry that the plan does not have."""
    names = {Location.of(file.uri).name for file in planned.files}
    store = directory.filesystem()
    for info in store.get_file_info(fs.FileSelector(directory.path)):
        if shown_name(info) not in names:
            raise _KeepError(f"{directory.uri}/{shown_name(info)}: is not in the plan")


def _is_as_planned(file: PlannedLeftoverFile) -> bool:
    """Return whether a file exists; _KeepError if it differs from the plan."""
    place = Location.of(file.uri)
    if not _exists(place):
        return False
    if is_link(place):
        raise _KeepError(f"{place.uri}: is a symbolic link now")
    now = status_of(place)
    if now is None:
        raise _KeepError(f"{place.uri}: is not a file now")
    if now.size_bytes != file.size_bytes:
        raise _KeepError(
            f"{place.uri}: {now.size_bytes} bytes found, the plan says {file.size_bytes}"
        )
    if now.modified_ms != file.last_modified_ms:
        raise _KeepError(
            f"{place.uri}: modified at {now.modified_ms} ms, the plan says {file.last_modified_ms}"
        )
    return True
