"""Put back what applies of a retention plan moved to a trash.

Only files are moved that the plan and an intent in its journal name, and that are in the plan's
folder of the trash as planned: of the planned size, and with the planned time where a move keeps
it. If the catalog was built anew, the journal went with the old one. Then the copy of the plan in
the trash shows that the files beside it are the plan's. Nothing that is there is replaced, and
nothing is deleted, except the copy in the trash of a file that is at its place with the same bytes.

The order is that of an apply, from its end: the newest segment first, and its log after its index
files. So whenever a run is killed, the rest has no gap, and a log has its index files. Where a log
does not come back, older segments stay in the trash. The same undo again continues. An undo makes
no new judgement, and a plan may be of any age.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from kip33.archive.broker_locks import locked
from kip33.archive.listing import DIRECTORIES_AT_ONCE, topic_id_in
from kip33.archive.removal import difference_of, info_of, infos_of, move_file
from kip33.archive.segment_paths import (
    PartitionFiles,
    PlannedFile,
    is_link,
    is_log,
    list_partition,
)
from kip33.catalog.catalog import Catalog
from kip33.catalog.draft import Draft, last_sequence
from kip33.errors import Kip33Error, PlanError, counted
from kip33.formats.index_kinds import IndexKind
from kip33.retention.apply_segment import (
    KEPT_PLAN,
    Journal,
    OnRecord,
    RecordKind,
    Run,
    StepOutcome,
    folder_in_trash,
)
from kip33.retention.make_plan import HAS_A_SWAP, linked_directory
from kip33.retention.plan import PlannedPartition, PlannedSegment, RetentionPlan, read_plan
from kip33.stores.files import one_line
from kip33.stores.locations import Location
from kip33.stores.own_files import make_folder, remove_temporary, temporary_files_of

_AGAIN = "fix it and undo again"


class PartitionUndone(NamedTuple):
    """What an undo did in a partition; for a dry run, what it would do."""

    log_dir: str
    topic: str
    partition: int
    segments_moved: int  # that applies of the plan began to move, by its journal or the trash
    segments_put_back: int  # by this run
    segments_there_already: int
    bytes_put_back: int  # of all files, by this run
    outcome: StepOutcome  # `put_back`, or `not_put_back` if a file that was moved is elsewhere
    why: str | None  # the first reason
    left: tuple[str, ...] = ()  # a line for each file that is not put back
    is_refused: bool = False  # by a check, not by an error


@dataclass(frozen=True)
class Undone:
    """The result of an undo; for a dry run, the result it would have had."""

    plan_id: str
    run_id: str
    dry_run: bool
    journal: str  # URI of the plan's journal
    trash: str  # URI of the plan's folder in the trash
    partitions: tuple[PartitionUndone, ...]  # those of which an apply moved a segment

    @property
    def segments_put_back(self) -> int:
        """Return the number of segments that this run put back."""
        return sum(one.segments_put_back for one in self.partitions)

    @property
    def segments_left(self) -> int:
        """Return the number of segments of which a file is not put back."""
        return sum(
            one.segments_moved - one.segments_put_back - one.segments_there_already
            for one in self.partitions
        )

    @property
    def findings(self) -> list[str]:
        """Return `not_put_back` if a file is not."""
        is_left = any(one.outcome == StepOutcome.NOT_PUT_BACK for one in self.partitions)
        return [str(StepOutcome.NOT_PUT_BACK)] if is_left else []

    @property
    def is_incomplete(self) -> bool:
        """Return whether an error ended a partition."""
        return any(one.why and not one.is_refused for one in self.partitions)

    def as_record(self) -> dict[str, Any]:
        """Return the summary of the command, without its time."""
        there = sum(one.segments_there_already for one in self.partitions)
        return {
            "plan_id": self.plan_id,
            "run_id": self.run_id,
            "dry_run": self.dry_run,
            "partitions": len(self.partitions),
            "segments_put_back": self.segments_put_back,
            "segments_there_already": there,
            "segments_not_put_back": self.segments_left,
            "bytes_put_back": sum(one.bytes_put_back for one in self.partitions),
            "journal": self.journal,
            "trash": self.trash,
            "findings": self.findings,
        }


def undo_plan(
    plan: RetentionPlan,
    trash: Location,
    *,
    clock: Callable[[], int],
    dry_run: bool = False,
    threads: int = DIRECTORIES_AT_ONCE,
    on_record: OnRecord | None = None,
) -> Undone:
    """Put back what applies of the plan moved to `trash`; return a row for each partition.

    `clock` gives the time in ms. `on_record` is called as by `apply_plan`. Raises PlanError,
    LockedError or LocationError if the undo is refused; then nothing was changed.
    """
    folder = folder_in_trash(plan, trash)
    run = Run(
        plan, clock, folder, dry_run, on_record, is_plan_in_trash=_has_this_plan(folder, plan)
    )
    journal = run.journal.uri
    with (
        locked(run.directories(), make=not dry_run),
        run.alone(),
        temporary_files_of(plan.plan_id),
    ):
        if not dry_run:
            _claim(run, threads)
        results = run.side_by_side(threads, _undo_partition)
    touched = tuple(one for one in results if one.segments_moved or one.why)
    if not touched:
        raise PlanError(
            f"{journal}: no apply of plan {plan.plan_id} moved a file, and {folder.uri} has none "
            "of its files, so there is nothing to put back; give the plan that was applied: the "
            f"trash has it as <plan id>/{KEPT_PLAN}"
        )
    return Undone(plan.plan_id, run.run_id, dry_run, journal, folder.uri, touched)


def _has_this_plan(folder: Location, plan: RetentionPlan) -> bool:
    """Whether an apply of this plan began to move files to its folder of the trash."""
    try:
        return read_plan(folder.child(KEPT_PLAN)).plan_id == plan.plan_id
    except PlanError:
        return False


def _claim(run: Run, threads: int) -> None:
    """Claim the index files that builds wrote and that come back, so the next build owns them.

    A build since the apply has dropped their rows, and found no file there to list as orphaned. A
    build that is under way may have listed before the files came back, so its commit does not end
    the claim: its number is above those of all builds under way.
    """
    basis, found = run.plan.basis, run.side_by_side(threads, _index_files_to_claim)
    index_uris = [uri for of_partition in found for uri in of_partition]
    if index_uris:
        catalog = Catalog(basis.catalog)
        under_way = len(catalog.infos("staging"))
        number = last_sequence(catalog) + under_way + 1
        draft = Draft(catalog, basis.source, number, run.run_id)
        draft.claim(pa.array(index_uris, pa.string()))


def _index_files_to_claim(run: Run, partition: PlannedPartition) -> list[str]:
    """Return the URIs of a partition's index files of builds that are in the trash alone."""
    names = tuple(kind.suffix for kind in (IndexKind.TIME, IndexKind.OFFSET))
    places = [
        (file.place, run.in_trash(partition, file).place)
        for segment in partition.segments
        for file in segment.files
        if file.folder != partition.directory and file.name.endswith(names)
    ]
    try:
        infos = dict(infos_of(chain.from_iterable(places)))
    except OSError:  # the undo of the partition says so
        return []
    missing = fs.FileType.NotFound
    return [
        place.uri
        for place, in_trash in places
        if infos[place].type == missing and infos[in_trash].type != missing
    ]


