"""Delete one planned segment: check it, put an intent, delete file by file, put a result.

This order keeps the journal true even if a run is killed: an intent exists before a file is
deleted, and a result exists only after all files are deleted. If a segment's log is missing, the
intents show whether a run of this plan deleted it; otherwise it is a difference from the plan.

A step is one segment, named by its base offset. Each apply (a run) has an id and writes its own
complete objects, because object stores cannot append. `catalog/FILES.md` has the files of a journal
and of a trash, to which files are moved instead of their deletion.
"""

import json
import re
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

from pyarrow import fs

from kip33.archive.plans import file_record
from kip33.archive.removal import FilesNow, difference_of, files_now, info_of, move_file
from kip33.archive.segment_paths import PlannedFile, is_log
from kip33.archive.sources import require_outside_brokers
from kip33.catalog.catalog import Catalog
from kip33.errors import Kip33Error, PlanError, PublishError
from kip33.formats.names import SEGMENT_KINDS
from kip33.retention.make_plan import linked_directory
from kip33.retention.plan import (
    PARTITION_KEY,
    PlannedPartition,
    PlannedSegment,
    RetentionPlan,
    with_plan_id,
    write_plan,
)
from kip33.stores.concurrently import map_in_order
from kip33.stores.directory_checks import require_writable
from kip33.stores.files import entries_of, one_line, read_whole, size_of
from kip33.stores.locations import Location
from kip33.stores.own_files import flush, publish_or_raise
from kip33.stores.run_lock import only_run

CONTINUE: Final = "fix it and apply the plan again"
KEPT_PLAN: Final = "plan.jsonl"

Record: TypeAlias = dict[str, Any]
"""An object of the journal."""
OnRecord: TypeAlias = Callable[[Record], bool | None]
"""Called with each object of the journal; returns False to stop."""

