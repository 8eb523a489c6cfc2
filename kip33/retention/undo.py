"""Put back what applies of a retention plan moved to a trash.

Only files are moved that the plan and an intent in its journal name, and that are in the plan's
folder of the trash as planned: of the planned size, and with the planned time where a move keeps
it. Nothing that is there is replaced, and nothing is deleted, except the copy in the trash of a
file that is at its place with the same bytes.

The order is that of an apply, from its end: the newest segment first, and its log after its index
files. So whenever a run is killed, the rest has no gap, and a log has its index files. Where a log
does not come back, older segments stay in the trash. The same undo again continues. An undo makes
no new judgement, and a plan may be of any age.
"""

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from kip33.archive.listing import DIRECTORIES_AT_ONCE, topic_id_in
from kip33.archive.plans import info_of, infos_of
from kip33.archive.segment_paths import (
    PartitionFiles,
    PlannedFile,
    as_found,
    is_link,
    is_log,
    list_partition,
)
from kip33.catalog.catalog import Catalog
from kip33.catalog.draft import Draft, last_sequence
from kip33.errors import Kip33Error, PlanError, counted
from kip33.formats.index_kinds import IndexKind
from kip33.formats.names import segment_file_name
from kip33.retention.apply import HAS_A_SWAP, OnRecord, one_at_a_time, side_by_side
from kip33.retention.apply_segment import (
    Journal,
    RecordKind,
    Run,
    StepOutcome,
    journal_place,
)
from kip33.retention.broker_locks import locked
from kip33.retention.make_plan import difference_of, linked_directory
from kip33.retention.plan import PlannedPartition, PlannedSegment, RetentionPlan
from kip33.retention.trash import (
    KEPT_PLAN,
    folder_in_trash,
    keeps_times,
    move_file,
    place_in_trash,
    require_trash,
)
from kip33.stores.directory_checks import require_writable
from kip33.stores.files import one_line
from kip33.stores.locations import Location
from kip33.stores.own_files import make_folder, remove_temporary, temporary_files_of

_AGAIN = "fix it and undo again"


class PartitionUndone(NamedTuple):
    """What an undo did in a partition; for a dry run, what it would do."""

    log_dir: str
    topic: str
    partition: int
    segments_moved: int  # that applies of the plan began to move, as its journal says
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
    require_trash(plan, trash)
    folder, journal = folder_in_trash(plan, trash), journal_place(plan)
    stop = threading.Event()
    tell = one_at_a_time(on_record, stop)
    run = Run(plan, uuid.uuid4().hex[:12], frozenset(), clock, folder, dry_run, tell, stop)
    source, partitions = plan.basis.source, plan.with_segments()
    directories = (
        one.directory for one in partitions if not linked_directory(one.directory, None, source)
    )
    with locked(directories, make=not dry_run), temporary_files_of(plan.plan_id):
        if not dry_run:
            require_writable(journal, "the journal")
            _claim(run, partitions, threads)
        results = side_by_side(run, partitions, threads, _undo_partition)
    touched = tuple(one for one in results if one.segments_moved or one.why)
    if not touched:
        raise PlanError(
            f"{journal.uri}: no apply of plan {plan.plan_id} moved a file, so there is nothing to "
            f"put back; give the plan that was applied: the trash has it as <plan id>/{KEPT_PLAN}"
        )
    return Undone(plan.plan_id, run.run_id, dry_run, journal.uri, folder.uri, touched)


def _claim(run: Run, partitions: list[PlannedPartition], threads: int) -> None:
    """Claim the index files that builds wrote and that come back, so the next build owns them.

    A build since the apply has dropped their rows, and found no file there to list as orphaned.
    """
    basis, found = run.plan.basis, side_by_side(run, partitions, threads, _index_files_to_claim)
    index_uris = [uri for of_partition in found for uri in of_partition]
    if index_uris:
        catalog = Catalog(basis.catalog)
        draft = Draft(catalog, basis.source, last_sequence(catalog), run.run_id)
        draft.claim(pa.array(index_uris, pa.string()))


