"""Write the records of an archive to a dataset of Parquet files: `kip33 records --to FOLDER`.

Each partition begins where the last run ended. A task writes the files of its share itself: Spark's
own writer takes twice as long. The offset at which a partition ends is found by the task that
reads its end, so a log that a build has not read is written, too. With `read_committed` a partition
ends at its last stable offset, as for a consumer.
"""

import pickle
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, Final, NamedTuple, Self, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.bins import Engine, Work
from kip33.catalog.catalog import Warn
from kip33.errors import CatalogError, LocationError
from kip33.records.columns import chosen
from kip33.records.parquet_records import ParquetRecords
from kip33.records.partitions import PartitionSegments, source_at
from kip33.records.reading import Isolation, Level, Reading, ReadOptions
from kip33.records.record_dataset import DatasetCommit, DatasetFile, RecordDataset, TopicEnd
from kip33.records.record_request import Faults, LogsRead, OnError
from kip33.stores.locations import Location
from kip33.stores.own_files import remove_folder_quietly, streamed_file
from kip33.stores.progress import Phase

SHARE_BYTES: Final = 256 << 20  # of a large segment, which several tasks read
_MOST_OPEN: Final = 4  # files of one task: each holds up to 64 MiB
_MOST_FILE_BYTES: Final = 1 << 30
_MOST_PROBLEMS: Final = 20
_TIME: Final = "timestamp"
_DAY_MS: Final = 86_400_000
_NO_TIME: Final = -(2**63) // _DAY_MS - 1
_NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"  # of records without a timestamp


class WriteRequest(NamedTuple):
    """What is written, and where."""

    reading: Reading  # of `columns` and the timestamp, which gives the day
    columns: pa.Schema  # of the files
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
        schema = chosen(reading.schema, [name for name in columns if name != "topic"])
        reading = reading.with_columns([*dict.fromkeys((*schema.names, _TIME))])
        if reading.on_error == OnError.ROW:
            raise ValueError("on_error 'row' found, expected 'skip' or 'fail'")
        uris = tuple(Location.of(one).uri for one in source)
        to_location = Location.of(to)
        for uri in uris:
            if Location.of(uri).contains(to_location):
                raise LocationError(f"{to_location.uri}: inside {uri}, expected another place")
        return cls(reading, schema, uris, to_location)

    @property
    def options(self) -> dict[str, Any]:
        """Return what all runs of a dataset must have in common."""
        asked = self.reading.request
        is_committed = asked.only_committed
        isolation = Isolation.READ_COMMITTED if is_committed else Isolation.READ_UNCOMMITTED
        return {
            "isolation": isolation.value,
            "include_control": asked.include_control,
            "columns": self.columns.names,
            "limits": list(asked.limits),
        }


class _Unit(NamedTuple):
    """What is read at one time: a partition, a segment, or a share of one."""

    topic: str
    partition: int
    start: int  # smaller offsets were written before
    segments: PartitionSegments


