"""Delete one planned segment: check it, put an intent, delete file by file, put a result.

This order keeps the journal true even if a run is killed: an intent exists before a file is
deleted, and a result exists only after all files are deleted. If a segment's log is missing, the
intents show whether a run of this plan deleted it; otherwise it is a difference from the plan.

The journal is beside the catalog's snapshots:

    CATALOG/retention/<plan id>/
      broker-1/orders-0/                                     a partition, as below SOURCE
        00000000000000000042-91aa3c5e7f02-intent.json        put before the first deletion
        00000000000000000042-91aa3c5e7f02-deleted.json       put after the last

A step is one segment, named by its base offset. Each apply (a run) has an id and writes its own
complete objects, because object stores cannot append. The names alone show how far a plan got:

    intent         all files were as planned; from now on they may be deleted
    deleted        this run deleted all files; with a trash `moved`
    gone_already   all files are deleted; another run deleted the log
    incomplete     the log is deleted, other files may exist: this run was stopped
    stopped        this run changed no file of the segment
    undo_intent    all checks of an undo passed; from now on files may be moved back
    put_back       all files that the intents name are at their places
    not_put_back   some of them are not

With a trash, expired files are moved there (`retention.trash`).
"""

import json
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from pyarrow import fs

from kip33.archive.plans import info_of
from kip33.archive.segment_paths import PlannedFile, is_log
from kip33.catalog.catalog import Catalog
from kip33.errors import Kip33Error, PlanError, PublishError
from kip33.retention.make_plan import FilesNow, difference_of, files_now
from kip33.retention.plan import (
    PARTITION_KEY,
    PlannedPartition,
    PlannedSegment,
    RetentionPlan,
    file_record,
)
from kip33.retention.trash import keep_plan, move_file, place_in_trash
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import entries_of, one_line, read_whole
from kip33.stores.locations import Location
from kip33.stores.own_files import flush, publish_or_raise

CONTINUE: Final = "fix it and apply the plan again"

Record: TypeAlias = dict[str, Any]
"""An object of the journal."""

_MOST_BYTES: Final = 1 << 24
_NAME: Final = re.compile(r"(\d+)-([^-]*)-?(.*)\.json", re.DOTALL)  # base offset, run, what
_CONSEQUENCE: Final = "without it no more segments of its partition are changed"


@dataclass(frozen=True)
class Run:
    """One apply of a plan: the values shared by all its partitions."""

    plan: RetentionPlan
    run_id: str
    known: frozenset[str]  # URIs of the planned logs that are in the newest snapshot
    clock: Callable[[], int]
    trash: Location | None  # this plan's folder in it
    dry_run: bool
    on_record: Callable[[Record], None]
    interrupted: threading.Event = field(default_factory=threading.Event)
    keeping: threading.Lock = field(default_factory=threading.Lock)
    is_plan_kept: threading.Event = field(default_factory=threading.Event)  # in the trash
    continues: set[str] = field(default_factory=set)  # ids of earlier runs, and of those under way


class StepOutcome(StrEnum):
    """How a run of a plan left a segment; each member is its own text, also in names of objects."""

    DELETED = "deleted"
    MOVED = "moved"
    GONE_ALREADY = "gone_already"
    INCOMPLETE = "incomplete"
    STOPPED = "stopped"
    DONE_BEFORE = "done_before"  # an earlier run recorded the result: no new object
    PUT_BACK = "put_back"  # by an undo
    NOT_PUT_BACK = "not_put_back"


class PartitionOutcome(StrEnum):
    """How an apply left a partition; each member is its own text."""

    DONE = "done"  # every planned segment is deleted
    STOPPED = "stopped"  # at a difference from the plan, or a fault of the store


class RecordKind(StrEnum):
    """The kind of an object of the journal; each member is its own text."""

    INTENT = "intent"
    UNDO_INTENT = "undo_intent"
    RESULT = "result"


