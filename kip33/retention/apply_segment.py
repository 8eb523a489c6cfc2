"""Delete one planned segment: check it, put an intent, delete file by file, put a result.

This order keeps the journal true even if a run is killed: an intent exists before a file is
deleted, and a result exists only after all files are deleted. If a segment's log is missing, the
intents show whether a run of this plan deleted it; otherwise it is a difference from the plan.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from kip33.archive.segment_paths import PlannedFile, is_log
from kip33.errors import Kip33Error, PlanError, PublishError
from kip33.retention.journal import Journal
from kip33.retention.outcomes import RecordKind, StepOutcome
from kip33.retention.plan import PlannedPartition, PlannedSegment, RetentionPlan
from kip33.retention.plan_file import PARTITION_KEY, file_record
from kip33.retention.planned_files import Look, difference_of, info_of, look_at
from kip33.retention.trash import move_to_trash
from kip33.stores.files import one_line
from kip33.stores.locations import Location
from kip33.stores.own_files import flush

CONTINUE: Final = "fix it and apply the plan again"

Record: TypeAlias = dict[str, Any]
"""An object of the journal."""


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
    continues: set[str] = field(default_factory=set)  # ids of earlier runs, and of those under way


class Step(NamedTuple):
    """The result for a segment; `why` is set if the partition has to stop."""

    outcome: StepOutcome
    deleted: tuple[PlannedFile, ...] = ()  # by this run
    why: str | None = None
    refused: bool = False  # because of a difference from the plan, not of an error


class _StopError(Exception):
    """A difference from the plan."""


class _FaultError(Exception):
    """An error of the disk or the store."""


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
        self._deleted: list[PlannedFile] = []
        self._may_be_touched = False

    def take(self) -> Step:
        """Delete the segment; a difference or a fault of the store is in the step's `why`."""
        base_offset = self.segment.base_offset
        if self.journal.is_done(base_offset) and not any(is_log(file) for file in self.listed):
            return Step(StepOutcome.DONE_BEFORE)
        try:
            look = self._look()
            self._require_as_planned(look)
            self._put(RecordKind.INTENT, look.there)
            for file in self.segment.files:
                if file not in look.gone:
                    self._delete(file)
                if is_log(file):
                    self._flush([file])  # a crash must not leave the log without its indexes
            self._flush(self.segment.files)
        except (_StopError, PlanError) as stop:  # PlanError: an object of the journal
            return self.stop(str(stop), refused=True)
        except (_FaultError, Kip33Error) as error:  # also of the journal
            return self.stop(str(error), refused=False)
        except OSError as error:
            log = self._uri(self.segment.log)
            why = f"{log}: the files cannot be checked: {one_line(error)}; {CONTINUE}"
            return self.stop(why, refused=False)
        went_now = self.segment.log in self._deleted
        outcome = StepOutcome.GONE_ALREADY
        if went_now:
            outcome = StepOutcome.MOVED if self.run.trash else StepOutcome.DELETED
        try:
            self._put(outcome, self._deleted)
        except PublishError as error:
            return Step(outcome, tuple(self._deleted), str(error))
        return Step(outcome, tuple(self._deleted))

    def stop(self, why: str, *, refused: bool) -> Step:
        """Return the step that ends its partition, and record it if possible."""
        outcome = StepOutcome.INCOMPLETE if self._may_be_touched else StepOutcome.STOPPED
        try:
            self._put(outcome, self._deleted, why)
        except PublishError as error:
            why = why if str(error) in why else f"{why}; {error}"
        return Step(outcome, tuple(self._deleted), why, refused)

    def _look(self) -> Look:
        """Return the current files; if another run deletes them at the same time, look again."""
        look = look_at(self.partition, self.segment, self.listed)
        if look.gone:
            self.journal.load()
            if self.journal.is_begun(self.segment.base_offset, by_another_run=True):
                return look_at(self.partition, self.segment, self.listed)
        return look

    def _require_as_planned(self, look: Look) -> None:
        """Raise _StopError unless all files are as planned, or a run of this plan began earlier."""
        log = self._uri(self.segment.log)
        if look.others:
            raise _StopError(look.others[0])
        if not look.log_is_there:
            if not self.journal.is_begun(self.segment.base_offset):
                raise _StopError(f"{log}: is missing, but this plan did not delete it")
            return
        if self.journal.is_done(self.segment.base_offset):
            raise _StopError(f"{log}: exists again after this plan deleted it")
        if log not in self.run.known:
            raise _StopError(f"{log}: exists, but is not in the newest snapshot")
        if look.gone:
            raise _StopError(
                f"{self._uri(look.gone[0])}: is missing, but this plan did not delete it"
            )

    def _delete(self, file: PlannedFile) -> None:
        """Delete or move one file that is still as planned; otherwise _StopError or OSError."""
        place = self.partition.place(file)
        info = info_of(place)
        if info is None:
            self._require_taken_by_another_run(place)
            return
        difference = difference_of(place, file, info)
        if difference:
            raise _StopError(difference)
        if self.run.dry_run or self._went(place, file):
            self._deleted.append(file)

    def _went(self, place: Location, file: PlannedFile) -> bool:
        """Delete or move a file; return whether this run did it; False: another run did."""
        touched_before, self._may_be_touched = self._may_be_touched, True
        try:
            self._remove(place, file)
        except OSError as error:
            is_there = info_of(place) is not None
            was_gone = isinstance(error, FileNotFoundError) and not is_there
            self._may_be_touched = touched_before or not (is_there or was_gone)
            if was_gone:
                self._require_taken_by_another_run(place)
                return False
            if is_there or self.run.trash:
                what = "moved" if self.run.trash else "deleted"
                raise _FaultError(
                    f"{place.uri}: cannot be {what}: {one_line(error)}; {CONTINUE}"
                ) from error
        return True  # it was deleted, even if the store reports an error

    def _remove(self, place: Location, file: PlannedFile) -> None:
        if self.run.trash:
            kind = "indexes" if file.in_index_dir else "segments"
            below = self.partition.below(self.run.plan.basis.source)
            target = self.run.trash.child("/".join(filter(None, (kind, below, file.name))))
            move_to_trash(place, target, size_bytes=file.size_bytes)
        else:
            place.filesystem().delete_file(place.path)

    def _flush(self, files: Iterable[PlannedFile]) -> None:
        """Flush the deletion of files to the disk; _FaultError if that fails."""
        folders = {self.partition.place(file).parent for file in files}
        for folder in sorted(folders, key=lambda one: one.uri):
            if self.run.dry_run or not folder.is_local:
                continue
            try:
                flush(folder.path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _FaultError(
                    f"{folder.uri}: cannot be flushed to the disk: {one_line(error)}; {CONTINUE}"
                ) from error

    def _require_taken_by_another_run(self, place: Location) -> None:
        self.journal.load()
        if not self.journal.is_begun(self.segment.base_offset, by_another_run=True):
            raise _StopError(f"{place.uri}: was deleted meanwhile, but not by this plan")

    def _put(
        self, what: RecordKind | StepOutcome, files: list[PlannedFile], why: str | None = None
    ) -> None:
        """Publish an object of the journal, then report it; a dry run only reports."""
        is_intent = what == RecordKind.INTENT
        record = {
            "kind": str(RecordKind.INTENT if is_intent else RecordKind.RESULT),
            "plan_id": self.run.plan.plan_id,
            "run_id": self.run.run_id,
            **dict(zip(PARTITION_KEY, self.partition.key, strict=True)),
            "base_offset": self.segment.base_offset,
            "at_ms": self.run.clock(),
            "outcome": None if is_intent else str(what),
            "why": why,
            "files": [file_record(self.partition, file) for file in files],
            "trash": self.run.trash.uri if self.run.trash else None,
            "dry_run": self.run.dry_run,
        }
        if not self.run.dry_run:
            self.journal.put(self.segment.base_offset, what, record)
        self.run.on_record(record)

    def _uri(self, file: PlannedFile) -> str:
        return self.partition.place(file).uri
