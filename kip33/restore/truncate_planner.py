"""Plan the truncation of a copied partition to an offset; no file is changed.

The result is what a broker leaves after `UnifiedLog.truncateTo` and a clean shutdown. Logs are read
header by header, from the segment that is cut to the end.
"""

from collections.abc import Iterator

from kip33.errors import TruncationError
from kip33.formats.scan import BatchScan
from kip33.restore.cut_indexes import KeptEntries, deletion, index_changes, kept_entries
from kip33.restore.file_change import FileAction, FileChange
from kip33.restore.partition_state import (
    SNAPSHOT,
    PartitionState,
    in_deletion_order,
    read_partition,
    require_one_name,
)
from kip33.restore.producer_replay import KeptLog, ReplayError, snapshot_at
from kip33.restore.truncate_checkpoints import (
    NOTHING_KEPT,
    RUN_AGAIN,
    checkpoint_changes,
    epoch_changes,
)
from kip33.restore.truncate_plan import TruncationPlan
from kip33.rules.truncation import BatchCut, TruncationCase, truncation_case
from kip33.stores.files import one_line, scanned
from kip33.stores.locations import Location


def plan_truncation(directory: Location, offset: int) -> TruncationPlan:
    """Return how to truncate a partition directory to `offset`; no file is changed.

    Raises LocationError for a directory that is not local, TruncationError, one line, for files
    that do not allow it.
    """
    state = read_partition(directory)
    try:
        return _Planner(state, offset).plan()
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise TruncationError(
            f"{directory.uri}: {name}cannot be read: {one_line(error)}; {RUN_AGAIN}"
        ) from error


