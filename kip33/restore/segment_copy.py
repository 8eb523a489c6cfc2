"""Copy one log while it is scanned: each byte is read once.

The scan gives the index files, the leader epochs and the changes of producers. CRCs are checked on
the bytes that are written. A log with a damaged end keeps its valid prefix, as in a broker that
recovers it.

    LOG_DIR/.kip33-restore/facts/orders-0/00000000000000000042.json

This file has the facts of a segment; it is written when the segment's files are on the disk. A
later run trusts it if the source has the same size and time, and does not copy the segment again.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kip33.errors import READ_FAULTS, CorruptSegmentError, FileReadError, Kip33Error, PublishError
from kip33.formats.batch import BatchColumns
from kip33.formats.byte_sources import PIECE_BYTES, ReadInto, read_fully
from kip33.formats.partition_metadata import EpochStart
from kip33.indexing.segment import BuiltIndexes, index_segment, unreadable
from kip33.indexing.segment_producers import read_changes
from kip33.restore.restore_request import SourceSegment
from kip33.restore.restore_source import ONLY_THE_LAST
from kip33.rules.index_builder import IndexSettings
from kip33.rules.leader_epochs import leader_epochs_of
from kip33.rules.producer_state import (
    ProducerChange,
    SeenProducers,
    changes_as_json,
    changes_from_json,
)
from kip33.rules.segment_summary import SegmentStatus
from kip33.rules.transactions import NO_TRANSACTIONS, TransactionSummary
from kip33.stores.files import one_line, opened, read_whole, scanned, status_of, write_new
from kip33.stores.locations import Location
from kip33.stores.own_files import remove

_LEADER_EPOCH_POSITION: Final = 12  # in a batch
_KERNEL_BYTES: Final = 8 << 20  # copied ahead of the scan
_FACTS_FORMAT: Final = 1
_CHANGED: Final = (
    "the log changed after it was listed; run the same command again (for a catalog after a new "
    "build)"
)
_MOST_BYTES: Final = 1 << 30


class CopyOptions(NamedTuple):
    """How the files of a segment are made."""

    settings: IndexSettings
    is_linked: bool = False  # the log is a hard link if nothing in it changes
    leader_epoch: int | None = None  # larger ones in batches become this one


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
    largest_epoch: int  # of its batches in the source; -1: none has one
    transactions: TransactionSummary
    producers: tuple[ProducerChange, ...]
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
        values["transactions"] = TransactionSummary.from_json(record["transactions"])
        values["producers"] = changes_from_json(record["producers"])
        return cls(**values, was_there=True)


def restore_segment(
    segment: SourceSegment, directory: Location, options: CopyOptions, *, native: bool = True
) -> SegmentFacts:
    """Stage a segment's log, `.index` and `.timeindex` in `directory`; return what its scan found.

    `native` chooses compiled code, which takes a moment to load.
    Faults of the source are the result's `problem`, and then nothing is left in `directory`. Raises
    PublishError if a file of `directory` cannot be written.
    """
    target = directory.child(segment.file_name("log"))
    _remove(segment, directory)
    is_linked = False
    try:
        index, batches, is_linked = _copied(segment, target, options, native=native)
    except _SourceError as error:
        index, batches = unreadable(str(error), segment.size_bytes), _BatchFacts(segment, None)
    problem, note = _problem(segment, index)
    if problem is None and batches.cut_at is not None and batches.cut_at < index.valid_bytes:
        index, batches = _cut(segment, target, options, batches.cut_at, native=native)
    if problem is None and batches.changes_epochs:
        batches.write_epochs(target, index.valid_bytes)
    producers: tuple[ProducerChange, ...] = ()
    if problem is None:
        try:
            with opened(target) as (read_into, _):
                producers = read_changes(batches.producers, read_into)
        except CorruptSegmentError as error:
            problem = f"{segment.log.uri}: {error}"
    if problem is not None:
        _remove(segment, directory)
    times, offsets = index.time_index_data or b"", index.offset_index_data or b""
    if problem is None:
        _write_file(directory.child(segment.file_name("index")), offsets)
        _write_file(directory.child(segment.file_name("timeindex")), times)
    has_batches = bool(index.summary["batch_count"])
    return SegmentFacts(
        segment.base_offset,
        index.status,
        problem,
        index.valid_bytes,
        (len(offsets), len(times)),
        int(index.summary["last_offset"]) if has_batches else None,
        None if index.summary["wrappers"] else int(index.summary["record_count"]),
        batches.epochs,
        batches.largest_epoch,
        index.transactions or NO_TRANSACTIONS,
        producers,
        note,
        is_linked,
    )


class _SourceError(Exception):
    """The log cannot be read; the text says why."""


class _BatchFacts:
    """The facts of a segment's batches that its indexes do not have."""

    def __init__(self, segment: SourceSegment, leader_epoch: int | None) -> None:
        """Begin without batches; leader epochs above `leader_epoch` count as that one."""
        self.epochs: tuple[EpochStart, ...] = ()
        self.largest_epoch = -1
        self.producers = SeenProducers()
        self.cut_at: int | None = None  # the first batch to cut off
        self._later_epochs: list[npt.NDArray[np.int64]] = []
        self._cut_offset, self._leader_epoch = segment.cut_offset, leader_epoch

    def append(self, batches: BatchColumns) -> None:
        """Take the next batches of the log, as they are in the source."""
        if not len(batches):
            return
        if self._cut_offset is not None and self.cut_at is None:
            reached = np.flatnonzero(batches["last_offset"] >= self._cut_offset)
            self.cut_at = int(batches["position"][reached[0]]) if len(reached) else None
        self.largest_epoch = max(self.largest_epoch, int(batches["leader_epoch"].max()))
        if self._leader_epoch is not None and self.largest_epoch > self._leader_epoch:
            batches = batches.copy()
            is_later = batches["leader_epoch"] > self._leader_epoch
            self._later_epochs.append(batches["position"][is_later])
            batches["leader_epoch"][is_later] = self._leader_epoch
        self.epochs = leader_epochs_of(batches, self.epochs)
        self.producers.append(batches)

    @property
    def changes_epochs(self) -> bool:
        """Return whether a batch has a later leader epoch than `--leader-epoch`."""
        return bool(self._later_epochs)

    def write_epochs(self, target: Location, size_bytes: int) -> None:
        """Write the asked leader epoch into batches with a later one. No CRC covers the field."""
        assert self._leader_epoch is not None
        data = self._leader_epoch.to_bytes(4)
        positions = np.concatenate(self._later_epochs)
        with _target_errors(target), Path(target.path).open("r+b", buffering=0) as file:
            for position in positions[positions < size_bytes].tolist():
                os.pwrite(file.fileno(), data, position + _LEADER_EPOCH_POSITION)


