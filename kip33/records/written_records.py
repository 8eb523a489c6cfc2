"""Write the records of a catalog's logs to a folder of Parquet files: `kip33 records --to FOLDER`.

Each partition begins where the last run ended, and ends where the catalog says, as for a stream
(`records.log_ranges`). A task writes the files of its shares itself: Spark's own writer takes more
than twice the CPU time.
"""

import pickle
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, Final, NamedTuple, Self, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.bins import Engine, Work
from kip33.archive.sources import require_no_file, require_outside_brokers
from kip33.catalog.catalog import Warn
from kip33.catalog.schema import chosen
from kip33.errors import CatalogError, LocationError
from kip33.formats.whole_bodies import RecordLimits
from kip33.records.log_ranges import (
    SHARE_RECORDS,
    LogRange,
    Loss,
    end_offsets,
    held_back,
    in_order,
    last_epochs,
    losses,
    ranges_that_are_there,
    shares_of,
    unread,
    with_transactions,
)
from kip33.records.parquet_records import ParquetRecords
from kip33.records.partitions import PartitionSegments, source_at
from kip33.records.reading import Level, Reading, ReadOptions
from kip33.records.record_dataset import (
    STAGED,
    TOPIC,
    DatasetCommit,
    DatasetFile,
    RecordDataset,
    file_columns,
)
from kip33.records.record_request import MOST_PROBLEMS, Faults, FilterBounds, OnError
from kip33.stores.locations import Location
from kip33.stores.own_files import remove_folder_quietly, streamed_file
from kip33.stores.progress import Phase

_SHARE_BYTES: Final = 256 << 20
_MOST_OPEN: Final = 4  # files of one task: each holds up to 64 MiB
_MOST_FILE_BYTES: Final = 1 << 30
_TIME: Final = "timestamp"
_DAY_MS: Final = 86_400_000
_DAYS: Final = (-25_567, 2_932_896)  # 1900-01-01 to 9999-12-31: all readers have these dates
_NO_DAY: Final = _DAYS[0] - 1


class WriteRequest(NamedTuple):
    """What is written, and where."""

    reading: Reading  # of `columns` and the timestamp, which gives the day
    columns: pa.Schema  # of the files, without topic and day
    source: tuple[str, ...]  # URIs: one, or the catalogs of two tiers
    to: Location

    @classmethod
    def of(cls, source: Sequence[str], to: str, **options: Unpack[ReadOptions]) -> Self:
        """Return the request for a place, or the catalogs of two tiers.

        ValueError for options whose rows are no records, or are not known at the next run.
        """
        if (level := options.get("level", Level.RECORDS)) != Level.RECORDS:
            raise ValueError(f"level {level!r} found, expected 'records'")
        asked: ReadOptions = {"on_error": "skip", **options}
        columns = asked.pop("columns", None)
        reading = Reading.of(**asked)
        if columns is None:
            hidden = ("log_dir", "topic", "base_offset")
            columns = [name for name in reading.schema.names if name not in hidden]
        schema = chosen(reading.schema, [name for name in columns if name != TOPIC])
        reading = reading.with_columns([*dict.fromkeys((*schema.names, _TIME))])
        if reading.on_error == OnError.ROW:
            raise ValueError("on_error 'row' found, expected 'skip' or 'fail'")
        uris = tuple(sorted(Location.of(one).uri for one in source))
        to_location = Location.of(to)
        require_no_file(to_location, "the folder")
        require_outside_brokers(to_location, "the folder")
        for uri in uris:
            if Location.of(uri).contains(to_location):
                raise LocationError(f"{to_location.uri}: inside {uri}, expected another place")
        return cls(reading, schema, uris, to_location)

    @property
    def options(self) -> dict[str, Any]:
        """Return what all runs of a dataset must have in common."""
        return {**self.reading.request.options, "columns": self.columns.names}


class _Written(NamedTuple):
    """What a task has written."""

    files: tuple[DatasetFile, ...]
    damaged: int
    problems: tuple[str, ...]  # the first lines about damage


@dataclass(frozen=True, kw_only=True)
class WrittenRecords:
    """What a run has added to a dataset."""

    to: str
    commit: str | None  # the name of its commit file; None: there was nothing new
    records: int
    files: int
    bytes: int  # of the files
    topics: int  # that were read
    partitions: int
    damaged: int  # what could not be read
    problems: tuple[str, ...] = field(repr=False)  # the first of them