class _Written(NamedTuple):
    """What a task has written."""

    files: tuple[DatasetFile, ...]
    ends: tuple[tuple[str, int, int], ...]  # topic, partition, next offset
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
    partitions = request.reading.partitions(source_at(request.source), warn=warn)
    units = [*_units(request.reading, partitions, before.ends if before else {}, warn)]
    topics = {unit.topic for unit in units}
    staging = dataset.begin(now_ms)
    work = Work(Phase.READING_LOGS, command="records")
    run = partial(_write_bin, request, staging)
    try:
        results = engine.run_on_bins(_table_of(units), run, work=work) if units else []
    except BaseException:
        remove_folder_quietly(staging)
        raise
    files = tuple(file for result in results for file in result.files)
    ends = _ends(before, partitions, results)
    commit = DatasetCommit(
        before.number + 1 if before else 1,
        *(staging.name.partition("-")[0], request.source, request.options, ends, files),
    )
    is_new = ends != (before.ends if before else {})
    if is_new:
        dataset.commit(commit, staging)
    return WrittenRecords(
        to=request.to.uri,
        commit=commit.name if is_new else None,
        records=sum(file.records for file in files),
        files=len(files),
        bytes=sum(file.size_bytes for file in files),
        topics=len(topics),
        partitions=len({(unit.topic, unit.partition) for unit in units}),
        damaged=sum(result.damaged for result in results),
        problems=tuple(line for result in results for line in result.problems)[:_MOST_PROBLEMS],
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


def _units(
    reading: Reading,
    partitions: Sequence[PartitionSegments],
    ends: Mapping[str, TopicEnd],
    warn: Warn,
) -> Iterator[_Unit]:
    """Yield what is to be read; raises as `write_new_records` does."""
    for partition in partitions:
        topic, number = _named(partition)
        start = _start_of(partition, ends.get(topic), reading.on_error, warn)
        rest = reading._replace(request=reading.request.starting_at(start))
        if any(segment.figures is None for segment in partition):
            parts = [partition] if any(map(rest.request.needs, partition)) else []
        else:  # it is known which offsets each segment has
            parts = rest.shared(rest.parts([partition]), SHARE_BYTES)
        yield from (_Unit(topic, number, start, part) for part in parts)


def _named(partition: PartitionSegments) -> tuple[str, int]:
    first = partition[0]
    if first.topic is None or first.partition is None:
        raise LocationError(
            f"{first.log.uri}: its topic is not known; give the archive or its catalog"
        )
    return first.topic, first.partition


def _start_of(
    partition: PartitionSegments, end: TopicEnd | None, on_error: OnError, warn: Warn
) -> int:
    """Return the offset at which a partition is continued."""
    topic, number = _named(partition)
    start = end.next_offsets.get(number, 0) if end else 0
    ids = {segment.topic_id for segment in partition} - {None}
    if end and end.topic_id and ids and end.topic_id not in ids:
        raise LocationError(
            f"topic {topic}: has the id {min(filter(None, ids))}, expected {end.topic_id}: it was "
            "created again; write to another folder, or leave the topic out"
        )
    firsts = [one.base_offset for one in partition if one.base_offset is not None]
    known = [one.last_offset + 1 for one in partition if one.last_offset is not None]
    if start and known and max(known) < start and len(known) == len(partition):
        raise LocationError(
            f"{topic}-{number}: ends at offset {max(known)}, expected {start} or more: it was cut "
            "or created again; write to another folder, or leave the topic out"
        )
    if start and firsts and min(firsts) > start:
        gone = (
            f"{topic}-{number}: offsets {start} to {min(firsts) - 1} were deleted before this run"
        )
        if on_error == OnError.FAIL:
            raise LocationError(f"{gone}; with on_error skip the rest is written")
        warn(gone)
    return start


def _table_of(units: Sequence[_Unit]) -> pa.Table:
    """Return the units as a table that an engine divides."""
    return pa.table(
        {
            "log_uri": pa.array([unit.segments[0].log.uri for unit in units]),
            "size_bytes": pa.array(
                [sum(one.listed_bytes for one in unit.segments) for unit in units]
            ),
            "unit": pa.array([pickle.dumps(unit) for unit in units], pa.binary()),
        }
    )


def _ends(
    before: DatasetCommit | None,
    partitions: Sequence[PartitionSegments],
    results: Sequence[_Written],
) -> dict[str, TopicEnd]:
    """Return up to where all topics are written now."""
    ends = dict(before.ends) if before else {}
    ids = {_named(one)[0]: one[0].topic_id for one in partitions}
    for topic, number, offset in (end for result in results for end in result.ends):
        known = ends.get(topic, TopicEnd(None, {}))
        offsets = {**known.next_offsets, number: max(offset, known.next_offsets.get(number, 0))}
        ends[topic] = TopicEnd(ids[topic] or known.topic_id, offsets)
    return ends


def _write_bin(
    request: WriteRequest, staging: Location, number: int, units: pa.Table
) -> Iterator[_Written]:
    """Write the records of some units: the work of one task."""
    reading = request.reading
    skipped: list[str] = []
    logs = LogsRead()
    faults = Faults(reading.on_error, reading.schema, skipped, logs)
    ends = []
    with closing(_DayFiles(staging, number, request.columns)) as files:
        for data in units["unit"].to_pylist():
            unit: _Unit = pickle.loads(data or b"")
            asked = reading._replace(request=reading.request.starting_at(unit.start))
            reader = asked.segment_reader(faults)
            for batch in reader.read(unit.segments):
                files.add(unit.topic, batch)
            if logs.unreadable:
                raise LocationError(
                    f"{logs.unreadable[min(logs.unreadable)]}; no record is added: make the log "
                    "readable, or leave the topic out"
                )
            share = unit.segments[-1].share
            end = share.end_offset if share else reader.end_offset
            ends.append((unit.topic, unit.partition, max(end, unit.start)))
        files.finish()
        yield _Written(
            tuple(files.written), tuple(ends), len(skipped), tuple(skipped[:_MOST_PROBLEMS])
        )


class _DayFile:
    """An open file for the records of a topic and a day."""

    def __init__(self, staging: Location, path: str, schema: pa.Schema) -> None:
        self._path, self.records = path, 0
        self._stack = ExitStack()
        self._file: BinaryIO = self._stack.enter_context(
            streamed_file(staging.child(path), "no record is added")
        )
        self._parquet = ParquetRecords(schema, self._file)
        self._stack.callback(self._parquet.end)

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
        self._open: OrderedDict[tuple[str, str], _DayFile] = OrderedDict()
        self.written: list[DatasetFile] = []

    def add(self, topic: str, batch: pa.RecordBatch) -> None:
        for day, records in _by_day(batch):
            file = self._open.pop((topic, day), None) or self._opened(topic, day)
            self._open[topic, day] = file
            file.write(records.select(self._schema.names))
            if file.is_full:
                self._finish((topic, day))
            elif len(self._open) > _MOST_OPEN:
                self._finish(next(iter(self._open)))

    def finish(self) -> None:
        while self._open:
            self._finish(next(iter(self._open)))

    def close(self) -> None:
        """Remove the files that are not finished."""
        for file in self._open.values():
            file.abandon(GeneratorExit())
        self._open.clear()

    def _opened(self, topic: str, day: str) -> _DayFile:
        name = f"part-{self._number:05d}-{uuid.uuid4().hex[:12]}.parquet"
        return _DayFile(self._staging, f"topic={topic}/day={day}/{name}", self._schema)

    def _finish(self, key: tuple[str, str]) -> None:
        self.written.append(self._open.pop(key).finish())


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the records of each day (UTC), in their order."""
    if not batch.num_rows:
        return
    times = batch.column(_TIME).cast(pa.int64())
    has_none = times.is_null().to_numpy(zero_copy_only=False)
    days = pc.fill_null(times, 0).to_numpy() // _DAY_MS
    days[has_none] = _NO_TIME
    for day in np.unique(days).tolist():
        is_of_day = days == day
        name = _NO_DAY if day == _NO_TIME else str(np.datetime64(day, "D"))
        yield name, batch if is_of_day.all() else batch.filter(pa.array(is_of_day))
