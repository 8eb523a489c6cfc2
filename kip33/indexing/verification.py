"""Verify the index files of one segment against its log, in one pass over the log.

`Verification` watches the batches of the scan. The verdicts on `.txnindex` files need all segments
of a partition: `indexing.folded_verdicts` adds them later.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import Any, Final, Self

import pyarrow as pa

from kip33.archive.bad_batches import DamagedBytes, WholeBatches
from kip33.archive.segment_paths import beside
from kip33.errors import FileReadError, Kip33Error, counted
from kip33.formats.batch import BatchColumns
from kip33.formats.index_kinds import IndexKind
from kip33.formats.native import Speed
from kip33.formats.printed_fields import object_html, object_text
from kip33.formats.time_index import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    IndexBytes,
    OffsetIndex,
    TimeIndex,
)
from kip33.indexing.segment import BuiltIndexes, FileTimeEntry, index_file, with_file_time
from kip33.rules.index_builder import IndexBuilder, IndexSettings
from kip33.rules.index_entries import DIALECTS, preallocated_bytes
from kip33.rules.index_truth import OffsetIndexTruth, TimeIndexTruth
from kip33.rules.index_verdict import (
    GOOD,
    NOT_COMPARED,
    TRUE,
    IndexVerdict,
    Verdict,
    offset_index_verdict,
    time_index_verdict,
)
from kip33.rules.segment_summary import NOT_READ, UNDAMAGED_STATUSES, SegmentStatus
from kip33.stores.files import is_archived, one_line, opened, read_index, size_of
from kip33.stores.locations import Location


def offset_index_of(log: Location, time_index: Location) -> Location:
    """Return the place of a segment's `.index`: beside its `.timeindex`, else beside its log."""
    place = beside(time_index, "index")
    try:
        is_there = size_of(place) is not None
    except FileReadError:  # reported when it is read
        is_there = True
    return place if is_there else beside(log, "index")


NO_TIME_INDEX: Final = "the .timeindex is missing"


@dataclass(frozen=True, repr=False)
class SegmentVerdict:
    """The verdict on one segment's index files; `as_row` is what `kip33 verify` prints.

    A verdict on a `.index` or a `.txnindex` is None if the file is missing and not expected
    (`indexing.folded_verdicts` adds the latter). The largest gaps are those of
    `rules.index_truth`, None if a file was not verified or is not correct.
    """

    log_uri: str
    index_uri: str
    verdict: IndexVerdict
    dialect: str | None
    entries: int | None
    problems: tuple[str, ...]
    offset_index_verdict: IndexVerdict | None
    log_status: SegmentStatus
    log_error: str | None
    largest_gap_bytes: int | None = None
    offset_index_largest_gap_bytes: int | None = None
    transaction_index_verdict: IndexVerdict | None = None

    def __repr__(self) -> str:
        """Return what is known, on one line."""
        return object_text("SegmentVerdict", self.as_row())

    def _repr_html_(self) -> str:
        return object_html("SegmentVerdict", self.as_row())

    @classmethod
    def unreadable(cls, log_uri: str, index_uri: str, problem: str) -> Self:
        """Return the verdict on a directory or log that could not be read; the problem says why."""
        index, log = IndexVerdict.UNREADABLE, SegmentStatus.UNREADABLE
        return cls(log_uri, index_uri, index, None, None, (problem,), None, log, None)

    def as_row(self) -> dict[str, Any]:
        """Return the fields in order, problems as a list, statuses and verdicts as plain text.

        Spark 3.5 turns rows into its own by pickling them, and knows no enumeration.
        """
        fields = {name: getattr(self, name) for name in SEGMENT_VERDICTS.names}
        return {
            name: str(value) if isinstance(value, StrEnum) else value
            for name, value in (fields | {"problems": list(self.problems)}).items()
        }

    @classmethod
    def of_row(cls, values: Iterable[Any]) -> Self:
        """Return the verdict of a row.

        - `values`: those of `as_row`, in its order.
        """
        row = dict(zip(SEGMENT_VERDICTS.names, values, strict=True))
        for name in _VERDICTS:
            row[name] = row[name] and IndexVerdict(row[name])
        row["log_status"], row["problems"] = (
            SegmentStatus(row["log_status"]),
            tuple(row["problems"]),
        )
        return cls(**row)

    def on(self, kind: IndexKind) -> IndexVerdict | None:
        """Return the verdict on one kind of index file."""
        verdict: IndexVerdict | None = getattr(self, kind.verdict_field)
        return verdict

    def largest_gap(self, kind: IndexKind) -> int | None:
        """Return the largest gap in one kind of index file, in bytes of the log."""
        size: int | None = getattr(self, kind.gap_field) if kind.gap_field else None
        return size

    @property
    def is_good(self) -> bool:
        """Return whether no index file has a problem."""
        return all(self.on(kind) in (*GOOD, None) for kind in IndexKind)

    @property
    def has_problem(self) -> bool:
        """Return whether an index file or the log has one."""
        return not self.is_good or self.log_status not in UNDAMAGED_STATUSES

    def with_missing_offset_index(self) -> "SegmentVerdict":
        """Return the verdict of a segment whose `.index` is expected: `missing` if it has none."""
        if self.offset_index_verdict is not None or self.verdict in NOT_COMPARED:
            return self
        problems = (*self.problems, ".index: missing, but other segments here have one")
        return replace(self, offset_index_verdict=IndexVerdict.MISSING, problems=problems)