_INTENTS: Final = frozenset((RecordKind.INTENT, RecordKind.UNDO_INTENT))
DONE_RESULTS: Final = frozenset((StepOutcome.DELETED, StepOutcome.MOVED, StepOutcome.GONE_ALREADY))


class Journal:
    """The journal of one partition: the records of all runs, and those that this run adds.

    An object is believed only if it names the plan, whose id is a checksum, its partition, and
    files of its segment in the plan.
    """

    def __init__(self, run: Run, partition: PlannedPartition) -> None:
        """Take the place of the journal; `load` reads it."""
        below = partition.below(run.plan.basis.source)
        place = journal_place(run.plan)
        self._folder = place.child(below) if below else place
        self._run, self._run_id = run, run.run_id
        self._plan_id, self._partition = run.plan.plan_id, partition
        self.begun_files: dict[int, dict[str, str | None]] = {}
        """What intents name, by base offset: URIs, and the trash of the last one that was read."""
        self._planned = {segment.base_offset: segment for segment in partition.segments}
        self._believed: set[str] = set()  # names of objects
        self._by_step: dict[int, set[tuple[str, str]]] = {}  # (run id, what) by base offset

    @property
    def other_runs(self) -> set[str]:
        """Return the ids of the other runs that put an object."""
        runs = {run_id for step in self._by_step.values() for run_id, _ in step}
        return runs - {self._run_id}

    def load(self) -> None:
        """Read the objects that are new, including those of runs in progress.

        OSError if that fails, PlanError for an object that no run of this plan put.
        """
        self._by_step = {}
        files = (one for one in entries_of(self._folder) if one.type == fs.FileType.File)
        named = list(filter(None, (_NAME.fullmatch(info.base_name) for info in files)))
        new = [name for name in named if name[0] not in self._believed]
        self._believed.update(map_in_order(self._folder, new, self._require_believable))
        for name in named:
            self._by_step.setdefault(int(name[1]), set()).add((name[2], name[3]))

    def _require_believable(self, name: re.Match[str]) -> str:
        place = self._folder.child(name[0])
        try:
            record = json.loads(read_whole(place, most_bytes=_MOST_BYTES))
            is_of_plan = self._is_of_step(record, int(name[1]), name[2], name[3])
        except (ValueError, TypeError, KeyError, RecursionError):
            is_of_plan = False
        if not is_of_plan:
            raise PlanError(
                f"{place.uri}: not an object that an apply of plan {self._plan_id} put there; "
                "look where it is from and remove it, then make another plan"
            )
        if name[3] == RecordKind.INTENT:
            files = {file["uri"]: record.get("trash") for file in record["files"]}
            self.begun_files.setdefault(int(name[1]), {}).update(files)
        return name[0]

    def _is_of_step(self, record: Record, base_offset: int, run_id: str, what: str) -> bool:
        outcome = None if what in _INTENTS else what
        expected = self.record_of(base_offset, run_id, what) | {"outcome": outcome}
        planned = self._planned[base_offset].files  # KeyError: not in the plan
        files = [file_record(self._partition, file) for file in planned]
        has_its_files = all(file in files for file in record["files"])
        is_same = all(record[name] == value for name, value in expected.items())
        return has_its_files and is_same and record["dry_run"] is False

    def record_of(self, base_offset: int, run_id: str, what: str) -> Record:
        """Return the first keys of an object."""
        return {
            "kind": what if what in _INTENTS else str(RecordKind.RESULT),
            "plan_id": self._plan_id,
            "run_id": run_id,
            **dict(zip(PARTITION_KEY, self._partition.key, strict=True)),
            "base_offset": base_offset,
        }

    def is_done(self, base_offset: int) -> bool:
        """Return whether a run recorded that all files of a segment are deleted."""
        return any(what in DONE_RESULTS for _, what in self._by_step.get(base_offset, ()))

    def is_put_back(self, base_offset: int) -> bool:
        """Return whether an undo recorded that the files of a segment are at their places."""
        steps = self._by_step.get(base_offset, ())
        return any(what == StepOutcome.PUT_BACK for _, what in steps)

    def is_begun(self, base_offset: int, *, by_another_run: bool = False) -> bool:
        """Return whether a run may have deleted files of a segment."""
        names = self._by_step.get(base_offset, set())
        return any(
            what == RecordKind.INTENT
            and (run_id, StepOutcome.STOPPED) not in names
            and not (by_another_run and run_id == self._run_id)
            for run_id, what in names
        )

    def put(
        self, base_offset: int, what: str, files: Iterable[PlannedFile], why: str | None
    ) -> None:
        """Publish an object and report it; a dry run only reports. PublishError if that fails."""
        run, what = self._run, str(what)
        record = {
            **self.record_of(base_offset, run.run_id, what),
            "at_ms": run.clock(),
            "outcome": None if what in _INTENTS else what,
            "why": why,
            "files": [file_record(self._partition, file) for file in files],
            "trash": run.trash.uri if run.trash else None,
            "dry_run": run.dry_run,
        }
        if not run.dry_run:
            name = f"{base_offset:020d}-{run.run_id}-{what}.json"
            data = (json.dumps(record) + "\n").encode()
            publish_or_raise(self._folder.child(name), data, _CONSEQUENCE)
            self._believed.add(name)
        run.on_record(record)


