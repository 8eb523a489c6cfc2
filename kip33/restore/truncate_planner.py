"""Plan the truncation of a copied partition to an offset; no file is changed.

The result is what a broker leaves after `UnifiedLog.truncateTo` and a clean shutdown. Logs are read
header by header, from the segment that is cut to the end.

Kafka writes a `.snapshot` of the producers at the new end. Without any, a broker that was shut down
cleanly takes an empty one when it starts, and forgets open transactions and producers' sequences.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, Final

from kip33.archive.log_start_offsets import MOST_CHECKPOINT_BYTES, checkpoint_text
from kip33.errors import CorruptSnapshotError, TruncationError
from kip33.formats.names import SEGMENT_KINDS
from kip33.formats.partition_metadata import (
    LEADER_EPOCH_CHECKPOINT,
    OFFSET_CHECKPOINTS,
    format_epoch_checkpoint,
    parse_epoch_checkpoint,
    parse_offset_checkpoint,
    truncate_epochs,
)
from kip33.formats.scan import BatchScan
from kip33.indexing.partition_state import PartitionState
from kip33.restore.truncate_files import (
    SNAPSHOT,
    CopiedPartition,
    FileAction,
    FileChange,
    KeptEntries,
    deletion,
    index_changes,
    kept_entries,
    read_partition,
    require_one_name,
)
from kip33.rules.truncation import BatchCut, TruncationCase, truncation_case
from kip33.stores.files import one_line, read_whole, scanned
from kip33.stores.locations import Location

_RUN_AGAIN: Final = "fix it and run the command again"
_NOTHING_KEPT: Final = -1  # an offset below all batches: all of them are cut


@dataclass(frozen=True)
class TruncationPlan:
    """The changes of a truncation, in the order in which they are done."""

    directory: Location
    topic: str
    partition: int
    to: int  # the offset, as asked
    case: TruncationCase
    log_end_offset: int  # before
    end_offset: int  # after, as a broker finds it in the files
    segments_deleted: int
    batches_cut: int
    records_cut: int  # of producers; a compressed message of v0 or v1 counts as one
    records_are_exact: bool
    log_bytes_cut: int
    changes: tuple[FileChange, ...]
    notes: tuple[str, ...]

    @property
    def plan_id(self) -> str:
        """Return 16 digits that differ if the plan, or a file that it changes, differs."""
        text = json.dumps(self.as_record(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def summary(self) -> dict[str, Any]:
        """Return the figures that `kip33 truncate` prints, without the files."""
        figures = {name: getattr(self, name) for name in _FIGURES}
        return {"partition_dir": self.directory.uri, **figures, "notes": list(self.notes)}

    def as_record(self) -> dict[str, Any]:
        """Return the plan for the journal."""
        return self.summary() | {"files": [change.as_record() for change in self.changes]}

    @classmethod
    def of_record(cls, directory: Location, record: dict[str, Any]) -> "TruncationPlan":
        """Return the plan that a journal has; KeyError, TypeError or ValueError for another."""
        figures = {name: record[name] for name in _FIGURES}
        figures["case"] = TruncationCase(figures["case"])
        changes = tuple(FileChange.of_record(one) for one in record["files"])
        return cls(directory, **figures, changes=changes, notes=tuple(record["notes"]))


_FIGURES: Final = [one.name for one in fields(TruncationPlan)[1:-2]]  # from `topic` on


def plan_truncation(directory: Location, offset: int) -> TruncationPlan:
    """Return how to truncate a partition directory to `offset`; no file is changed.

    Raises LocationError for a directory that is not local, TruncationError, one line, for files
    that do not allow it.
    """
    files = read_partition(directory)
    try:
        return _Planner(files, offset).plan()
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise TruncationError(
            f"{directory.uri}: {name}cannot be read: {one_line(error)}; {_RUN_AGAIN}"
        ) from error


class _Planner:
    """Plans one truncation."""

    def __init__(self, files: CopiedPartition, offset: int) -> None:
        self.files, self.offset = files, offset
        self.notes: list[str] = []
        self.walked: dict[int, BatchCut] = {}
        self.kept: KeptEntries | None = None

    def plan(self) -> TruncationPlan:
        """Return the plan."""
        bases = self.files.base_offsets
        self._require_no_checkpoint_above()
        is_in_last = bases[-1] <= self.offset
        last = self._cut_segment(bases[-1]) if is_in_last else self._walk(bases[-1], _NOTHING_KEPT)
        end = last.log_end_offset
        case = truncation_case(bases, end, self.offset)
        if case == TruncationCase.BEYOND_END:
            return self._result(
                case, end, end, list(_epoch_changes(self.files.directory, end)), [], None
            )
        if case == TruncationCase.EMPTIED:
            return self._result(case, end, self.offset, list(self._emptied()), bases, None)
        cut_base = max(base for base in bases if base <= self.offset)
        cut = last if is_in_last else self._cut_segment(cut_base)
        deleted = [base for base in bases if base > cut_base]
        changes = list(self._changes(cut_base, cut, deleted))
        self._note_batch(cut)
        return self._result(case, end, cut.end_offset, changes, deleted, cut_base)

    def _cut_segment(self, base_offset: int) -> BatchCut:
        """Return where the last remaining segment is cut."""
        self.kept = kept_entries(self.files, base_offset, self.offset)
        return self._walk(base_offset, self.offset, self.kept.largest_from)

    def _changes(self, cut_base: int, cut: BatchCut, deleted: list[int]) -> Iterator[FileChange]:
        assert self.kept
        yield from _checkpoint_changes(self.files, self.notes, cut.end_offset)
        yield from self._snapshots_deleted(cut.end_offset)
        for base_offset in reversed(deleted):
            yield from self._deletions(base_offset)
        indexes, doubt = index_changes(
            self.files, cut_base, self.kept, cut.largest, log_is_cut=cut.position is not None
        )
        if doubt:
            self.notes.append(
                f"{self.files.log(cut_base).uri}: {doubt}; without .index a broker recovers the "
                "segment and builds its index files when it starts"
            )
        yield from self._cut(cut_base, cut)
        yield from indexes
        yield from self._snapshot(cut_base, cut)
        yield from _epoch_changes(self.files.directory, self.offset)

    def _emptied(self) -> Iterator[FileChange]:
        """Yield the changes of a log that begins above the offset."""
        self.notes.append(
            f"the log begins at {self.files.base_offsets[0]}, after the offset: all segments are "
            "deleted, and an empty one begins at the offset"
        )
        yield from _checkpoint_changes(self.files, self.notes, self.offset)
        for kind in ("log", "timeindex", "index"):
            name = self.files.place(self.offset, kind).name
            yield FileChange(name, FileAction.WRITE, None, None, 0, data=b"")
        for base_offset in reversed(self.files.base_offsets):
            yield from self._deletions(base_offset)
        yield from self._snapshots_deleted(-1)
        yield from _epoch_changes(self.files.directory, _NOTHING_KEPT)

    def _result(
        self,
        case: TruncationCase,
        log_end_offset: int,
        end_offset: int,
        changes: list[FileChange],
        deleted: list[int],
        cut_at: int | None,
    ) -> TruncationPlan:
        cuts = [self.walked[cut_at]] if cut_at is not None else []
        cuts += [self.walked.get(base) or self._walk(base, _NOTHING_KEPT) for base in deleted]
        logs = (one for one in changes if one.name.endswith(".log"))
        return TruncationPlan(
            directory=self.files.directory,
            topic=self.files.topic,
            partition=self.files.partition,
            to=self.offset,
            case=case,
            log_end_offset=log_end_offset,
            end_offset=end_offset,
            segments_deleted=len(deleted),
            batches_cut=sum(cut.batches_cut for cut in cuts),
            records_cut=sum(cut.records_cut for cut in cuts),
            records_are_exact=all(cut.is_exact for cut in cuts),
            log_bytes_cut=sum((one.bytes_before or 0) - (one.bytes_after or 0) for one in logs),
            changes=tuple(changes),
            notes=tuple(dict.fromkeys(self.notes)),
        )

    def _walk(self, base_offset: int, offset: int, largest_from: int = 0) -> BatchCut:
        """Read a log's headers. TruncationError if it is damaged before the offset is found."""
        cut = BatchCut(offset, base_offset=base_offset, largest_from=largest_from)
        place = self.files.log(base_offset)
        with scanned(place) as (read_into, size_bytes, _):
            scan = BatchScan(read_into, size_bytes, check_crc=False)
            for batches in scan:
                cut.append(batches)
        damage = scan.damage or scan.load_failure
        if damage and cut.position is None and offset != _NOTHING_KEPT:
            raise TruncationError(
                f"{place.uri}: {damage}, before offset {offset}; a broker cuts the damaged end "
                "when it recovers the log: repair the log first (kip33 repair), or truncate to "
                f"{cut.log_end_offset} or less"
            )
        if damage:
            self.notes.append(
                f"{place.uri}: {damage}; records after that are cut too, but not counted"
            )
        self.walked[base_offset] = cut
        return cut

    def _cut(self, base_offset: int, cut: BatchCut) -> Iterator[FileChange]:
        file, place = self.files.segments[base_offset]["log"], self.files.log(base_offset)
        if cut.position is not None:
            require_one_name(place)
            yield FileChange(place.name, FileAction.CUT, *file, cut.position)

    def _deletions(self, base_offset: int) -> Iterator[FileChange]:
        for kind in SEGMENT_KINDS:  # as Kafka deletes them, the log first
            if kind in self.files.segments[base_offset]:
                yield deletion(self.files, base_offset, kind)

    def _snapshots_deleted(self, end_offset: int) -> Iterator[FileChange]:
        for offset, file in sorted(self.files.snapshots.items(), reverse=True):
            if offset > end_offset:
                name = self.files.place(offset, SNAPSHOT).name
                yield FileChange(name, FileAction.DELETE, *file)

    def _snapshot(self, cut_base: int, cut: BatchCut) -> Iterator[FileChange]:
        """Yield the snapshot at the new end, as Kafka takes one."""
        sizes = {base: of_one["log"].size_bytes for base, of_one in self.files.segments.items()}
        if cut.position is not None:
            sizes[cut_base] = cut.position
        kept = {base: sizes[base] for base in self.files.base_offsets if base <= cut_base}
        try:
            data = _snapshot_at(self.files, kept, cut.end_offset)
        except _ReplayError as error:
            self.notes.append(
                f"{error}; no producer snapshot is written for offset {cut.end_offset}, so delete "
                ".kafka_cleanshutdown before a broker starts: it then reads the producers again"
            )
            return
        if data is not None:
            name = self.files.place(cut.end_offset, SNAPSHOT).name
            size, modified_ns = self.files.snapshots.get(cut.end_offset) or (None, None)
            yield FileChange(name, FileAction.WRITE, size, modified_ns, len(data), data=data)

    def _require_no_checkpoint_above(self) -> None:
        for checkpoint in self.files.checkpoints:
            if checkpoint.end_offset > self.offset:
                raise TruncationError(
                    f"{self.files.directory.uri}: a snapshot of the metadata ends at offset "
                    f"{checkpoint.end_offset}, expected none after {self.offset}; a broker would "
                    "not start: give an offset that is not below it"
                )

    def _note_batch(self, cut: BatchCut) -> None:
        if cut.position is not None and cut.end_offset < self.offset:
            self.notes.append(
                f"the log ends at {cut.end_offset}: Kafka cuts the complete batch that contains "
                f"offset {self.offset}, or the next one"
            )