def _undo_partition(run: Run, partition: PlannedPartition) -> PartitionUndone:
    """Put back the segments, newest first; a difference or a fault is in the result."""
    journal, undo = Journal(run, partition), _PartitionUndo(run, partition)
    refused = True
    try:
        journal.load()
        undo.look(journal)
        undo.put_back(journal)
        why = undo.left[0] if undo.left else None
    except Kip33Error as error:
        why, refused = str(error), isinstance(error, PlanError)
    except OSError as error:
        why, refused = f"{partition.directory.uri}: {one_line(error)}; {_AGAIN}", False
    left = tuple(undo.left) if why in undo.left else (*filter(None, [why]), *undo.left)
    return PartitionUndone(
        *partition.key,
        undo.segments_moved,
        undo.segments_put_back,
        undo.segments_there_already,
        undo.bytes_put_back,
        StepOutcome.NOT_PUT_BACK if why else StepOutcome.PUT_BACK,
        why,
        left,
        bool(why) and refused,
    )


class _SegmentFiles(NamedTuple):
    """What is to be done with the files of a segment that an apply may have moved."""

    segment: PlannedSegment
    to_move: list[PlannedFile]
    left: list[str]  # a line for each file that can not be put back
    log_is_left: bool = False


class _PartitionUndo:
    """A partition in progress: first every file is looked at, then files are moved."""

    def __init__(self, run: Run, partition: PlannedPartition) -> None:
        self.run, self.partition = run, partition
        self.segments_moved = self.segments_there_already = 0
        self.segments_put_back = self.bytes_put_back = 0
        self.left: list[str] = []
        self._found: list[_SegmentFiles] = []
        # An apply that goes on beside this undo may still delete what comes back.
        self._leaves_copies = not run.is_surely_alone

    def look(self, journal: Journal) -> None:
        """Look at every file; PlanError if another file is in the way: then nothing is moved."""
        partition, source = self.partition, self.run.plan.basis.source
        begun = journal.begun_files or self._files_in_trash()
        self.segments_moved = len(begun)
        for segment in partition.segments:
            if named := begun.get(segment.base_offset):
                self._found.append(self._files_now(segment, named))
        if not any(one.to_move for one in self._found):
            return
        linked = linked_directory(partition.directory, partition.index_directory, source)
        if linked:
            raise PlanError(linked)
        if not partition.directory.is_object_store and not info_of(partition.directory):
            raise PlanError(
                f"{partition.directory.uri}: the directory is missing, so the topic may be deleted"
            )
        self._require_same_log(list_partition(partition.directory, may_be_absent=True))

    def _files_in_trash(self) -> dict[int, dict[str, str | None]]:
        """The files of each segment of which the trash has a file, as `Journal.begun_files`."""
        run, found = self.run, dict[int, dict[str, str | None]]()
        if not run.trash or not run.is_plan_in_trash:
            return found
        for segment in self.partition.segments:
            moved = (run.in_trash(self.partition, file).place for file in segment.files)
            if any(info.type != fs.FileType.NotFound for _, info in infos_of(moved)):
                files = {file.place.uri: run.trash.uri for file in segment.files}
                found[segment.base_offset] = {**files}
        return found

    def put_back(self, journal: Journal) -> None:
        """Move the files, newest segment first; Kip33Error or OSError ends the partition."""
        self._remove_unfinished()
        missing: Location | None = None  # the newest log that does not come back
        held_back = 0
        for one in reversed(self._found):
            if self.run.interrupted.is_set():
                raise Kip33Error("interrupted; undo again to continue")
            if missing and one.to_move:
                held_back += 1
                self.left += one.left
                continue
            self._put_back(one, journal)
            if one.log_is_left:
                missing = missing or one.segment.log.place
        if missing and held_back:
            self.left.append(
                f"{missing.uri}: without it there would be a gap, so the trash keeps "
                f"{counted(held_back, 'older segment')}"
            )

    def _files_now(self, segment: PlannedSegment, named: dict[str, str | None]) -> _SegmentFiles:
        files = {file: self.run.in_trash(self.partition, file) for file in segment.files}
        files = {file: moved for file, moved in files.items() if file.place.uri in named}
        by_place = dict(infos_of(one.place for both in files.items() for one in both))
        found = _SegmentFiles(segment, [], [])
        log_stays = ""
        for file, moved in files.items():
            uri, info, in_trash = file.place.uri, by_place[file.place], by_place[moved.place]
            is_in_trash = in_trash.type != fs.FileType.NotFound
            if info.type != fs.FileType.NotFound:
                why = self._difference(file, file, info)
                if why and (is_in_trash or is_log(file)):
                    raise PlanError(f"{why}; nothing is put over another file")
                why = why and why.removeprefix(f"{uri}: ")
                is_in_trash = is_in_trash and not self._leaves_copies
            elif log_stays or is_in_trash:
                why = log_stays or self._difference(moved, file, in_trash)
            elif (named_trash := named[uri]) is None:
                why = "an apply without a trash deleted it"
            elif self.run.trash and named_trash != self.run.trash.uri:
                why = f"it is not in this trash; it was moved to {named_trash}"
            else:
                why = f"it is not in the trash: {moved.place.uri}"
            if why:
                found.left.append(f"{uri}: {why}")
                log_stays = log_stays or ("its log is not there" if is_log(file) else "")
            elif is_in_trash:
                found.to_move.append(file)
        return found._replace(log_is_left=bool(log_stays))

    def _difference(self, found: PlannedFile, file: PlannedFile, info: fs.FileInfo) -> str | None:
        """Return how a file at its place or in the trash differs from the plan.

        The time counts only where a move keeps it.
        """
        if is_link(found.place):
            return f"{found.place.uri}: a link found, expected a file"
        assert self.run.trash is not None
        keeps_time = file.folder.root == self.run.trash.root and not file.folder.is_object_store
        return difference_of(found, info, "ns" if keeps_time else None)

    def _require_same_log(self, files: PartitionFiles) -> None:
        """Raise PlanError for another topic's log, or if a gap would follow what comes back."""
        planned = [one.base_offset for one in self.partition.segments]
        kept, directory = self.partition.first_kept_base_offset, self.partition.directory
        end = planned[-1] + 1 if kept is None else kept
        logs, topic_id = files.logs(), self.partition.topic_id
        log_uri = self.partition.log_uri
        found_id = self._topic_id_now() if topic_id else None
        if found_id and found_id != topic_id:
            raise PlanError(
                f"{directory.uri}: topic id {found_id} found, the plan says {topic_id}: the topic "
                "was created again"
            )
        others = [one for one in logs if one < end and one not in planned]
        if others:
            raise PlanError(
                f"{log_uri(others[0])}: is not in the plan, but older than what it kept"
            )
        if any(swap < end for swap in files.swaps):
            raise PlanError(f"{directory.uri}: {HAS_A_SWAP}")
        newest = self._found[-1].segment.base_offset
        follow = [*(one for one in planned if one > newest), *([] if kept is None else [kept])]
        missing = next((one for one in follow if one not in logs), None)
        if missing is not None:
            raise PlanError(
                f"{log_uri(missing)}: is missing, and without it a gap would follow what comes "
                "back; undo a later plan first if that moved it"
            )

    def _topic_id_now(self) -> str | None:
        """Return the topic's id in the directory, None if a copy of the logs alone is there."""
        try:
            return topic_id_in(self.partition.directory)
        except FileNotFoundError:
            return None
        except ValueError as error:
            uri = self.partition.directory.uri
            raise PlanError(f"{uri}: the topic's id cannot be read: {one_line(error)}") from error

    def _put_back(self, found: _SegmentFiles, journal: Journal) -> None:
        base_offset, moved = found.segment.base_offset, list[PlannedFile]()
        self.left += found.left
        self.segments_there_already += not found.to_move and not found.left
        if not found.to_move:
            return
        self.run.record_change()
        journal.put(base_offset, RecordKind.UNDO_INTENT, found.to_move, None)
        why: str | None = "interrupted"
        try:
            for file in reversed(found.to_move):
                self._move(file)
                moved.append(file)
                self.bytes_put_back += file.size_bytes
            why = found.left[0] if found.left else None
        except Kip33Error as error:
            why = str(error)
            raise
        finally:
            outcome = StepOutcome.NOT_PUT_BACK if why else StepOutcome.PUT_BACK
            journal.put(base_offset, outcome, moved, why)
        self.segments_put_back += not found.left

    def _move(self, file: PlannedFile) -> None:
        """Move one file to its place, and look at it there."""
        place = file.place
        if self.run.dry_run:
            return
        try:
            in_trash = self.run.in_trash(self.partition, file).place
            leaves_copy = self._leaves_copies
            move_file(in_trash, place, size_bytes=file.size_bytes, leaves_copy=leaves_copy)
            info = info_of(place)
        except OSError as error:
            raise Kip33Error(
                f"{place.uri}: cannot be put back: {one_line(error)}; {_AGAIN}"
            ) from error
        difference = self._difference(file, file, info) if info else f"{place.uri}: is missing"
        if difference:
            raise Kip33Error(f"{difference}, after it was put back; {_AGAIN}")

    def _remove_unfinished(self) -> None:
        """Remove the temporary copies that a killed undo of this plan left beside the files."""
        folders: dict[Location, list[str]] = {}
        for one in self._found:
            for file in one.to_move:
                folders.setdefault(file.folder, []).append(file.name)
        for folder, names in folders.items():
            if folder.is_local and not self.run.dry_run:
                make_folder(folder)
                remove_temporary(folder, names, self.run.plan.plan_id)