def _copied(
    segment: SourceSegment, target: Location, options: CopyOptions, *, native: bool
) -> tuple[BuiltIndexes, _BatchFacts, bool]:
    """Copy or link a log while it is scanned; return its indexes and whether it is a link."""
    with _source_errors(), scanned(segment.log) as (read_into, size_bytes, _):
        if size_bytes != segment.size_bytes:
            raise _SourceError(_CHANGED)
        if options.is_linked:
            index, facts = _indexed(segment, read_into, size_bytes, options, native=native)
            _require_unchanged(segment)
            if index.status == SegmentStatus.OK and not facts.changes_epochs:
                with _target_errors(target):
                    os.link(os.path.realpath(segment.log.path), target.path)
                return index, facts, True
        with _new_file(target) as descriptor, _local_file(segment.log) as source:
            copying = CopyingReader(read_into, descriptor, target, source)
            index, facts = _indexed(segment, copying.read_into, size_bytes, options, native=native)
            if _is_kept(segment, index):
                copying.copy_up_to(index.valid_bytes)
            if copying.written > index.valid_bytes:
                os.truncate(descriptor, index.valid_bytes)
        _require_unchanged(segment)
    return index, facts, False


def _indexed(
    segment: SourceSegment,
    read_into: ReadInto,
    size_bytes: int,
    options: CopyOptions,
    *,
    native: bool,
) -> tuple[BuiltIndexes, _BatchFacts]:
    facts = _BatchFacts(segment, options.leader_epoch)
    index = index_segment(
        read_into,
        size_bytes,
        base_offset=segment.base_offset,
        topic=segment.topic,
        settings=options.settings,
        native=native,
        on_batches=facts.append,
    )
    return index, facts