def journal_place(plan: RetentionPlan) -> Location:
    """Return the folder of a plan's journal."""
    return Catalog(plan.basis.catalog).location.child(f"retention/{plan.plan_id}")


class SegmentStep:
    """One segment in progress; `listed` are its files from the directory's listing."""

    def __init__(
        self,
        run: Run,
        partition: PlannedPartition,
        segment: PlannedSegment,
        journal: Journal,
        listed: list[PlannedFile],
    ) -> None:
        """Take the segment; nothing is done yet."""
        self.run, self.partition, self.segment = run, partition, segment
        self.journal, self.listed = journal, listed
        self.outcome = StepOutcome.DONE_BEFORE
        self.deleted: list[PlannedFile] = []  # by this run
        self.why: str | None = None  # the partition has to stop
        self.refused = False  # because of a difference from the plan, not of an error
        self._may_be_touched = False

    def take(self) -> None:
        """Delete the segment; a difference or a fault of the store is in `why`."""
        base_offset = self.segment.base_offset
        if self.journal.is_done(base_offset) and not any(map(is_log, self.listed)):
            return
        try:
            now = self._files_now()
            self._require_as_planned(now)
            self._keep_plan()
            self._put(RecordKind.INTENT, now.there)
            for file in self.segment.files:
                if file not in now.gone:
                    self._delete(file)
                if is_log(file):
                    self._flush([file])  # a crash must not leave the log without its indexes
            self._flush(self.segment.files)
        except Kip33Error as error:  # PlanError: a difference from the plan
            self.stop(str(error), refused=isinstance(error, PlanError))
        except OSError as error:
            log = self._uri(self.segment.log)
            why = f"{log}: the files cannot be checked: {one_line(error)}; {CONTINUE}"
            self.stop(why, refused=False)
        else:
            self.outcome = StepOutcome.GONE_ALREADY
            if self.segment.log in self.deleted:
                self.outcome = StepOutcome.MOVED if self.run.trash else StepOutcome.DELETED
            self._end()

    def stop(self, why: str, *, refused: bool) -> None:
        """End the partition with this segment, and record it if possible."""
        self.outcome = StepOutcome.INCOMPLETE if self._may_be_touched else StepOutcome.STOPPED
        self.why, self.refused = why, refused
        self._end()

    def _end(self) -> None:
        try:
            self._put(self.outcome, self.deleted)
        except PublishError as error:
            if str(error) not in (self.why or ""):
                self.why = f"{self.why}; {error}" if self.why else str(error)

    def _files_now(self) -> FilesNow:
        """Return the current files; if another run deletes them at the same time, look again."""
        now = files_now(self.partition, self.segment, self.listed)
        if now.gone and self._is_taken_by_another_run():
            return files_now(self.partition, self.segment, self.listed)
        return now

    def _require_as_planned(self, now: FilesNow) -> None:
        """Raise PlanError unless all files are as planned, or a run of this plan began earlier."""
        log, base_offset = self._uri(self.segment.log), self.segment.base_offset
        log_is_there = not any(map(is_log, now.gone))
        if now.others:
            raise PlanError(now.others[0])
        if log_is_there and self.journal.is_done(base_offset):
            again = "was put back" if self.journal.is_put_back(base_offset) else "exists again"
            raise PlanError(f"{log}: {again} after this plan deleted it; make another plan")
        if log_is_there and log not in self.run.known:
            raise PlanError(f"{log}: exists, but is not in the newest snapshot")
        if now.gone and (log_is_there or not self.journal.is_begun(base_offset)):
            missing = self._uri(now.gone[0])
            raise PlanError(f"{missing}: is missing, but this plan did not delete it")

    def _keep_plan(self) -> None:
        """Keep the plan in the trash before the first file is moved there."""
        run = self.run
        if not run.trash or run.dry_run:
            return
        with run.keeping:
            if not run.is_plan_kept.is_set():
                keep_plan(run.plan, run.trash)
                run.is_plan_kept.set()

    def _delete(self, file: PlannedFile) -> None:
        """Delete or move one file that is still as planned; otherwise PlanError or OSError."""
        place = self.partition.place(file)
        info = info_of(place)
        if info is None:
            self._require_taken_by_another_run(place)
            return
        difference = difference_of(place, file, info)
        if difference:
            raise PlanError(difference)
        if self.run.dry_run or self._delete_or_move(place, file):
            self.deleted.append(file)

    def _delete_or_move(self, place: Location, file: PlannedFile) -> bool:
        """Delete or move a file; return whether this run did it; False: another run did."""
        touched_before, self._may_be_touched = self._may_be_touched, True
        try:
            self._remove(place, file)
        except OSError as error:
            is_there = info_of(place) is not None
            was_missing = isinstance(error, FileNotFoundError) and not is_there
            self._may_be_touched = touched_before or not (is_there or was_missing)
            if was_missing:
                self._require_taken_by_another_run(place)
                return False
            if is_there or self.run.trash:
                what = "moved" if self.run.trash else "deleted"
                raise Kip33Error(
                    f"{place.uri}: cannot be {what}: {one_line(error)}; {CONTINUE}"
                ) from error
        return True  # it was deleted, even if the store reports an error

    def _remove(self, place: Location, file: PlannedFile) -> None:
        if self.run.trash:
            source = self.run.plan.basis.source
            target = place_in_trash(self.run.trash, self.partition, source, file)
            move_file(place, target, size_bytes=file.size_bytes)
        else:
            place.filesystem().delete_file(place.path)

    def _flush(self, files: Iterable[PlannedFile]) -> None:
        """Flush the deletion of files to the disk; Kip33Error if that fails."""
        folders = {self.partition.place(file).parent for file in files}
        for folder in sorted(folders, key=lambda folder: folder.uri):
            if self.run.dry_run or not folder.is_local:
                continue
            try:
                flush(folder.path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise Kip33Error(
                    f"{folder.uri}: cannot be flushed to the disk: {one_line(error)}; {CONTINUE}"
                ) from error

    def _require_taken_by_another_run(self, place: Location) -> None:
        if not self._is_taken_by_another_run():
            raise PlanError(f"{place.uri}: was deleted meanwhile, but not by this plan")

    def _is_taken_by_another_run(self) -> bool:
        self.journal.load()
        return self.journal.is_begun(self.segment.base_offset, by_another_run=True)

    def _put(self, what: RecordKind | StepOutcome, files: list[PlannedFile]) -> None:
        self.journal.put(self.segment.base_offset, what, files, self.why)

    def _uri(self, file: PlannedFile) -> str:
        return self.partition.place(file).uri