class _ReplayError(Exception):
    """The state cannot be determined; the text says why."""


def _snapshot_at(files: CopiedPartition, kept: dict[int, int], end_offset: int) -> bytes | None:
    """Return the bytes of the `.snapshot` at the new end of the log, None if it needs none.

    `kept` has the sizes of the logs that are left, by base offset. It needs none if the directory
    has no snapshot at all, if there is a good one at the end, or if no record is left. Raises
    _ReplayError for a log that cannot be read.
    """
    if not files.snapshots or end_offset <= files.base_offsets[0]:
        return None
    state = _newest_snapshot(files, end_offset)
    if state.snapshot_offset == end_offset:
        return None
    for base_offset, next_base in zip(kept, [*kept, None][1:], strict=True):
        if next_base is None or next_base > state.snapshot_offset:
            log = files.log(base_offset)
            state, damage = state.after_log(log, size_bytes=kept[base_offset])
            if damage:
                raise _ReplayError(f"{log.uri}: {damage}")
    return state.producers.to_bytes()


def _newest_snapshot(files: CopiedPartition, end_offset: int) -> PartitionState:
    """Return the newest good snapshot up to the end; damaged ones are skipped, as in Kafka."""
    for offset in sorted(files.snapshots, reverse=True):
        if offset <= end_offset:
            with suppress(CorruptSnapshotError, FileNotFoundError):
                return PartitionState.read(files.place(offset, SNAPSHOT), offset)
    return PartitionState(snapshot_offset=files.base_offsets[0])