def verify_file(  # parameters: the files of one segment, and what its listing tells
    log: Location,
    time_index: Location,
    offset_index: Location | None,
    *,
    base_offset: int,
    topic: str,
    settings: IndexSettings,
    native: bool | None = None,
    file_time: FileTimeEntry | None = None,
) -> tuple[SegmentVerdict, BuiltIndexes]:
    """Return the verdict on a segment's index files, and the index its log gives.

    `file_time`: the entry that the index has if the log has no timestamps (`--untimestamped`).
    A log or an index that cannot be read has the verdict `unreadable`, in S3 Glacier `archived`;
    nothing is raised for it.
    """
    try:
        times, offsets = _index_bytes(time_index), _index_bytes(offset_index)
        failure, is_in_glacier = None, False
    except FileReadError as error:
        times = offsets = None
        is_in_glacier = is_archived(error)
        failure = f"the index file cannot be read: {one_line(error)}"
    check = Verification(times, offsets, base_offset=base_offset, topic=topic, settings=settings)
    index = index_file(
        log,
        base_offset=base_offset,
        topic=topic,
        settings=settings,
        native=native,
        watcher=check.append,
    )
    index = with_file_time(index, file_time)
    if failure is None and index.status in NOT_READ:
        is_in_glacier = index.status == SegmentStatus.ARCHIVED
        failure = f"the log cannot be read: {index.error}"
    if failure:
        verdict = IndexVerdict.ARCHIVED if is_in_glacier else IndexVerdict.UNREADABLE
        time, offset = Verdict(verdict, None, (failure,)), None
    else:
        time, offset = check.time_verdict(index), check.offset_verdict(index)
    offset_problems = offset.problems if offset else ()
    problems = time.problems + tuple(f".index: {problem}" for problem in offset_problems)
    judged = SegmentVerdict(
        log.uri,
        time_index.uri,
        time.verdict,
        time.dialect,
        None if times is None else len(times) // TIME_ENTRY_BYTES,
        problems,
        offset.verdict if offset else None,
        index.status,
        index.error,
        check.largest_gap(IndexKind.TIME, time),
        check.largest_gap(IndexKind.OFFSET, offset),
    )
    return judged, index


def with_batches_behind(
    verdict: SegmentVerdict, index: BuiltIndexes, log: Location
) -> SegmentVerdict:
    """Return the verdict on a log, with the number of whole batches behind damage in `log_error`.

    A broker cuts them, and they count for nothing else.
    """
    if verdict.log_status != SegmentStatus.TRUNCATED:
        return verdict
    behind = 0
    with suppress(FileReadError, Kip33Error), opened(log) as (read_into, size_bytes):
        for found in WholeBatches(
            *(read_into, size_bytes), position=index.valid_bytes, first_offset=index.end_offset
        ):
            behind += 0 if isinstance(found, DamagedBytes) else len(found)
    if not behind:
        return verdict
    count = counted(behind, "valid batch")
    return replace(verdict, log_error=f"{verdict.log_error}; behind it: {count}, see kip33 dump")


def _index_bytes(location: Location | None) -> IndexBytes | None:
    """Return a file's bytes, None if it is missing."""
    if location is None or size_of(location) is None:
        return None
    return read_index(location)


_NO_BYTES: Final = IndexBytes(b"")