class _Planner:
    """Plans one truncation."""

    def __init__(self, state: PartitionState, offset: int) -> None:
        self.state, self.offset = state, offset
        self.notes: list[str] = []
        self.walked: dict[int, BatchCut] = {}
        self.kept: KeptEntries | None = None

    def plan(self) -> TruncationPlan:
        """Return the plan."""
        bases = self.state.base_offsets
        self._require_no_checkpoint_above()
        is_in_last = bases[-1] <= self.offset
        last = self._cut_segment(bases[-1]) if is_in_last else self._walk(bases[-1], NOTHING_KEPT)
        end = last.log_end_offset
        case = truncation_case(bases, end, self.offset)
        if case == TruncationCase.BEYOND_END:
            return self._made(
                case, end, end, list(epoch_changes(self.state.directory, end)), [], None
            )
        if case == TruncationCase.EMPTIED:
            return self._made(case, end, self.offset, list(self._emptied()), bases, None)
        cut_base = max(base for base in bases if base <= self.offset)
        cut = last if is_in_last else self._cut_segment(cut_base)
        deleted = [base for base in bases if base > cut_base]
        changes = list(self._changes(cut_base, cut, deleted))
        self._note_batch(cut)
        return self._made(case, end, cut.end_offset, changes, deleted, cut_base)

    def _cut_segment(self, base_offset: int) -> BatchCut:
        """Return where the last remaining segment is cut."""
        self.kept = kept_entries(self.state, base_offset, self.offset)
        return self._walk(base_offset, self.offset, self.kept.largest_from)

    def _changes(self, cut_base: int, cut: BatchCut, deleted: list[int]) -> Iterator[FileChange]:
        assert self.kept
        yield from checkpoint_changes(self.state, self.notes, cut.end_offset)
        yield from self._snapshots_deleted(cut.end_offset)
        for base_offset in reversed(deleted):
            yield from self._deletions(base_offset)
        indexes, doubt = index_changes(
            self.state, cut_base, self.kept, cut.largest, log_is_cut=cut.position is not None
        )
        if doubt:
            self.notes.append(
                f"{self.state.log(cut_base).uri}: {doubt}; without .index a broker recovers the "
                "segment and builds its index files when it starts"
            )
        yield from self._cut(cut_base, cut)
        yield from indexes
        yield from self._snapshot(cut_base, cut)
        yield from epoch_changes(self.state.directory, self.offset)

    def _emptied(self) -> Iterator[FileChange]:
        """Yield the changes of a log that begins above the offset."""
        self.notes.append(
            f"the log begins at {self.state.base_offsets[0]}, after the offset: all segments are "
            "deleted, and an empty one begins at the offset"
        )
        yield from checkpoint_changes(self.state, self.notes, self.offset)
        for kind in ("log", "timeindex", "index"):
            name = self.state.place(self.offset, kind).name
            yield FileChange(name, FileAction.WRITE, None, None, 0, data=b"")
        for base_offset in reversed(self.state.base_offsets):
            yield from self._deletions(base_offset)
        yield from self._snapshots_deleted(-1)
        yield from epoch_changes(self.state.directory, NOTHING_KEPT)

    def _made(
        self,
        case: TruncationCase,
        log_end_offset: int,
        end_offset: int,
        changes: list[FileChange],
        deleted: list[int],
        cut_at: int | None,
    ) -> TruncationPlan:
        cuts = [self.walked[cut_at]] if cut_at is not None else []
        cuts += [self.walked.get(base) or self._walk(base, NOTHING_KEPT) for base in deleted]
        logs = (one for one in changes if one.name.endswith(".log"))
        return TruncationPlan(
            self.state.directory,
            self.state.topic,
            self.state.partition,
            self.offset,
            case,
            log_end_offset,
            end_offset,
            len(deleted),
            sum(cut.batches_cut for cut in cuts),
            sum(cut.records_cut for cut in cuts),
            all(cut.is_exact for cut in cuts),
            sum((one.bytes_before or 0) - (one.bytes_after or 0) for one in logs),
            tuple(changes),
            tuple(dict.fromkeys(self.notes)),
        )

    def _walk(self, base_offset: int, offset: int, largest_from: int = 0) -> BatchCut:
        """Read a log's headers. TruncationError if it is damaged before the offset is found."""
        cut = BatchCut(offset, base_offset=base_offset, largest_from=largest_from)
        place = self.state.log(base_offset)
        with scanned(place) as (read_into, size_bytes, _):
            scan = BatchScan(read_into, size_bytes, check_crc=False)
            for batches in scan:
                cut.append(batches)
        damage = scan.damage or scan.load_failure
        if damage and cut.position is None and offset != NOTHING_KEPT:
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
        file, place = self.state.segments[base_offset]["log"], self.state.log(base_offset)
        if cut.position is not None:
            require_one_name(place)
            yield FileChange(
                place.name, FileAction.CUT, file.size_bytes, file.modified_ns, cut.position
            )

    def _deletions(self, base_offset: int) -> Iterator[FileChange]:
        for kind in in_deletion_order(self.state.segments[base_offset]):
            yield deletion(self.state, base_offset, kind)

    def _snapshots_deleted(self, end_offset: int) -> Iterator[FileChange]:
        for offset, file in sorted(self.state.snapshots.items(), reverse=True):
            if offset > end_offset:
                name = self.state.place(offset, SNAPSHOT).name
                yield FileChange(name, FileAction.DELETE, file.size_bytes, file.modified_ns)

    def _snapshot(self, cut_base: int, cut: BatchCut) -> Iterator[FileChange]:
        """Yield the snapshot at the new end, as Kafka takes one."""
        kept = [
            KeptLog(base, self.state.segments[base]["log"].size_bytes)
            for base in self.state.base_offsets
            if base < cut_base
        ]
        size = self.state.segments[cut_base]["log"].size_bytes
        kept.append(KeptLog(cut_base, size if cut.position is None else cut.position))
        try:
            data = snapshot_at(self.state, kept, cut.end_offset)
        except ReplayError as error:
            self.notes.append(
                f"{error}; no producer snapshot is written for offset {cut.end_offset}, so delete "
                ".kafka_cleanshutdown before a broker starts: it then reads the producers again"
            )
            return
        if data is not None:
            yield self._written_snapshot(cut.end_offset, data)

    def _written_snapshot(self, offset: int, data: bytes) -> FileChange:
        before = self.state.snapshots.get(offset)
        return FileChange(
            self.state.place(offset, SNAPSHOT).name,
            FileAction.WRITE,
            before.size_bytes if before else None,
            before.modified_ns if before else None,
            len(data),
            data=data,
        )

    def _require_no_checkpoint_above(self) -> None:
        for checkpoint in self.state.checkpoints:
            if checkpoint.end_offset > self.offset:
                raise TruncationError(
                    f"{self.state.directory.uri}: a snapshot of the metadata ends at offset "
                    f"{checkpoint.end_offset}, expected none after {self.offset}; a broker would "
                    "not start: give an offset that is not below it"
                )

    def _note_batch(self, cut: BatchCut) -> None:
        if cut.position is not None and cut.end_offset < self.offset:
            self.notes.append(
                f"the log ends at {cut.end_offset}: Kafka cuts the complete batch that contains "
                f"offset {self.offset}, or the next one"
            )
