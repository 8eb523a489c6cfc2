"""Run work on executors: on bins of a listing, or on the rows of a DataFrame.

A classic session uses `mapPartitions`. A session of Spark Connect has no RDDs, so `mapInArrow` is
used, which besides UDFs is the only way to run Python on executors there. It needs pandas (extra
`connect`). Results are sent as pickles in a binary column. Secrets are sent as `SessionStores`,
because plans with their closures are displayed and logged.
"""

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext, StorageLevel
from pyspark.accumulators import AccumulatorParam
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas import functions
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from kip33.archive.bins import BinProgress, Result, Work, require_seen
from kip33.catalog.catalog import ipc_bytes
from kip33.catalog.schema import SEGMENTS
from kip33.catalog.segment_order import PARTITION, order_of
from kip33.errors import ExitCode, Kip33Error, NotSeenError
from kip33.rules.segment_summary import SegmentStatus
from kip33.spark.jobs import cores, named, run_job
from kip33.spark.store_settings import Session, SessionStores, context_of, is_connect

RESULTS_IN_A_BATCH: Final = 1_000
MOST_RESULT_BYTES: Final = 16 << 20  # that a driver of Connect gets at once
_PARTITIONS: Final = "spark.sql.leafNodeDefaultParallelism"
_RESULT: Final = "number int, result binary"
_NOT_SEEN: Final = re.compile(rf"{NotSeenError.__name__}: (.*)")
WORKER_MEMORY: Final = "spark.executor.pyspark.memory"
ENOUGH_MEMORY: Final = "2g"  # measured, see docs/how-to/clusters.md
_OUT_OF_MEMORY: Final = re.compile(  # as Python, Arrow, the loader and a dead worker say it
    r"MemoryError|can't start new thread|annot allocate|bad_alloc|malloc of size|failed to map"
    r"|An exception was thrown from the Python worker|Python worker exited unexpectedly"
)
_SAYS_WHAT: Final = re.compile(r"(Caused by: |Exception in thread \S+ )?[\w.$]*(Error|Exception): ")


def run_on_bins(  # parameters: a job, its bins, and who is told
    spark: Session,
    name: str,
    files: pa.Table,
    bin_rows: Sequence[npt.NDArray[np.int64]],
    work: Work,
    run: Callable[[int, pa.Table], Iterable[Result]],
    progress: BinProgress,
    saw_cores: Callable[[int], None],
    *,
    streams: bool = False,
) -> Iterator[Result]:
    """Do as `kip33.archive.bins.Engine` says, in one task a bin; SparkJobError where the job fails.

    `name` is that of the job, `bin_rows` has the rows of each bin. Each task first looks for what
    `work` needs on its machine. `saw_cores` is told how many cores there are meanwhile; with
    Connect it is not. If it `streams`, the results stay on the disks of the executors, from which
    those of a bin at a time come to the driver, with Connect those of MOST_RESULT_BYTES.
    """
    # Paths shrink to a tenth as bytes, and the JVM keeps every bin until its task is done.
    bins = [(number, ipc_bytes(files.take(rows))) for number, rows in enumerate(bin_rows)]

    def run_bin(number: int, data: bytes) -> Iterable[Result]:
        rows = pa.ipc.open_stream(pa.BufferReader(data)).read_all()
        require_seen(work, rows)
        return run(number, rows)

    try:
        if is_connect(spark):
            yield from _map_connect(spark, name, bins, run_bin, progress, streams=streams)
        else:
            how = (spark, name, bins, run_bin, progress, saw_cores)
            yield from _map_partitions(*how, streams=streams)
    except (Py4JError, ConnectionError, PySparkException) as error:
        raise _SparkJobError(job_failure(error)) from error


