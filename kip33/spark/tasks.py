"""Run work on executors with `mapPartitions`: on bins of a listing, or on a DataFrame.

A session of Spark Connect has no RDDs; there `mapInArrow` is used (`kip33.spark.connect`).
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from kip33.archive.bins import Progress, Result
from kip33.spark.connect import cores_of, is_connect, map_bins, map_in_arrow, map_rows
from kip33.spark.failures import SparkJobError, job_failure
from kip33.spark.store_settings import use_session
from kip33.stores.filesystems import filesystems_for_tasks, use_stores

POLL_SECONDS: Final = 0.2


def to_ipc(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream, to send a bin of files to its task.

    It is compressed: paths shrink to a tenth, and the JVM keeps every bin until its task is done.
    """
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def from_ipc(data: bytes) -> pa.Table:
    """Return the table of `to_ipc`."""
    return pa.ipc.open_stream(pa.BufferReader(data)).read_all()


def run_on_bins(
    spark: SparkSession,
    files: pa.Table,
    packed: Sequence[npt.NDArray[np.int64]],
    run: Callable[[int, pa.Table], Iterable[Result]],
    *,
    on_progress: Progress | None,
) -> list[Result]:
    """Do as `kip33.archive.bins.Engine` says, in one task a bin; SparkJobError where the job fails.

    `packed` has the rows of each bin. `on_progress` is called from a thread of its own.
    """
    work = [(number, to_ipc(files.take(rows))) for number, rows in enumerate(packed)]

    def run_bin(number: int, data: bytes) -> Iterable[Result]:
        return run(number, from_ipc(data))

    map_them = _map_connect if is_connect(spark) else _map_partitions
    try:
        return map_them(spark, work, run_bin, on_progress)
    except (Py4JError, ConnectionError, PySparkException) as error:
        raise SparkJobError(job_failure(error)) from error


def run_on_rows(
    rows: DataFrame,
    run: Callable[[Iterable[dict[str, Any]]], Iterable[Sequence[Any]]],
    schema: StructType,
) -> DataFrame:
    """Return the results of `run` for the rows of each partition, in columns of this schema.

    Nothing runs before the result is used. Tasks use the session's settings of stores.
    """
    spark = rows.sparkSession
    settings = use_session(spark)
    if is_connect(spark):
        return map_rows(rows, run, schema, settings)
    stores = spark.sparkContext.broadcast(
        (settings, filesystems_for_tasks())
    )  # secrets: never in a closure

    def run_partition(partition: Iterable[Row]) -> Iterable[Sequence[Any]]:
        use_stores(*stores.value)
        return map(plain_row, run(row.asDict(recursive=True) for row in partition))

    return spark.createDataFrame(rows.rdd.mapPartitions(run_partition), schema)


def run_in_arrow(
    spark: SparkSession,
    work: Sequence[bytes],
    run: Callable[[bytes], Iterable[pa.RecordBatch]],
    schema: StructType,
) -> DataFrame:
    """Return the record batches of `run` for each of `work`, one task each; it needs pandas.

    Nothing runs before the result is used. Tasks use the session's settings of stores.
    """
    settings = use_session(spark)
    if is_connect(spark):
        return map_in_arrow(spark, work, run, schema, settings)
    context = spark.sparkContext
    stores = context.broadcast((settings, filesystems_for_tasks()))  # secrets: never in a closure

    def run_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        use_stores(*stores.value)
        for batch in batches:
            for one in batch.to_pylist():
                yield from run(one["data"])

    bins = context.parallelize([(data,) for data in work], max(1, len(work)))
    return spark.createDataFrame(bins, "data binary").mapInArrow(run_partition, schema)


def plain_row(row: Iterable[Any]) -> tuple[Any, ...]:
    """Return a row with its enumerations as plain text: Spark 3.5 cannot pickle an enumeration."""
    return tuple(str(value) if isinstance(value, StrEnum) else value for value in row)


def cores(spark: SparkSession) -> int:
    """Return how many tasks run at once."""
    return cores_of(spark) if is_connect(spark) else spark.sparkContext.defaultParallelism


def _map_connect(
    spark: SparkSession,
    work: Sequence[tuple[int, bytes]],
    run: Callable[[int, bytes], Iterable[Result]],
    on_progress: Progress | None,
) -> list[Result]:
    def on_done(done: int) -> None:
        if on_progress:
            on_progress(min(done, len(work)), len(work))

    on_done(0)
    results = map_bins(spark, work, run, use_session(spark), on_done if on_progress else None)
    on_done(len(work))
    return results


def _map_partitions(
    spark: SparkSession,
    work: Sequence[tuple[int, bytes]],
    run: Callable[[int, bytes], Iterable[Result]],
    on_progress: Progress | None,
) -> list[Result]:
    context = spark.sparkContext
    stores = context.broadcast(
        (use_session(spark), filesystems_for_tasks())
    )  # secrets: never in a closure

    def run_partition(partition: Iterable[tuple[int, bytes]]) -> Iterable[Result]:
        use_stores(*stores.value)
        for number, data in partition:
            yield from run(number, data)

    group = f"kip33-{uuid4().hex}"
    context.setJobGroup(group, "kip33", interruptOnCancel=True)
    try:
        with _Watcher(spark, group, len(work), on_progress):
            return context.parallelize(work, len(work)).mapPartitions(run_partition).collect()
    finally:
        with suppress(Py4JError, ConnectionError):
            stores.destroy()


class _Watcher:
    """Asks Spark how many tasks of a job group are done, until the job is done."""

    def __init__(
        self, spark: SparkSession, group: str, total: int, on_progress: Progress | None
    ) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._group, self._total, self._on_progress = group, total, on_progress
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> None:
        if self._on_progress:
            self._on_progress(0, self._total)
            self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._done.set()
        if self._on_progress:
            self._thread.join()
            if kind is None:
                self._on_progress(self._total, self._total)

    def _poll(self) -> None:
        while not self._done.wait(POLL_SECONDS):
            try:
                done = self._tasks_done()
            except (Py4JError, ConnectionError):  # the JVM has ended: the job itself reports it
                return
            if self._on_progress:
                self._on_progress(min(done, self._total), self._total)

    def _tasks_done(self) -> int:
        done = 0
        for job in self._tracker.getJobIdsForGroup(self._group):
            info = self._tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                stage_info = self._tracker.getStageInfo(stage)
                done += stage_info.numCompletedTasks if stage_info else 0
        return done