_MOST_BYTES: Final = 1 << 24
_NAME: Final = re.compile(r"(\d+)-([^-]*)-?(.*)\.json", re.DOTALL)  # base offset, run, what
_CONSEQUENCE: Final = "without it no more segments of its partition are changed"
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Run:
    """One apply or undo of a plan: the values shared by all its partitions."""

    plan: RetentionPlan
    clock: Callable[[], int]
    trash: Location | None  # this plan's folder in it
    dry_run: bool
    on_record: OnRecord | None
    known: frozenset[str] = frozenset()  # URIs of the planned logs that are in the newest snapshot
    is_plan_in_trash: bool = False  # when an undo began
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    interrupted: threading.Event = field(default_factory=threading.Event)
    continues: set[str] = field(default_factory=set)  # ids of earlier runs
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_refused: threading.Event = field(default_factory=threading.Event)  # by `on_record`
    _is_plan_kept: threading.Event = field(default_factory=threading.Event)  # in the trash
    _has_changed: threading.Event = field(default_factory=threading.Event)  # or is about to

    @property
    def journal(self) -> Location:
        """Return the folder of the plan's journal."""
        place = Catalog(self.plan.basis.catalog).location
        return place.child(f"retention/{self.plan.plan_id}")

    @property
    def is_surely_alone(self) -> bool:
        """Return whether the lock of `alone` ends with its process alone: that of a disk."""
        return self.journal.is_local

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Make the folder of the journal, and hold its lock; a dry run changes nothing.

        LockedError while another run of this plan is under way, LocationError or PublishError if
        that folder cannot be written.
        """
        if self.dry_run:
            yield
            return
        require_writable(self.journal, "the journal")
        with only_run(self.journal, self.run_id, f"apply or undo of plan {self.plan.plan_id}"):
            try:
                yield
            finally:
                if self._has_changed.is_set():  # a build that began meanwhile is behind, too
                    with suppress(PublishError):
                        Catalog(self.plan.basis.catalog).record_change(self.clock())

    def directories(self) -> Iterator[Location]:
        """Yield the directories whose log directories are locked.

        A lock beside a linked directory would be in the log directory there.
        """
        for one in self.plan.with_segments():
            if not linked_directory(one.directory, None, self.plan.basis.source):
                yield one.directory

    def side_by_side(
        self, threads: int, result_of: Callable[["Run", PlannedPartition], _Result]
    ) -> tuple[_Result, ...]:
        """Return a result for each partition; if interrupted, each ends with its segment."""
        with ThreadPoolExecutor(threads) as pool:
            partitions = self.plan.with_segments()
            under_way = [pool.submit(result_of, self, partition) for partition in partitions]
            try:
                for ended in wait(under_way, return_when=FIRST_EXCEPTION).done:
                    ended.result()
                return tuple(one.result() for one in under_way)
            except BaseException:
                self.interrupted.set()
                pool.shutdown(cancel_futures=True)
                raise

    def tell(self, record: Record) -> None:
        """Report an object, one thread at a time; no more of them after the answer False."""
        with self._lock:
            if not self.on_record or self._is_refused.is_set():
                return
            if self.on_record(record) is False:
                self._is_refused.set()
                self.interrupted.set()

    def record_change(self) -> None:
        """Let the catalog say that it is behind, before the first change; else PublishError."""
        with self._lock:
            if self._has_changed.is_set():
                return
            at_ms = self.clock()
            if not self.dry_run:
                Catalog(self.plan.basis.catalog).record_change(at_ms)
            self._has_changed.set()

    def keep_plan(self) -> None:
        """Keep the plan in the trash before the first file is moved there.

        A plan of an older version stays where it is. PublishError if that fails.
        """
        with self._lock:
            if self.dry_run or not self.trash or self._is_plan_kept.is_set():
                return
            if with_plan_id(self.plan.basis, self.plan.partitions).plan_id == self.plan.plan_id:
                write_plan(self.plan, self.trash.child(KEPT_PLAN))
            self._is_plan_kept.set()

    def in_trash(self, partition: PlannedPartition, file: PlannedFile) -> PlannedFile:
        """Return a file as it is in the trash."""
        assert self.trash is not None
        kind = "segments" if file.folder == partition.directory else "indexes"
        below = partition.below(self.plan.basis.source)
        return file._replace(folder=self.trash.child(f"{kind}/{below}".rstrip("/")))


def folder_in_trash(plan: RetentionPlan, trash: Location) -> Location:
    """Return the plan's folder in a trash; `trash` may be that folder itself.

    Raises PlanError for a trash on another store, or inside a directory of the plan, LocationError
    for one inside any broker's log directory.
    """
    basis = plan.basis
    if trash.root != basis.source.root:
        raise PlanError(f"{trash.uri}: expected a trash on the same store as {basis.source.uri}")
    places = {basis.source: "SOURCE", basis.catalog: "the catalog"}
    indexes = [basis.index_dir, *(one.index_directory for one in plan.partitions)]
    places |= {place: "the index directory" for place in indexes if place}
    for place, what in places.items():
        if place.contains(trash):
            raise PlanError(f"{trash.uri}: the trash is inside {what}, {place.uri}: give another")
    require_outside_brokers(trash, "the trash")
    return trash if trash.name == plan.plan_id else trash.child(plan.plan_id)


def has_plan(folder: Location) -> bool:
    """Return whether a plan's folder of a trash has the plan; False if that cannot be seen."""
    try:
        return size_of(folder.child(KEPT_PLAN)) is not None
    except OSError:
        return False


class StepOutcome(StrEnum):
    """How a run of a plan left a segment; each member is its own text, also in names of objects."""

    DELETED = "deleted"  # by this run
    MOVED = "moved"  # to a trash
    GONE_ALREADY = "gone_already"  # another run deleted the log
    INCOMPLETE = "incomplete"  # the log is deleted, other files may exist
    STOPPED = "stopped"  # this run changed no file of the segment
    DONE_BEFORE = "done_before"  # an earlier run recorded the result: no new object
    PUT_BACK = "put_back"  # by an undo: all files that intents name
    NOT_PUT_BACK = "not_put_back"  # some of them are not


class PartitionOutcome(StrEnum):
    """How an apply left a partition; each member is its own text."""

    DONE = "done"  # every planned segment is deleted
    STOPPED = "stopped"  # at a difference from the plan, or a fault of the store