def _cut(
    segment: SourceSegment,
    target: Location,
    options: CopyOptions,
    size_bytes: int,
    *,
    native: bool,
) -> tuple[BuiltIndexes, _BatchFacts]:
    """Cut a staged log; return the indexes of what is left."""
    with _target_errors(target):
        os.truncate(target.path, size_bytes)
    with opened(target) as (read_into, _):
        return _indexed(segment, read_into, size_bytes, options, native=native)


def _is_kept(segment: SourceSegment, index: BuiltIndexes) -> bool:
    is_cut = index.status == SegmentStatus.TRUNCATED and segment.is_last
    return is_cut or index.status in (SegmentStatus.OK, SegmentStatus.EMPTY)


def _problem(segment: SourceSegment, index: BuiltIndexes) -> tuple[str | None, str | None]:
    """Return why the segment cannot be restored, and a note if its end is cut."""
    cut = index.size_bytes - index.valid_bytes
    if _is_kept(segment, index):
        if index.status != SegmentStatus.TRUNCATED:
            return None, None
        return None, (
            f"{segment.log.uri}: {index.error}; the last {cut} bytes are cut, as a broker cuts "
            "them when it recovers the log"
        )
    what = f"{segment.log.uri}: {index.error}"
    if index.status == SegmentStatus.TRUNCATED:
        return f"{what}; {ONLY_THE_LAST}", None
    return what, None


def _require_unchanged(segment: SourceSegment) -> None:
    place = segment.log._replace(inside="")
    status = status_of(place)
    modified_ms, listed_ms = (status.modified_ms if status else None), segment.last_modified_ms
    if place.is_object_store and listed_ms is not None:
        listed_ms -= listed_ms % 1000
    is_same_size = segment.log.inside or (status and status.size_bytes == segment.size_bytes)
    if not status or not is_same_size or modified_ms != listed_ms:
        raise _SourceError(_CHANGED)


@contextmanager
def _source_errors() -> Iterator[None]:
    try:
        yield
    except CorruptSegmentError as error:
        raise _SourceError(f"{error}") from error
    except FileReadError as error:
        raise _SourceError(one_line(error)) from error


def _remove(segment: SourceSegment, directory: Location) -> None:
    for kind in ("log", "index", "timeindex"):
        remove(directory.child(segment.file_name(kind)))


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
def _local_file(log: Location) -> Iterator[int | None]:
    """Open a log that is a local file; None for others."""
    if not log.is_local or log.inside:
        yield None
        return
    with READ_FAULTS:
        descriptor = os.open(log.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_facts(place: Location, identity: str) -> SegmentFacts | None:
    """Return the facts of an earlier run for the same segment; or None."""
    try:
        record = json.loads(read_whole(place, most_bytes=_MOST_BYTES))
        if record["format"] != _FACTS_FORMAT or record["identity"] != identity:
            return None
        return SegmentFacts.of_record(record)
    except (FileReadError, ValueError, KeyError, TypeError, Kip33Error):
        return None


def identity_of(segment: SourceSegment, *options: object) -> str:
    """Return a text that differs if the source or the options differ."""
    fields = (segment.log.uri, *segment[1:])
    return json.dumps([*fields, *options], default=str)


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


def _write_file(place: Location, data: bytes) -> None:
    """Write a file that does not exist yet; PublishError if that fails."""
    with _target_errors(place):
        write_new(place.path, data)