class Verification:
    """The checks of a log's `.timeindex` and `.index` during one scan."""

    def __init__(
        self,
        time_index: bytes | IndexBytes | None,
        offset_index: bytes | IndexBytes | None,
        *,
        base_offset: int,
        topic: str,
        settings: IndexSettings,
    ) -> None:
        """Take the files' bytes, None for a missing file."""
        self._settings, self._dialect = settings, DIALECTS[settings.dialect]
        self._others = {  # dialects whose entries have the same meaning
            name: IndexBuilder(dialect, settings, base_offset=base_offset, topic=topic)
            for name, dialect in DIALECTS.items()
            if dialect != self._dialect and dialect.next_offset == self._dialect.next_offset
        }
        self._time_data = None if time_index is None else IndexBytes.of(time_index)
        held, repeats = (self._time_data or _NO_BYTES).entries(TIME_ENTRY_BYTES)
        times = TimeIndex.from_bytes(held, base_offset=base_offset)
        self._times = TimeIndexTruth(
            times.timestamps, times.offsets, repeats, interval_bytes=settings.index_interval_bytes
        )
        self._offset_data = None if offset_index is None else IndexBytes.of(offset_index)
        held, repeats = (self._offset_data or _NO_BYTES).entries(OFFSET_ENTRY_BYTES)
        offsets = OffsetIndex.from_bytes(held, base_offset=base_offset)
        self._offsets = OffsetIndexTruth(
            offsets.offsets,
            offsets.positions,
            repeats,
            base_offset=base_offset,
            interval_bytes=settings.index_interval_bytes,
        )

    def append(self, batches: BatchColumns, speed: Speed) -> None:
        """Watch the next batches of the pass."""
        for builder in self._others.values():
            builder.append(batches, speed)
        self._times.append(batches, speed)
        self._offsets.append(batches, speed)

    def time_verdict(self, index: BuiltIndexes) -> Verdict:
        """Return the verdict on the `.timeindex`, after the pass that gave `index`."""
        data = self._time_data
        if data is None:
            return Verdict(IndexVerdict.MISSING, None, (NO_TIME_INDEX,))
        append_bytes = self._offsets.gaps.largest_append_bytes
        is_unseen = append_bytes and not self._offsets.untrue()  # see `rules.index_truth`
        return _malformed(IndexKind.TIME, data) or time_index_verdict(
            data,
            self._times,
            self._built(index),
            next_offset=self._dialect.next_offset,
            unseen_append_bytes=2 * append_bytes if is_unseen else 0,
            preallocated_bytes=self._preallocated(IndexKind.TIME),
        )

    def offset_verdict(self, index: BuiltIndexes) -> Verdict | None:
        """Return the verdict on the `.index`, None if the file is missing."""
        data = self._offset_data
        if data is None:
            return None
        return _malformed(IndexKind.OFFSET, data) or offset_index_verdict(
            data,
            self._offsets,
            index.offset_index_data,
            preallocated_bytes=self._preallocated(IndexKind.OFFSET),
        )

    def largest_gap(self, kind: IndexKind, verdict: Verdict | None) -> int | None:
        """Return the largest gap of a correct index in bytes, None for other indexes."""
        if verdict is None or verdict.verdict not in TRUE:
            return None
        truth = self._times if kind is IndexKind.TIME else self._offsets
        return truth.gaps.largest_bytes

    def _built(self, index: BuiltIndexes) -> dict[str, bytes | None]:
        """Return the bytes that the log gives in each dialect, None if Kafka writes no index."""
        built = {self._settings.dialect: index.time_index_data}
        for name, builder in self._others.items():
            builder.close(index.valid_bytes)
            is_written = index.time_index_data is not None and not builder.refusal
            built[name] = builder.time_index if is_written else None
        return {name: built[name] for name in DIALECTS if name in built}

    def _preallocated(self, kind: IndexKind) -> tuple[int, ...]:
        return preallocated_bytes(self._settings.segment_index_bytes, kind.entry_bytes)


def _malformed(kind: IndexKind, data: IndexBytes) -> Verdict | None:
    """Return the verdict on a file that ends inside an entry, None for others."""
    if not len(data) % kind.entry_bytes:
        return None
    what = f"{counted(len(data), 'byte')} found, expected a multiple of {kind.entry_bytes}"
    return Verdict(IndexVerdict.MALFORMED, None, (what,))


_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_uri", pa.string(), nullable=False),
    pa.field("index_uri", pa.string(), nullable=False),
    pa.field("verdict", pa.string(), nullable=False),
    pa.field("dialect", pa.string()),
    pa.field("entries", pa.int64()),
    pa.field("problems", pa.list_(pa.string()), nullable=False),
    pa.field("offset_index_verdict", pa.string()),
    pa.field("log_status", pa.string(), nullable=False),
    pa.field("log_error", pa.string()),
    pa.field("largest_gap_bytes", pa.int64()),
    pa.field("offset_index_largest_gap_bytes", pa.int64()),
    pa.field("transaction_index_verdict", pa.string()),
]
SEGMENT_VERDICTS: Final = pa.schema(_FIELDS)
"""The fields of `SegmentVerdict`, in order; one row per segment."""
_VERDICTS: Final = [kind.verdict_field for kind in IndexKind]
ROWS_IN_A_BATCH: Final = 10_000


def verdict_batches(verdicts: Iterable[SegmentVerdict]) -> Iterator[pa.RecordBatch]:
    """Yield verdicts as rows of SEGMENT_VERDICTS, in their order."""
    each = iter(verdicts)
    while some := list(islice(each, ROWS_IN_A_BATCH)):
        yield pa.RecordBatch.from_pylist([verdict.as_row() for verdict in some], SEGMENT_VERDICTS)