def run_on_rows(
    rows: DataFrame,
    run: Callable[[Iterable[dict[str, Any]]], Iterable[Sequence[Any]]],
    schema: StructType,
) -> DataFrame:
    """Return the results of `run` for the rows of each partition, in columns of this schema.

    Nothing runs before the result is used. Tasks use the session's settings of stores.
    """
    stores = SessionStores.of(rows.sparkSession)
    arrow = arrow_schema(schema)

    def run_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stores.use()
        each = (batch.slice(row, 1) for batch in batches for row in range(batch.num_rows))
        for results in _in_lists(run(row for one in each for row in one.to_pylist())):
            columns = zip(*results, strict=True)
            typed = [pa.array(*pair) for pair in zip(columns, arrow.types, strict=True)]
            yield pa.RecordBatch.from_arrays(typed, schema=arrow)

    return _map_arrow(rows, run_task, schema)


def _in_lists(results: Iterable[Result]) -> Iterator[list[Result]]:
    """Yield the results in lists of at most RESULTS_IN_A_BATCH."""
    each = iter(results)
    while some := list(islice(each, RESULTS_IN_A_BATCH)):
        yield some


def run_in_arrow(
    spark: SparkSession,
    work: Sequence[bytes],
    run: Callable[[bytes], Iterable[pa.RecordBatch]],
    schema: StructType,
) -> DataFrame:
    """Return the record batches of `run` for each of `work`, one task each.

    Nothing runs before the result is used. Tasks use the session's settings of stores.
    """
    stores = SessionStores.of(spark)

    def run_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stores.use()
        for batch in batches:
            for one in batch.to_pylist():
                yield from run(one["data"])

    count = max(1, len(work))
    if is_connect(spark):
        numbered = spark.createDataFrame(list(enumerate(work)), "number int, data binary")
        bins = numbered.repartitionByRange(count, "number")
    else:
        each = context_of(spark).parallelize([(data,) for data in work], count)
        bins = spark.createDataFrame(each, "data binary")
    return _map_arrow(bins, run_partition, schema)


def judge_in_tasks(
    catalog: DataFrame,
    needed: Sequence[str],
    judge: Callable[[pa.Table], pa.Table],
    added: pa.Schema,
) -> DataFrame:
    """Return the rows of a catalog with the columns that `judge` adds to them.

    `judge` gets the columns of SEGMENTS, in order; those that the catalog does not have are null.
    The other columns travel through the same task. AnalysisException if a column in `needed`, or
    one of PARTITION, is missing.
    """
    catalog.select(*PARTITION, *needed)

    def add(rows: pa.Table) -> pa.Table:
        segments = segments_of(rows)
        order = pa.array(order_of(segments))
        rows, answers = rows.take(order), judge(segments.take(order))
        for name in answers.column_names:
            rows = rows.append_column(name, answers[name])
        return rows

    return map_by_partition(catalog, add, StructType([*catalog.schema, *from_arrow_schema(added)]))


def map_by_partition(
    rows: DataFrame,
    run: Callable[[pa.Table], pa.Table],
    schema: StructType,
    keys: Sequence[str] = PARTITION,
) -> DataFrame:
    """Return the tables of `run`, with this schema, which gets all rows of its partitions.

    The rows are shuffled by the keys. Nothing runs before the result is used. Tasks use the
    session's settings of stores.
    """
    return map_in_place(rows.repartition(*keys), run, schema)


def map_in_place(
    rows: DataFrame, run: Callable[[pa.Table], pa.Table], schema: StructType
) -> DataFrame:
    """Do as `map_by_partition` with the rows of each task, which are not moved."""
    stores = SessionStores.of(rows.sparkSession)
    arrow = arrow_schema(schema)

    def run_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = list(batches)
        if given:
            stores.use()
            yield from run(pa.Table.from_batches(given)).cast(arrow).to_batches()

    return _map_arrow(rows, run_task, schema)


