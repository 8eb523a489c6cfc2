"""Restore one segment into staging: its log is copied while it is scanned, then its end is cut.

Each byte is read once. The scan gives the index files, the leader epochs and the changes of
producers. CRCs are checked on the bytes that are written. A log with a damaged end keeps its valid
prefix, as in a broker that recovers it.

    LOG_DIR/.kip33-restore/facts/orders-0/00000000000000000042.json

This file has the facts of a segment; it is written when the segment's files are on the disk. A
later run trusts it if the source has the same size and time, and does not copy the segment again.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.errors import (
    READ_FAULTS,
    CorruptSegmentError,
    FileReadError,
    Kip33Error,
    PublishError,
    RestoreError,
)
from kip33.formats.batch import BatchColumns
from kip33.formats.byte_sources import PIECE_BYTES, ReadInto, read_fully
from kip33.formats.partition_metadata import EpochStart
from kip33.indexing.segment import BuiltIndexes, index_segment, unreadable
from kip33.indexing.segment_producers import read_changes
from kip33.restore.restore_plan import STAGED_FACTS, STAGED_PARTITIONS, STAGED_RUN
from kip33.restore.restore_request import SourceSegment
from kip33.restore.restore_source import ONLY_THE_LAST
from kip33.restore.source_logs import CutEnd, end_of, whole
from kip33.rules.index_builder import TopicSettings
from kip33.rules.leader_epochs import EpochFall, leader_epochs_of, lowest_fall
from kip33.rules.producer_state import (
    ProducerChange,
    SeenProducers,
    changes_as_json,
    changes_from_json,
)
from kip33.rules.segment_summary import UNDAMAGED_STATUSES, SegmentStatus
from kip33.rules.transactions import NO_TRANSACTIONS, TransactionSummary
from kip33.stores.concurrently import map_in_order
from kip33.stores.files import (
    is_as_listed,
    one_line,
    opened,
    read_whole,
    scanned,
    size_of,
    write_new,
)
from kip33.stores.locations import Location
from kip33.stores.own_files import flush_filesystems, remove, set_flushing

STAGED_KINDS: Final = ("log", "index", "timeindex")
"""The files of a segment that are staged."""

_LEADER_EPOCH_POSITION: Final = 12  # in a batch
_KERNEL_BYTES: Final = 8 << 20  # copied ahead of the scan
_FACTS_FORMAT: Final = 2
_CHANGED: Final = (
    "the log changed after it was listed; run the same command again (for a catalog after a new "
    "build)"
)
_MOST_BYTES: Final = 1 << 30
_MOST_RUN_BYTES: Final = 100
_OTHER_BYTES_OF_A_SEGMENT: Final = 64 << 10  # index files, snapshot, facts; in whole pages
_INDEX_SHARE: Final = 128  # of a log: an entry of 8 and one of 12 bytes for each 4 KiB, and more
_FLUSHED_BYTES: Final = 1 << 29  # bytes that are copied again, at most, after a run was killed
_FLUSHED_SEGMENTS: Final = 256


class SegmentFacts(NamedTuple):
    """The result of the scan of one segment; without `problem` its files are staged."""

    base_offset: int
    status: SegmentStatus
    problem: str | None  # why the segment cannot be restored; one line
    kept_bytes: int  # of the log: its valid prefix
    index_bytes: tuple[int, int]  # of the .index and of the .timeindex
    last_offset: int | None  # None: no batch
    record_count: int | None  # None: not known (compressed messages of v0 and v1)
    epochs: tuple[EpochStart, ...]  # of its batches alone, as they are in the result
    first_epoch: int  # of its batches in the source; -1: none has one
    largest_epoch: int  # likewise
    epoch_fall: EpochFall | None  # likewise, within the segment
    transactions: TransactionSummary
    producers: tuple[ProducerChange, ...]
    source_valid_bytes: int  # of the log in the source, before it is cut at an offset
    is_split: bool = False  # Kafka splits its log: it is planned again, as its parts
    note: str | None = None  # the cut end, as a broker cuts it
    is_linked: bool = False
    was_there: bool = False  # an earlier run staged it

    @property
    def end_offset(self) -> int:
        """Return the offset after its last record, its base offset if it has none."""
        return self.base_offset if self.last_offset is None else self.last_offset + 1

    @property
    def has_changed(self) -> bool:
        """Return whether the log changed after it was listed."""
        return self.problem is not None and self.problem.endswith(_CHANGED)

    def to_bytes(self, identity: str) -> bytes:
        """Return the file; `identity` is that of the segment and its options."""
        record = self._asdict() | {
            "format": _FACTS_FORMAT,
            "identity": identity,
            "transactions": self.transactions.to_json(),
            "producers": changes_as_json(self.producers),
        }
        del record["was_there"]
        return (json.dumps(record) + "\n").encode()

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> "SegmentFacts":
        """Return the facts of a file; KeyError, TypeError or ValueError for another object."""
        values = {name: record[name] for name in cls._fields if name != "was_there"}
        values["status"] = SegmentStatus(record["status"])
        values["index_bytes"] = tuple(record["index_bytes"])
        values["epochs"] = tuple(EpochStart(*one) for one in record["epochs"])
        values["epoch_fall"] = record["epoch_fall"] and EpochFall(*record["epoch_fall"])
        values["transactions"] = TransactionSummary.from_json(record["transactions"])
        values["producers"] = changes_from_json(record["producers"])
        return cls(**values, was_there=True)


class StagingJob(NamedTuple):
    """The segments of a restore and how they are staged; sent to every task."""

    staging: Location  # LOG_DIR/.kip33-restore
    source: Location
    segments: tuple[SourceSegment, ...]
    settings: TopicSettings
    is_linked: bool
    leader_epoch: int | None = None  # larger ones in batches become this one
    is_flushed: bool = True
    native: bool = True  # loading compiled code takes as long as a small restore
    run_id: str = ""  # in the file `run`
    allow_cut: bool = False  # of more than a tenth of a last log
    is_dry: bool = False  # logs are read, and nothing is written

    def files(self) -> pa.Table:
        """Return the segments as a table that an engine divides; `number` is that in the job."""
        return pa.table(
            {
                "log_uri": pa.array([one.log.uri for one in self.segments], pa.string()),
                "size_bytes": pa.array([one.size_bytes for one in self.segments], pa.int64()),
                "number": pa.array(np.arange(len(self.segments))),
            }
        )

    def require_shared(self) -> None:
        """Raise RestoreError where the staging directory is not that of the run, as on a cluster.

        Tasks of Spark may run on machines that have another directory of this name, or none.
        """
        place = self.staging.child(STAGED_RUN)
        try:
            run_id = read_whole(place, most_bytes=_MOST_RUN_BYTES).decode(errors="replace")
            problem = "" if run_id == self.run_id else f"is of run {run_id!r}, not {self.run_id!r}"
        except OSError as error:
            problem = one_line(error)
        if problem:
            raise RestoreError(
                f"{place.uri} on {socket.gethostname()}: {problem}; the log directory must be "
                "mounted on all machines that run tasks, or give --engine local"
            )


def stage_bin(job: StagingJob, number: int, files: pa.Table) -> Iterator[tuple[int, SegmentFacts]]:
    """Stage the segments of one share; yield their numbers and facts. `number` is not used.

    The facts of a segment are written when its files are on the disk, many segments at a time.
    Raises PublishError if a file cannot be written, RestoreError if this machine does not have the
    log directory.
    """
    if not job.is_dry:
        job.require_shared()
    set_flushing(job.is_flushed)
    kind = DrySegment if job.is_dry else RestoredSegment

    def staged(segment: int) -> tuple[int, SegmentFacts]:
        return segment, kind(job, job.segments[segment]).stage()

    waiting: list[tuple[int, SegmentFacts]] = []
    numbers: list[int] = files["number"].to_numpy().tolist()
    done = map_in_order(
        job.source, numbers, staged, held_bytes=lambda segment: job.segments[segment].size_bytes
    )
    for segment, facts in done:
        if not (facts.was_there or job.is_dry):
            waiting.append((segment, facts))
        waiting_bytes = sum(one.kept_bytes for _, one in waiting)
        if waiting_bytes >= _FLUSHED_BYTES or len(waiting) >= _FLUSHED_SEGMENTS:
            _write_facts(job, waiting)
            waiting = []
        yield segment, facts
    _write_facts(job, waiting)


def _write_facts(job: StagingJob, staged: list[tuple[int, SegmentFacts]]) -> None:
    """Write the facts of segments when their files are on the disk; one with a problem has none."""
    good = [(number, facts) for number, facts in staged if facts.problem is None]
    if good:
        with _target_errors(job.staging):
            flush_filesystems([job.staging])
    for number, facts in good:
        RestoredSegment(job, job.segments[number]).write_facts(facts)


class RestoredSegment:
    """One segment of a restore: where it is staged, its copy, its scan and its cut."""

    def __init__(self, job: StagingJob, segment: SourceSegment) -> None:
        """Name the places; no file is opened."""
        self._job, self._segment = job, segment
        # A broker appends to the last log, so it is never a link; nor is one that is cut.
        is_whole = not (segment.is_last or segment.part) and segment.until_offset is None
        is_file = segment.log.is_local and not segment.log.inside
        self._may_be_linked = job.is_linked and is_whole and is_file
        self._settings = job.settings.of(segment.topic)
        partition = job.staging.child(f"{STAGED_PARTITIONS}/{segment.directory_name}")
        self._places = {kind: partition.child(segment.file_name(kind)) for kind in STAGED_KINDS}
        self._log = self._places["log"]
        facts = job.staging.child(f"{STAGED_FACTS}/{segment.directory_name}")
        self._facts_place = facts.child(f"{self._log.name.removesuffix('.log')}.json")
        self._forget_batches()

    @property
    def needed_bytes(self) -> int:
        """Return about how much space it needs in the log directory; 0 if its log is there."""
        size_bytes = self._segment.size_bytes
        if size_of(self._log) == size_bytes:
            return 0
        others = _OTHER_BYTES_OF_A_SEGMENT + size_bytes // _INDEX_SHARE
        return others if self._may_be_linked else others + size_bytes

    def stage(self) -> SegmentFacts:
        """Stage the log, `.index` and `.timeindex`, unless an earlier run did; return the facts.

        Faults of the source are the result's `problem`, and then no file is left. Raises
        PublishError if a file cannot be written.
        """
        return self._earlier_facts() or self.facts()

    def write_facts(self, facts: SegmentFacts) -> None:
        """Write the facts, by which a later run knows that the segment is staged."""
        place = self._facts_place
        with _target_errors(place):
            temporary = place.parent.child(f".{place.name}")
            remove(temporary)
            write_new(temporary.path, facts.to_bytes(self._identity))
            os.replace(temporary.path, place.path)  # noqa: PTH105 - paths, as the filesystem has them

    @property
    def _identity(self) -> str:
        """Return a text that differs if the source or the options differ."""
        job = self._job
        options = (self._settings, self._may_be_linked, job.leader_epoch, job.allow_cut)
        return json.dumps([self._segment.log.uri, *self._segment[1:], options], default=str)

    def _earlier_facts(self) -> SegmentFacts | None:
        """Return the facts of an earlier run if its files are there, with their sizes."""
        try:
            record = json.loads(read_whole(self._facts_place, most_bytes=_MOST_BYTES))
            if record["format"] != _FACTS_FORMAT or record["identity"] != self._identity:
                return None
            facts = SegmentFacts.of_record(record)
        except (FileReadError, ValueError, KeyError, TypeError, Kip33Error):
            return None
        there = [size_of(place) for place in self._places.values()]
        return facts if there == [facts.kept_bytes, *facts.index_bytes] else None

    def facts(self) -> SegmentFacts:
        """Make the files; return the facts."""
        self._remove_files()
        is_linked = False
        producers: tuple[ProducerChange, ...] = ()
        try:
            index, is_linked = self._copied()
        except (CorruptSegmentError, FileReadError) as error:
            index = unreadable(one_line(error), self._segment.size_bytes)
        source_valid_bytes, is_split = index.valid_bytes, index.is_split
        problem, note = self._problem(index)
        problem = problem or self._split_batch
        if problem is None:
            index = self._cut(index)
            self._write_epochs(index.valid_bytes)
            try:
                with self._opened() as read_into:
                    producers = read_changes(self._producers, read_into)
            except CorruptSegmentError as error:
                problem = f"{self._segment.log.uri}: {error}"
        data = {"index": index.offset_index_data or b"", "timeindex": index.time_index_data or b""}
        if problem is None:
            for kind, content in data.items():
                self._write(kind, content)
        else:
            self._remove_files()
        summary = index.summary
        return SegmentFacts(
            base_offset=self._segment.base_offset,
            status=index.status,
            problem=problem,
            kept_bytes=index.valid_bytes,
            index_bytes=(len(data["index"]), len(data["timeindex"])),
            last_offset=int(summary["last_offset"]) if summary["batch_count"] else None,
            record_count=None if summary["wrappers"] else int(summary["record_count"]),
            epochs=self._epochs,
            first_epoch=self._first_epoch,
            largest_epoch=self._largest_epoch,
            epoch_fall=self._epoch_fall,
            transactions=index.transactions or NO_TRANSACTIONS,
            producers=producers,
            source_valid_bytes=source_valid_bytes,
            is_split=is_split,
            note=note,
            is_linked=is_linked,
        )

    def _write(self, kind: str, content: bytes) -> None:
        with _target_errors(self._places[kind]):
            write_new(self._places[kind].path, content)

    def _remove_files(self) -> None:
        for place in (self._facts_place, *self._places.values()):
            remove(place)

    def _copied(self) -> tuple[BuiltIndexes, bool]:
        """Copy or link the log while it is scanned; return its indexes, and whether it is a link.

        Raises FileReadError or CorruptSegmentError for a log that cannot be read or has changed.
        """
        segment = self._segment
        with scanned(segment.log) as (of_log, log_bytes, _):
            read_into, size_bytes = self._part_of(of_log, log_bytes), segment.size_bytes
            if self._may_be_linked:
                index = self._scan(read_into, size_bytes)
                self._require_unchanged()
                if self._is_linked(index):
                    with _target_errors(self._log):
                        os.link(os.path.realpath(segment.log.path), self._log.path)
                    return index, True
            whole_log = None if segment.part else segment.log
            with _new_file(self._log) as descriptor, _local_file(whole_log) as source:
                copying = CopyingReader(read_into, descriptor, self._log, source)
                index = self._scan(copying.read_into, size_bytes)
                if self._is_kept(index):
                    copying.copy_up_to(index.valid_bytes)
                if copying.written > index.valid_bytes:
                    os.truncate(descriptor, index.valid_bytes)
            self._require_unchanged()
        return index, False

    def _is_linked(self, index: BuiltIndexes) -> bool:
        is_good = index.recovered_status == SegmentStatus.OK
        return self._may_be_linked and is_good and not self._later_epochs

    def _part_of(self, of_log: ReadInto, log_bytes: int) -> ReadInto:
        """Return what reads the segment's bytes; CorruptSegmentError if the log's size changed."""
        size_bytes, part = self._segment.size_bytes, self._segment.part
        if log_bytes != self._segment.log_bytes:
            raise CorruptSegmentError(_CHANGED)
        if part is None:
            return of_log
        start = part.start
        return lambda position, view: of_log(start + position, view[: size_bytes - position])

    def _require_unchanged(self) -> None:
        """Raise CorruptSegmentError if the log has another size or time than when it was listed."""
        segment = self._segment
        if not is_as_listed(segment.log, segment.log_bytes, segment.last_modified_ms):
            raise CorruptSegmentError(_CHANGED)

    def _scan(self, read_into: ReadInto, size_bytes: int) -> BuiltIndexes:
        """Return the indexes of a log; what its batches tell besides is kept in this object."""
        self._forget_batches()
        index = index_segment(
            read_into,
            size_bytes,
            base_offset=self._segment.base_offset,
            topic=self._segment.topic,
            settings=self._settings,
            native=self._job.native,
            on_batches=self._append,
        )
        return whole(index, self._segment)

    def _forget_batches(self) -> None:
        self._epochs: tuple[EpochStart, ...] = ()
        self._first_epoch = self._largest_epoch = -1
        self._epoch_fall: EpochFall | None = None
        self._later_epochs: list[npt.NDArray[np.int64]] = []  # positions of such batches
        self._producers = SeenProducers()
        self._cut_at: int | None = None  # the first batch to cut off
        self._split_batch: str | None = None  # why the log cannot be cut between two batches

    def _append(self, batches: BatchColumns) -> None:
        """Take the next batches of the log, as they are in the source."""
        if not len(batches):
            return
        leader_epoch = self._job.leader_epoch
        if self._cut_at is None:
            self._find_cut(batches)
        falls = (self._epoch_fall, lowest_fall(batches, self._largest_epoch))
        self._epoch_fall = min(filter(None, falls), key=attrgetter("epoch"), default=None)
        known = batches["leader_epoch"][batches["leader_epoch"] >= 0]
        if self._first_epoch < 0 and len(known):
            self._first_epoch = int(known[0])
        self._largest_epoch = max(self._largest_epoch, int(batches["leader_epoch"].max()))
        if leader_epoch is not None and self._largest_epoch > leader_epoch:
            batches = batches.copy()
            is_later = batches["leader_epoch"] > leader_epoch
            self._later_epochs.append(batches["position"][is_later])
            batches["leader_epoch"][is_later] = leader_epoch
        self._epochs = leader_epochs_of(batches, self._epochs)
        self._producers.append(batches)

    def _find_cut(self, batches: BatchColumns) -> None:
        """Find the first batch with the offset of a cut or a later one.

        As Kafka truncates, a batch that contains the offset is cut off as a whole. But where
        another segment goes on, both would have some of its records, or none.
        """
        segment = self._segment
        reached = np.flatnonzero(batches["last_offset"] >= segment.cut_from)
        if not len(reached):
            return
        batch = batches[reached[0]]
        self._cut_at = int(batch["position"])
        if segment.until_offset == segment.cut_from > batch["base_offset"]:
            self._split_batch = (
                f"{segment.log.uri}: the batch of offsets {batch['base_offset']} to "
                f"{batch['last_offset']} goes beyond offset {segment.until_offset}, where the next "
                "segment begins; expected a batch that begins there"
            )

    def _cut(self, index: BuiltIndexes) -> BuiltIndexes:
        """Cut the staged log at the asked offset; return the indexes of what is left."""
        size_bytes = self._cut_at
        if size_bytes is None or size_bytes >= index.valid_bytes:
            return index
        self._truncate(size_bytes)
        with self._opened() as read_into:
            return self._scan(read_into, size_bytes)

    @contextmanager
    def _opened(self) -> Iterator[ReadInto]:
        """Open the log in the log directory."""
        with opened(self._log) as (read_into, _):
            yield read_into

    def _truncate(self, size_bytes: int) -> None:
        with _target_errors(self._log):
            os.truncate(self._log.path, size_bytes)

    def _write_epochs(self, size_bytes: int) -> None:
        """Write the asked leader epoch into batches with a later one. No CRC covers the field."""
        if not self._later_epochs:
            return
        assert self._job.leader_epoch is not None
        data = self._job.leader_epoch.to_bytes(4)
        positions = np.concatenate(self._later_epochs)
        with _target_errors(self._log), Path(self._log.path).open("r+b", buffering=0) as file:
            for position in positions[positions < size_bytes].tolist():
                os.pwrite(file.fileno(), data, position + _LEADER_EPOCH_POSITION)

    def _is_kept(self, index: BuiltIndexes) -> bool:
        is_cut = index.status == SegmentStatus.TRUNCATED
        is_cut &= self._segment.is_last or self._goes_on(index)
        return is_cut or index.status in UNDAMAGED_STATUSES

    def _goes_on(self, index: BuiltIndexes) -> bool:
        """Whether another segment has what follows the valid batches."""
        until_offset = self._segment.until_offset
        return until_offset is not None and index.end_offset >= until_offset

    def _problem(self, index: BuiltIndexes) -> tuple[str | None, str | None]:
        """Return why the segment cannot be restored, and a note if its end is left out."""
        uri = self._segment.log.uri
        if self._goes_on(index):
            return None, None
        if self._is_kept(index):
            return CutEnd.of(uri, end_of(index), allow_cut=self._job.allow_cut)
        is_damaged = index.status == SegmentStatus.TRUNCATED
        return f"{uri}: {index.error}" + (f"; {ONLY_THE_LAST}" if is_damaged else ""), None


class DrySegment(RestoredSegment):
    """A segment whose `facts` are those of a restore, but nothing is written: for a dry run."""

    def _remove_files(self) -> None:
        pass

    def _copied(self) -> tuple[BuiltIndexes, bool]:
        with self._opened() as read_into:
            index = self._scan(read_into, self._segment.size_bytes)
        self._require_unchanged()
        return index, self._is_linked(index)

    @contextmanager
    def _opened(self) -> Iterator[ReadInto]:
        with scanned(self._segment.log) as (of_log, log_bytes, _):
            yield self._part_of(of_log, log_bytes)

    def _truncate(self, size_bytes: int) -> None:
        pass

    def _write_epochs(self, size_bytes: int) -> None:
        pass

    def _write(self, kind: str, content: bytes) -> None:
        pass


class CopyingReader:
    """Reads a log for its scan, and copies the bytes to a new file in the same order.

    A local file is copied by the kernel a piece ahead of the scan, which then reads the copy from
    memory. Where the kernel cannot copy, as between two file systems, the scan's bytes are written.
    """

    def __init__(
        self, read_into: ReadInto, descriptor: int, target: Location, source: int | None = None
    ) -> None:
        """Take what reads the log, an empty open file, and the log's descriptor if it is local."""
        self._read_into, self._descriptor, self._target = read_into, descriptor, target
        self._source = source if hasattr(os, "copy_file_range") else None
        self.written = 0

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill `view` from a position of the log; return how many bytes were read."""
        end = position + len(view)
        if self._source is not None:
            self._copy_ahead(end)
        if self.written >= end:
            return os.preadv(self._descriptor, [view], position)
        count = self._read_into(position, view)
        if position > self.written:
            self.copy_up_to(position)
        if position + count > self.written:
            self._write(view[self.written - position : count])
        return count

    def copy_up_to(self, end: int) -> None:
        """Copy what the scan did not read, up to `end`; CorruptSegmentError if it is shorter."""
        while self.written < end:
            piece = read_fully(self._read_into, self.written, min(PIECE_BYTES, end - self.written))
            if not piece:
                raise CorruptSegmentError(f"the log ends at byte {self.written}, expected {end}")
            self._write(memoryview(piece))

    def _copy_ahead(self, end: int) -> None:
        """Let the kernel copy at least up to `end`, unless the file is shorter or it cannot."""
        assert self._source is not None
        while self.written < end:
            try:
                count = os.copy_file_range(
                    self._source, self._descriptor, _KERNEL_BYTES, self.written, self.written
                )
            except OSError:  # the bytes are then written one by one, which shows the fault
                self._source = None
                return
            if not count:
                return
            self.written += count

    def _write(self, data: memoryview) -> None:
        with _target_errors(self._target):
            while data:
                count = os.pwrite(self._descriptor, data, self.written)
                self.written += count
                data = data[count:]


@contextmanager
def _local_file(log: Location | None) -> Iterator[int | None]:
    """Open a log that is a local file; None for others."""
    if log is None or not log.is_local or log.inside:
        yield None
        return
    with READ_FAULTS:
        descriptor = os.open(log.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _target_errors(target: Location) -> Iterator[None]:
    """Raise PublishError for an OSError of a block that writes `target`."""
    try:
        yield
    except OSError as error:
        raise not_written(target, error) from error


def not_written(target: Location, error: OSError) -> PublishError:
    """Return the error for a file of the log directory that cannot be written."""
    return PublishError(
        f"{target.uri}: cannot be written: {one_line(error)}; the restore is not complete, and "
        "nothing in the log directory was replaced: fix it and run the same command again"
    )


@contextmanager
def _new_file(target: Location) -> Iterator[int]:
    """Create a file that does not exist yet; yield its descriptor, to read and write."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with _target_errors(target):
        descriptor = os.open(target.path, flags, 0o666)  # less the umask
    try:
        yield descriptor
    finally:
        os.close(descriptor)