def write_new_records(
    request: WriteRequest, engine: Engine, *, now_ms: int, warn: Warn
) -> WrittenRecords:
    """Write what is new; `warn` gets a line for offsets that were deleted meanwhile.

    Raises LocationError for a log that cannot be read, a topic that was created again, a log that
    is shorter than what was written, or a folder of another program; CatalogError for a dataset
    with other options or of another source; PublishError if a file cannot be written. With
    `on_error="fail"` deleted offsets are a LocationError. In all cases no record is added.
    """
    dataset = RecordDataset(request.to)
    before = dataset.newest()
    _require_same(before, request)
    listed = request.reading.partitions(source_at(request.source), warn=warn)
    partitions = in_order(listed)
    _require_known(listed, partitions)
    start, epochs = (before.ends, before.epochs) if before else ({}, {})
    only_committed = request.reading.request.only_committed
    partitions = with_transactions(partitions, start) if only_committed else partitions
    ends = end_offsets(partitions, start, only_committed=only_committed)
    found = (*losses(partitions, start, ends, epochs), *map(Loss, unread(listed)))
    _require_same_logs(request, found, warn)
    for line in held_back(partitions, ends) if only_committed else ():
        warn(line)
    ranges = ranges_that_are_there(partitions, start, ends)
    shares = [
        share
        for one in ranges
        for share in shares_of(one, _share_records(one), only_committed=only_committed)
    ]
    staging = dataset.begin(now_ms)
    work = Work(Phase.READING_LOGS, command="records")
    run = partial(_write_bin, request, staging)
    try:
        results = engine.run_on_bins(_table_of(shares), run, work=work) if shares else []
    except BaseException:
        remove_folder_quietly(staging)
        raise
    files = tuple(file for result in results for file in result.files)
    commit = DatasetCommit(
        before.number + 1 if before else 1,
        *(staging.name.partition("-")[0], request.source, request.options, ends),
        last_epochs(partitions, start, ends, epochs),
        files,
    )
    if ends != start:
        dataset.commit(commit, staging)
    return WrittenRecords(
        to=request.to.uri,
        commit=commit.name if ends != start else None,
        records=sum(file.records for file in files),
        files=len(files),
        bytes=sum(file.size_bytes for file in files),
        topics=len({one.segments[0].topic for one in ranges}),
        partitions=len(ranges),
        damaged=sum(result.damaged for result in results),
        problems=tuple(line for result in results for line in result.problems)[:MOST_PROBLEMS],
    )


def _require_same(before: DatasetCommit | None, request: WriteRequest) -> None:
    """Raise CatalogError unless a dataset can be continued by this request."""
    if before is None:
        return
    where = f"{request.to.uri}: {before.name}"
    if before.source != request.source:
        raise CatalogError(
            f"{where} was written from {', '.join(before.source)}, not from "
            f"{', '.join(request.source)}: choose another folder"
        )
    for name, value in request.options.items():
        if (found := before.options.get(name)) != value:
            raise CatalogError(
                f"{where} was written with {name} {found}, not {value}: all runs of a folder have "
                "the same options; choose another folder"
            )


def _require_known(
    listed: Sequence[PartitionSegments], partitions: Sequence[PartitionSegments]
) -> None:
    """Raise LocationError if it is not known of any log which offsets it has."""
    segments = [segment for partition in partitions for segment in partition]
    if not any(segment.is_checked for segment in segments):
        raise LocationError(
            f"{listed[0][0].log.uri}: which offsets it has is not known, expected a catalog whose "
            "build has read the logs: kip33 build makes one"
        )


def _share_records(found: LogRange) -> int:
    """How many records a task reads at one time."""
    by_bytes = found.records * _SHARE_BYTES // max(found.size_bytes, 1)
    return max(1, min(SHARE_RECORDS, by_bytes))


def _require_same_logs(request: WriteRequest, found: Iterable[Loss], warn: Warn) -> None:
    """Raise LocationError if another log has the place of one that was read before.

    What is missing or not read is a line, or with `on_error="fail"` an error. A log that is only
    behind is a line.
    """
    for loss in found:
        if loss.is_other_log:
            raise LocationError(f"{loss.text}; write to another folder, or leave the topic out")
        if request.reading.on_error == OnError.FAIL and not loss.is_behind:
            raise LocationError(f"{loss.text}; with on_error skip the rest is written")
        warn(loss.text)


def _table_of(shares: Sequence[LogRange]) -> pa.Table:
    """Return the shares as a table that an engine divides."""
    return pa.table(
        {
            "log_uri": pa.array([share.segments[-1].log.uri for share in shares]),
            "size_bytes": pa.array([share.size_bytes for share in shares]),
            "share": pa.array([pickle.dumps(share) for share in shares], pa.binary()),
        }
    )