def _epoch_changes(directory: Location, offset: int) -> Iterator[FileChange]:
    """Yield the leader epochs without those at the offset or after it."""
    place = directory.child(LEADER_EPOCH_CHECKPOINT)
    try:
        text = read_whole(place, most_bytes=MOST_CHECKPOINT_BYTES).decode()
        starts = parse_epoch_checkpoint(text)
    except FileNotFoundError:
        return
    except ValueError as error:
        raise _damaged(place, error) from error
    kept = truncate_epochs(starts, offset)
    after = format_epoch_checkpoint(kept)
    if kept != starts or (offset == _NOTHING_KEPT and text != after):
        status = os.stat(place.path)  # noqa: PTH116 - a path, as the filesystem has it
        before, data = (status.st_size, status.st_mtime_ns), after.encode()
        entries = len(starts), len(kept)
        yield FileChange(place.name, FileAction.WRITE, *before, len(data), *entries, data)


def _checkpoint_changes(
    files: CopiedPartition, notes: list[str], end_offset: int
) -> Iterator[FileChange]:
    """Yield the checkpoints of the log directory that have an offset after the new end.

    A broker that finds a log start offset after the log's end deletes the whole log.
    """
    key = files.topic, files.partition
    for name in OFFSET_CHECKPOINTS:
        place = files.directory.parent.child(name)
        try:
            offsets = parse_offset_checkpoint(checkpoint_text(place))
            if offsets.get(key, 0) <= end_offset:
                continue
        except ValueError as error:
            raise _damaged(place, error) from error
        yield FileChange(name, FileAction.WRITE, None, None, in_log_dir=True)
        notes.append(f"{place.uri}: {key[0]}-{key[1]} is set from {offsets[key]} to {end_offset}")


def _damaged(place: Location, error: ValueError) -> TruncationError:
    return TruncationError(f"{place.uri}: {error}; {_RUN_AGAIN}")