class RecordKind(StrEnum):
    """The kind of an object of the journal; each member is its own text."""

    INTENT = "intent"  # all files were as planned; from now on they may be deleted
    UNDO_INTENT = "undo_intent"  # all checks passed; from now on they may be moved back
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
        self._folder = run.journal.child(below) if below else run.journal
        self._run, self._partition = run, partition
        self.begun_files: dict[int, dict[str, str | None]] = {}
        """What intents name, by base offset: URIs, and the trash of the last one that was read."""
        self._planned = {segment.base_offset: segment for segment in partition.segments}
        self._by_step: dict[int, set[tuple[str, str]]] = {}  # (run id, what) by base offset

    @property
    def other_runs(self) -> set[str]:
        """Return the ids of the other runs that put an object."""
        runs = {run_id for step in self._by_step.values() for run_id, _ in step}
        return runs - {self._run.run_id}

    def load(self) -> None:
        """Read the objects of earlier runs.

        OSError if that fails, PlanError for an object that no run of this plan put.
        """
        files = (one for one in entries_of(self._folder) if one.type == fs.FileType.File)
        named = list(filter(None, (_NAME.fullmatch(info.base_name) for info in files)))
        for name in map_in_order(self._folder, named, self._require_believable):
            self._by_step.setdefault(int(name[1]), set()).add((name[2], name[3]))

    def _require_believable(self, name: re.Match[str]) -> re.Match[str]:
        place = self._folder.child(name[0])
        try:
            record = json.loads(read_whole(place, most_bytes=_MOST_BYTES))
            is_of_plan = self._is_of_step(record, int(name[1]), name[2], name[3])
        except (ValueError, TypeError, KeyError, RecursionError):
            is_of_plan = False
        if not is_of_plan:
            raise PlanError(
                f"{place.uri}: not an object that an apply of plan {self._run.plan.plan_id} put "
                "there; look where it is from and remove it, then make another plan"
            )
        if name[3] == RecordKind.INTENT:
            files = {file["uri"]: record.get("trash") for file in record["files"]}
            self.begun_files.setdefault(int(name[1]), {}).update(files)
        return name

    def _is_of_step(self, record: Record, base_offset: int, run_id: str, what: str) -> bool:
        outcome = None if what in _INTENTS else what
        expected = self._record_of(base_offset, run_id, what) | {"outcome": outcome}
        planned = self._planned[base_offset].files  # KeyError: not in the plan
        files = [file_record(file) for file in planned]
        has_its_files = all(file in files for file in record["files"])
        is_same = all(record[name] == value for name, value in expected.items())
        return has_its_files and is_same and record["dry_run"] is False

    def _record_of(self, base_offset: int, run_id: str, what: str) -> Record:
        """Return the first keys of an object."""
        return {
            "kind": what if what in _INTENTS else str(RecordKind.RESULT),
            "plan_id": self._run.plan.plan_id,
            "run_id": run_id,
            **dict(zip(PARTITION_KEY, self._partition.key, strict=True)),
            "base_offset": base_offset,
        }

    def _has(self, base_offset: int, outcomes: Collection[str]) -> bool:
        return any(what in outcomes for _, what in self._by_step.get(base_offset, ()))

    def is_done(self, base_offset: int) -> bool:
        """Return whether a run recorded that all files of a segment are deleted."""
        return self._has(base_offset, DONE_RESULTS)

    def is_put_back(self, base_offset: int) -> bool:
        """Return whether an undo recorded that the files of a segment are at their places."""
        return self._has(base_offset, [StepOutcome.PUT_BACK])

    def is_begun(self, base_offset: int) -> bool:
        """Return whether a run may have deleted files of a segment."""
        names = self._by_step.get(base_offset, set())
        return any(
            what == RecordKind.INTENT and (run_id, StepOutcome.STOPPED) not in names
            for run_id, what in names
        )

    def put(
        self, base_offset: int, what: str, files: Iterable[PlannedFile], why: str | None
    ) -> None:
        """Publish an object and report it; a dry run only reports. PublishError if that fails."""
        run, what = self._run, str(what)
        record = {
            **self._record_of(base_offset, run.run_id, what),
            "at_ms": run.clock(),
            "outcome": None if what in _INTENTS else what,
            "why": why,
            "files": [file_record(file) for file in files],
            "trash": run.trash.uri if run.trash else None,
            "dry_run": run.dry_run,
        }
        if not run.dry_run:
            name = f"{base_offset:020d}-{run.run_id}-{what}.json"
            data = (json.dumps(record) + "\n").encode()
            publish_or_raise(self._folder.child(name), data, _CONSEQUENCE)
        run.tell(record)


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
        self._is_doubtful = False  # a file may be deleted, the store did not say

    def take(self) -> None:
        """Delete the segment; a difference or a fault of the store is in `why`."""
        base_offset = self.segment.base_offset
        if self.journal.is_done(base_offset) and not any(map(is_log, self.listed)):
            return
        try:
            now = self._files_now()
            self._require_as_planned(now)
            self.run.keep_plan()
            self.run.record_change()
            self.journal.put(base_offset, RecordKind.INTENT, now.there, None)
            for file in self.segment.files:
                if file not in now.gone:
                    self._delete(file)
                if is_log(file):
                    self._flush([file])  # a crash must not leave the log without its indexes
            self._flush(self.segment.files)
        except Kip33Error as error:  # PlanError: a difference from the plan
            self.stop(str(error), refused=isinstance(error, PlanError))
        except OSError as error:
            log = self.segment.log.place.uri
            why = f"{log}: the files cannot be checked: {one_line(error)}; {CONTINUE}"
            self.stop(why, refused=False)
        else:
            self.outcome = StepOutcome.GONE_ALREADY
            if self.segment.log in self.deleted:
                self.outcome = StepOutcome.MOVED if self.run.trash else StepOutcome.DELETED
            self._end()

    def stop(self, why: str, *, refused: bool) -> None:
        """End the partition with this segment, and record it if possible."""
        is_changed = self._is_doubtful or (self.deleted and not self.run.dry_run)
        self.outcome = StepOutcome.INCOMPLETE if is_changed else StepOutcome.STOPPED
        self.why, self.refused = why, refused
        self._end()

    def _end(self) -> None:
        try:
            self.journal.put(self.segment.base_offset, self.outcome, self.deleted, self.why)
        except PublishError as error:
            if str(error) not in (self.why or ""):
                self.why = f"{self.why}; {error}" if self.why else str(error)

    def _files_now(self) -> FilesNow:
        """Return the current files."""
        stem = self.segment.log.name.removesuffix(".log")
        beside = [*(f"{stem}.{kind}" for kind in SEGMENT_KINDS), *(one.name for one in self.listed)]
        places = [self.partition.directory.child(name) for name in beside]
        return files_now(self.segment.files, places)

    def _require_as_planned(self, now: FilesNow) -> None:
        """Raise PlanError unless all files are as planned, or a run of this plan began earlier."""
        log, base_offset = self.segment.log.place.uri, self.segment.base_offset
        log_is_there = not any(map(is_log, now.gone))
        if now.others:
            raise PlanError(now.others[0])
        is_put_back = self.journal.is_put_back(base_offset)
        if log_is_there and (is_put_back or self.journal.is_done(base_offset)):
            again = "was put back" if is_put_back else "exists again"
            raise PlanError(f"{log}: {again} after this plan deleted it; make another plan")
        if log_is_there and log not in self.run.known:
            raise PlanError(f"{log}: exists, but is not in the newest snapshot")
        if now.gone and (log_is_there or not self.journal.is_begun(base_offset)):
            missing = now.gone[0].place.uri
            raise PlanError(f"{missing}: is missing, but this plan did not delete it")

    def _delete(self, file: PlannedFile) -> None:
        """Delete or move one file that is still as planned; otherwise PlanError or Kip33Error."""
        info = info_of(file.place)
        if info and (difference := difference_of(file, info)):
            raise PlanError(difference)
        if info and self._was_removed(file):
            self.deleted.append(file)
        else:
            raise PlanError(f"{file.place.uri}: was deleted meanwhile, but not by this plan")

    def _was_removed(self, file: PlannedFile) -> bool:
        """Delete or move a file; return whether this run did it; False: it was missing."""
        try:
            if not self.run.dry_run:
                self._remove(file)
        except OSError as error:
            self._is_doubtful = True
            is_there = info_of(file.place) is not None
            was_missing = isinstance(error, FileNotFoundError) and not is_there
            self._is_doubtful = not (is_there or was_missing)
            if was_missing:
                return False
            if is_there or self.run.trash:
                what = "moved" if self.run.trash else "deleted"
                raise Kip33Error(
                    f"{file.place.uri}: cannot be {what}: {one_line(error)}; {CONTINUE}"
                ) from error
        return True  # it was deleted, even if the store reports an error

    def _remove(self, file: PlannedFile) -> None:
        if self.run.trash:
            target = self.run.in_trash(self.partition, file).place
            move_file(file.place, target, size_bytes=file.size_bytes)
        else:
            file.place.filesystem().delete_file(file.place.path)

    def _flush(self, files: Iterable[PlannedFile]) -> None:
        """Flush the deletion of files to the disk; Kip33Error if that fails."""
        for folder in sorted({file.folder for file in files}):
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