def _write_bin(
    request: WriteRequest, staging: Location, number: int, shares: pa.Table
) -> Iterator[_Written]:
    """Write the records of some shares: the work of one task."""
    reading = request.reading
    skipped: list[str] = []
    faults = Faults(reading.on_error, reading.schema, skipped, skipped.append)
    schema = file_columns(request.columns.names)
    with closing(_DayFiles(staging, number, schema)) as files:
        for data in shares["share"].to_pylist():
            share: LogRange = pickle.loads(data or b"")
            share.require_unchanged()
            limits = RecordLimits(first_offset=share.first_offset, last_offset=share.end_offset - 1)
            reader = reading.inside(FilterBounds(limits)).segment_reader(faults)
            for batch in reader.read(share.segments):
                files.add(share.segments[0].topic or "", batch)
        files.finish()
        yield _Written(tuple(files.written), len(skipped), tuple(skipped[:MOST_PROBLEMS]))


class _DayFile:
    """An open file for the records of a topic and a day."""

    def __init__(self, staging: Location, path: str, schema: pa.Schema) -> None:
        self._path, self.records = path, 0
        with ExitStack() as stack:
            self._file: BinaryIO = stack.enter_context(
                streamed_file(staging.child(f"{path}{STAGED}"), "no record is added")
            )
            self._parquet = ParquetRecords(schema, self._file)
            stack.callback(self._parquet.end)
            self._stack = stack.pop_all()

    @property
    def is_full(self) -> bool:
        return self._file.tell() >= _MOST_FILE_BYTES

    def write(self, records: pa.RecordBatch) -> None:
        self._parquet.write(records)
        self.records += records.num_rows

    def finish(self) -> DatasetFile:
        with self._stack:
            self._parquet.finish()
            size_bytes = self._file.tell()
        return DatasetFile(self._path, self.records, size_bytes)

    def abandon(self, error: BaseException) -> None:
        """Remove what was written."""
        self._stack.__exit__(type(error), error, error.__traceback__)


class _DayFiles:
    """Divides records into files by topic and day; the ones used last stay open."""

    def __init__(self, staging: Location, number: int, schema: pa.Schema) -> None:
        self._staging, self._number, self._schema = staging, number, schema
        self._open: OrderedDict[tuple[str, int], _DayFile] = OrderedDict()
        self.written: list[DatasetFile] = []

    def add(self, topic: str, batch: pa.RecordBatch) -> None:
        for day, records in _by_day(batch):
            file = self._open.pop((topic, day), None) or self._opened(topic, day)
            self._open[topic, day] = file
            file.write(self._with_folder(topic, day, records))
            if file.is_full:
                self._finish((topic, day))
            elif len(self._open) > _MOST_OPEN:
                self._finish(next(iter(self._open)))

    def _with_folder(self, topic: str, day: int, records: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of the files: some of the records', topic and day."""
        date: Any = pa.scalar(None if day == _NO_DAY else day, pa.int32()).cast(pa.date32())
        of_folder = (pa.repeat(one, records.num_rows) for one in (topic, date))
        of_records = records.select(self._schema.names[:-2]).columns
        return pa.RecordBatch.from_arrays([*of_records, *of_folder], schema=self._schema)

    def finish(self) -> None:
        while self._open:
            self._finish(next(iter(self._open)))

    def close(self) -> None:
        """Remove the files that are not finished."""
        for file in self._open.values():
            file.abandon(GeneratorExit())
        self._open.clear()

    def _opened(self, topic: str, day: int) -> _DayFile:
        name = f"part-{self._number:05d}-{uuid.uuid4().hex[:12]}.parquet"
        folder = "none" if day == _NO_DAY else str(np.datetime64(day, "D"))
        return _DayFile(self._staging, f"{TOPIC}={topic}/{folder}/{name}", self._schema)

    def _finish(self, key: tuple[str, int]) -> None:
        self.written.append(self._open[key].finish())
        del self._open[key]


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the records of each day (UTC), in their order; _NO_DAY without a date."""
    if not batch.num_rows:
        return
    times = batch.column(_TIME).cast(pa.int64())
    days = pc.fill_null(times, _NO_DAY * _DAY_MS).to_numpy() // _DAY_MS
    days[(days < _DAYS[0]) | (days > _DAYS[1])] = _NO_DAY
    for day in np.unique(days).tolist():
        is_of_day = days == day
        yield day, batch if is_of_day.all() else batch.filter(pa.array(is_of_day))