def _index_files_to_claim(run: Run, partition: PlannedPartition) -> list[str]:
    """Return the URIs of a partition's index files of builds that are in the trash alone."""
    undo = _PartitionUndo(run, partition)
    names = tuple(kind.suffix for kind in (IndexKind.TIME, IndexKind.OFFSET))
    places = [
        undo.places(file)
        for segment in partition.segments
        for file in segment.files
        if file.in_index_dir and file.name.endswith(names)
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
        len(journal.begun_files),
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
        self.segments_put_back = self.segments_there_already = self.bytes_put_back = 0
        self.left: list[str] = []
        self._found: list[_SegmentFiles] = []

    def look(self, journal: Journal) -> None:
        """Look at every file; PlanError if another file is in the way: then nothing is moved."""
        partition, source = self.partition, self.run.plan.basis.source
        for segment in partition.segments:
            named = journal.begun_files.get(segment.base_offset, {})
            if named:
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
                missing = missing or self.partition.place(one.segment.log)
        if missing and held_back:
            self.left.append(
                f"{missing.uri}: without it there would be a gap, so the trash keeps "
                f"{counted(held_back, 'older segment')}"
            )

    def _files_now(self, segment: PlannedSegment, named: dict[str, str | None]) -> _SegmentFiles:
        files = [one for one in segment.files if self.partition.place(one).uri in named]
        infos = infos_of(place for file in files for place in self.places(file))
        by_place = dict(infos)
        found = _SegmentFiles(segment, [], [])
        log_stays = ""
        for file in files:
            place, in_trash = self.places(file)
            is_there = by_place[place].type != fs.FileType.NotFound
            is_in_trash = by_place[in_trash].type != fs.FileType.NotFound
            why = None
            if is_there:
                difference = self._difference(place, file, by_place[place])
                if difference and (is_in_trash or is_log(file)):
                    raise PlanError(f"{difference}; nothing is put over another file")
                why = difference and difference.removeprefix(f"{place.uri}: ")
            else:
                why = log_stays or self._why_left(
                    place, in_trash, file, by_place[in_trash], named[place.uri]
                )
            if why:
                found.left.append(f"{place.uri}: {why}")
                log_stays = log_stays or ("its log is not there" if is_log(file) else "")
            elif is_in_trash:
                found.to_move.append(file)
        return found._replace(log_is_left=bool(log_stays))

    def _why_left(
        self,
        place: Location,
        in_trash: Location,
        file: PlannedFile,
        info: fs.FileInfo,
        named_trash: str | None,
    ) -> str | None:
        """Return why a file that is missing at its place can not be put back; None if it can."""
        if info.type != fs.FileType.NotFound:
            return self._difference(in_trash, file, info)
        if named_trash is None:
            return "an apply without a trash deleted it"
        if self.run.trash and named_trash != self.run.trash.uri:
            return f"it is not in this trash; it was moved to {named_trash}"
        return f"it is not in the trash: {in_trash.uri}"

    def _difference(self, place: Location, file: PlannedFile, info: fs.FileInfo) -> str | None:
        """Return how a file differs from the plan; the time counts only where a move keeps it."""
        if is_link(place):
            return f"{place.uri}: a link found, expected a file"
        if not keeps_times(*self.places(file)):
            file = file._replace(last_modified_ns=as_found(info, place).last_modified_ns)
        return difference_of(place, file, info)

    def _require_same_log(self, files: PartitionFiles) -> None:
        """Raise PlanError for another topic's log, or if a gap would follow what comes back."""
        planned = [one.base_offset for one in self.partition.segments]
        kept, directory = self.partition.first_kept_base_offset, self.partition.directory
        end = planned[-1] + 1 if kept is None else kept
        logs, topic_id = files.logs(), self.partition.topic_id
        found_id = self._topic_id_now() if topic_id else None
        if found_id and found_id != topic_id:
            raise PlanError(
                f"{directory.uri}: topic id {found_id} found, the plan says {topic_id}: the topic "
                "was created again"
            )

        def uri_of(base_offset: int) -> str:
            return directory.child(segment_file_name(base_offset, "log")).uri

        others = [one for one in logs if one < end and one not in planned]
        if others:
            raise PlanError(f"{uri_of(others[0])}: is not in the plan, but older than what it kept")
        if any(swap < end for swap in files.swaps):
            raise PlanError(f"{directory.uri}: {HAS_A_SWAP}")
        newest = self._found[-1].segment.base_offset
        follow = [*(one for one in planned if one > newest), *([] if kept is None else [kept])]
        missing = next((one for one in follow if one not in logs), None)
        if missing is not None:
            raise PlanError(
                f"{uri_of(missing)}: is missing, and without it a gap would follow what comes "
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
        place, in_trash = self.places(file)
        if self.run.dry_run:
            return
        try:
            move_file(in_trash, place, size_bytes=file.size_bytes)
            info = info_of(place)
        except OSError as error:
            raise Kip33Error(
                f"{place.uri}: cannot be put back: {one_line(error)}; {_AGAIN}"
            ) from error
        difference = self._difference(place, file, info) if info else f"{place.uri}: is missing"
        if difference:
            raise Kip33Error(f"{difference}, after it was put back; {_AGAIN}")

    def _remove_unfinished(self) -> None:
        """Remove the temporary copies that a killed undo of this plan left beside the files."""
        folders: dict[Location, list[str]] = {}
        for one in self._found:
            for file in one.to_move:
                place = self.partition.place(file)
                folders.setdefault(place.parent, []).append(file.name)
        for folder, names in folders.items():
            if folder.is_local and not self.run.dry_run:
                make_folder(folder)
                remove_temporary(folder, names, self.run.plan.plan_id)

    def places(self, file: PlannedFile) -> tuple[Location, Location]:
        """Return where a file was, and where it is in the trash."""
        assert self.run.trash is not None
        source = self.run.plan.basis.source
        in_trash = place_in_trash(self.run.trash, self.partition, source, file)
        return self.partition.place(file), in_trash