def collect_table(rows: DataFrame) -> pa.Table:
    """Return all rows as a table; runs a job."""
    if hasattr(rows, "toArrow"):  # Spark 4
        return rows.toArrow()
    before: Any = rows
    return pa.Table.from_batches(before._collect_as_arrow(), arrow_schema(rows.schema))


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return a schema of Spark as one of Arrow; its timestamps are in UTC."""
    convert: Any = to_arrow_schema
    try:
        arrow: pa.Schema = convert(schema, timezone="UTC")
    except TypeError:  # an older PySpark has no other zone
        arrow = convert(schema)
    return arrow


def _map_connect(
    spark: SparkSession,
    name: str,
    work: Sequence[tuple[int, bytes]],
    run: Callable[[int, bytes], Iterable[Result]],
    progress: BinProgress,
    *,
    streams: bool,
) -> Iterator[Result]:
    """Which tasks have ended is not known, so they count in the order in which they begin."""
    stores = SessionStores.of(spark)

    def run_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stores.use()
        for batch in batches:
            for one in batch.to_pylist():
                for results in _in_lists(run(one["number"], one["data"])):
                    numbers = pa.array([one["number"]] * len(results), pa.int32())
                    pickles = [*map(pickle.dumps, results)]
                    yield pa.RecordBatch.from_pydict({"number": numbers, "result": pickles})

    def on_done(done: int) -> None:
        progress.tell(range(min(done, len(work))))

    on_done(0)
    with _cut_into(spark, len(work)), _progress(spark, on_done), ExitStack() as at_end:
        bins = spark.createDataFrame(list(work), "number int, data binary")
        results = bins.mapInArrow(run_partition, _RESULT)
        shares: Iterable[DataFrame] = [results]
        if streams:
            results = results.persist(StorageLevel.DISK_ONLY)
            at_end.callback(results.unpersist)
            sizes = results.groupBy("number").agg(sf.sum(sf.length("result")).alias("size"))
            shares = _in_shares(results, run_job(spark, name, sizes.collect))
        for share in shares:
            for row in run_job(spark, name, share.collect):
                yield pickle.loads(row.result)
    on_done(len(work))


def _in_shares(results: DataFrame, sizes: Iterable[Any]) -> Iterator[DataFrame]:
    """Yield the results of some bins, of MOST_RESULT_BYTES if one bin has not more."""
    first, held = None, 0
    for number, size in sorted(sizes):
        if first is not None and held + size > MOST_RESULT_BYTES:
            yield results.where(sf.col("number").between(first, number - 1))
            first, held = None, 0
        first, held = (number if first is None else first), held + size
    if first is not None:
        yield results.where(sf.col("number") >= first)


class _Union(AccumulatorParam[frozenset[int]]):
    """Adds up the numbers of the bins whose tasks have ended, each once."""

    def zero(self, value: frozenset[int]) -> frozenset[int]:
        """Return no numbers."""
        return frozenset()

    def addInPlace(  # noqa: N802
        self, value1: frozenset[int], value2: frozenset[int]
    ) -> frozenset[int]:
        """Return the numbers of both."""
        return value1 | value2


def _map_partitions(
    spark: Session,
    name: str,
    work: Sequence[tuple[int, bytes]],
    run: Callable[[int, bytes], Iterable[Result]],
    progress: BinProgress,
    saw_cores: Callable[[int], None],
    *,
    streams: bool,
) -> Iterator[Result]:
    context = context_of(spark)
    stores = SessionStores.of(spark)
    ended = context.accumulator(frozenset[int](), _Union())

    def run_partition(partition: Iterable[tuple[int, bytes]]) -> Iterable[Result]:
        stores.use()
        for number, data in partition:
            yield from run(number, data)
            ended.add(frozenset([number]))

    def on_poll() -> None:
        with suppress(Py4JError, ConnectionError):  # the JVM has ended: the job itself reports it
            saw_cores(cores(spark))
        progress.tell(ended.value)

    progress.tell(())
    bins = context.parallelize(work, len(work)).mapPartitions(run_partition)
    results: Iterable[Result] = ()
    try:
        if streams:
            bins.persist(StorageLevel.DISK_ONLY)
            run_job(spark, name, bins._jrdd.count, on_poll)
        else:
            results = run_job(spark, name, bins.collect, on_poll)
        saw_cores(cores(spark))
        progress.tell(range(len(work)))
        if streams:
            with named(spark, f"{name}: results"):  # of the jobs that the iterator starts later
                results = bins.toLocalIterator()
        yield from results
    finally:
        with suppress(Py4JError, ConnectionError):
            bins.unpersist()
            stores.destroy()


def segments_of(rows: pa.Table) -> pa.Table:
    """Return the columns of SEGMENTS without index files; no status counts as unreadable."""
    columns = {
        field.name: rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in SEGMENTS
        if field.name != "index_uri"
    }
    columns["status"] = pc.fill_null(columns["status"], SegmentStatus.UNREADABLE)
    return pa.table(columns)


def _map_arrow(
    rows: DataFrame,
    run: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType,
) -> DataFrame:
    """Do as `DataFrame.mapInArrow`, which asks for pandas on the driver but never uses it."""
    if is_connect(rows.sparkSession):
        return rows.mapInArrow(run, schema)
    module: Any = functions
    check = module.require_minimum_pandas_version
    module.require_minimum_pandas_version = lambda: None
    try:
        return rows.mapInArrow(run, schema)
    finally:
        module.require_minimum_pandas_version = check


@contextmanager
def _cut_into(spark: SparkSession, partitions: int) -> Iterator[None]:
    """Make Spark split rows of the driver into this number of partitions, one per bin."""
    before = spark.conf.get(_PARTITIONS, None)
    spark.conf.set(_PARTITIONS, str(partitions))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_PARTITIONS)
        else:
            spark.conf.set(_PARTITIONS, before)


@contextmanager
def _progress(spark: SparkSession, on_done: Callable[[int], None]) -> Iterator[None]:
    if not hasattr(spark, "registerProgressHandler"):
        yield
        return

    def tell(stages: Any, **_: Any) -> None:
        on_done(sum(stage.num_completed_tasks for stage in stages or ()))

    handler: Any = tell
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)


class _SparkJobError(Kip33Error):
    """A Spark job failed: a task failed at every attempt, or the JVM ended."""

    exit_code = ExitCode.INCOMPLETE


def job_failure(error: BaseException) -> str:
    """Return one line on why a Spark job failed, from its exception.

    Spark names the last attempt's failure first, then its causes, down to "EOFException".
    """
    if type(error) is Py4JError or isinstance(error, Py4JNetworkError | ConnectionError):
        reason = "its JVM ended: it was killed or ran out of memory"
    elif "No module named 'kip33'" in str(error):
        reason = (
            "the executors do not have kip33: run make dist, then give --py-files dist/kip33.zip"
        )
    elif _OUT_OF_MEMORY.search(str(error)) and (limit := _worker_memory()):
        return (
            f"the Spark job failed: a Python worker ran out of memory: {WORKER_MEMORY} is {limit}, "
            f"which limits the address space of a core's worker; expected {ENOUGH_MEMORY} or more "
            "for each core of an executor, or no limit: set it and run the command again"
        )
    elif unseen := _NOT_SEEN.search(str(error)):
        return f"the Spark job failed: {unseen[1]}"  # the same command would fail again
    else:
        trace = str(error).partition("Driver stacktrace:")[0]
        lines = [line.strip(" :\t") for line in trace.splitlines()]
        own = [line for line in lines if _SAYS_WHAT.match(line) and "Caused by: " not in line]
        reason = own[-1].rpartition("most recent failure: ")[2] if own else java_reason(trace)
    return f"the Spark job failed: {reason}; no file is half-written: run the command again"


def _worker_memory() -> str | None:
    """Return the limit of the running session for the memory of Python workers, if it has one."""
    context = SparkContext._active_spark_context
    with suppress(Py4JError, ConnectionError):
        return context.getConf().get(WORKER_MEMORY) if context else None
    return None


def java_reason(trace: str) -> str:
    """Return the line of a Java or worker trace that says what happened."""
    lines = [line.strip().removeprefix(": ") for line in trace.splitlines() if line.strip()]
    errors = [line for line in lines if _SAYS_WHAT.match(line)]
    return errors[-1] if errors else lines[0] if lines else "no message"
