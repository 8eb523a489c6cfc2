"""A job of kip33 in a session that is the user's: its name, its end, and the cores it is for.

A job runs in a thread of its own. That thread takes over the caller's job group, so whoever cancels
the group cancels the job. What it sets in addition ends with it: a name for Spark's UI, and a tag,
by which the job is cancelled if the caller is interrupted. The caller's thread only waits, so its
connection to the JVM is free for that.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from pyspark.traceback_utils import SCCallSiteSync

from kip33.spark.store_settings import Session, context_of, is_connect

Result = TypeVar("Result")
POLL_SECONDS: Final = 0.2
UNKNOWN_CORES: Final = 32
"""Of a cluster whose settings do not say how many cores it gives."""
_MOST_EXECUTORS: Final = 100_000  # a larger maximum is no limit
_TIMES_TO_CANCEL: Final = 25
_DESCRIPTION: Final = "spark.job.description"
_CALL_SITE: Final = "callSite.short"


def run_job(
    spark: Session,
    name: str,
    collect: Callable[[], Result],
    on_poll: Callable[[], None] = lambda: None,
) -> Result:
    """Return what `collect` returns, which runs jobs of this name; errors are those of `collect`.

    `on_poll` is called some times a second. If the caller is interrupted, the jobs are cancelled.
    """
    tag = f"kip33-{uuid4().hex}"
    tags = {*spark.getTags(), tag} if is_connect(spark) else {tag}
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            for one in tags:
                spark.addTag(one) if is_connect(spark) else context_of(spark).addJobTag(one)
            with named(spark, name):
                results.append(collect())
        except BaseException as error:  # raised in the caller's thread
            errors.append(error)

    kind = threading.Thread if is_connect(spark) else InheritableThread
    thread = kind(target=run, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(POLL_SECONDS)
            on_poll()
    except BaseException:
        _cancel(spark, tag, thread)
        raise
    if errors:
        raise errors[0]
    return results[0]


def _cancel(spark: Session, tag: str, thread: threading.Thread) -> None:
    """Cancel the jobs with a tag, those that their thread is about to start too."""
    with suppress(Py4JError, ConnectionError, PySparkException):
        for _ in range(_TIMES_TO_CANCEL):
            if is_connect(spark):
                spark.interruptTag(tag)
            else:
                context_of(spark).cancelJobsWithTag(tag)
            thread.join(POLL_SECONDS)
            if not thread.is_alive():
                return


@contextmanager
def named(spark: Session, name: str) -> Iterator[None]:
    """Name the jobs and stages that this thread starts, after the description that the user gave.

    What the user has set is there again afterwards. Spark Connect has no names.
    """
    if is_connect(spark):
        yield
        return
    context = context_of(spark)
    before = {key: context.getLocalProperty(key) for key in (_DESCRIPTION, _CALL_SITE)}
    given = before[_DESCRIPTION]
    try:
        context.setLocalProperty(_DESCRIPTION, f"{given}: {name}" if given else name)
        here: Any = SCCallSiteSync
        with here(context):  # else each action names its stage after a line of Python
            context.setLocalProperty(_CALL_SITE, name)
            yield
    finally:
        with suppress(Py4JError, ConnectionError):  # the JVM may have ended
            for key, value in before.items():
                unset: Any = value
                context.setLocalProperty(key, unset)


def cores(spark: Session) -> int:
    """Return how many tasks run at once now; with Connect the number of partitions of a range."""
    if is_connect(spark):
        numbered = spark.range(10_000).select(sf.spark_partition_id().alias("number"))
        return numbered.distinct().count()
    return max(1, context_of(spark).defaultParallelism // _number(spark, "spark.task.cpus", 1))


def cores_to_come(spark: Session) -> int:
    """Return how many tasks may run at once when all executors of the session have registered.

    This is what its settings allow: executors, or with dynamic allocation the most of them, times
    their cores. UNKNOWN_CORES where they set no limit.
    """
    master = _setting(spark, "spark.master") or ""
    if master.startswith("local[") or master == "local":
        return 1
    is_standalone = not (master == "yarn" or master.startswith("k8s"))
    is_dynamic = (_setting(spark, "spark.dynamicAllocation.enabled") or "").lower() == "true"
    if is_dynamic:
        executors = _number(spark, "spark.dynamicAllocation.maxExecutors", 0)
    else:
        executors = _number(spark, "spark.executor.instances", 0 if is_standalone else 2)
    each = _number(spark, "spark.executor.cores", 0 if is_standalone else 1)
    limits = [_number(spark, "spark.cores.max", 0) if is_standalone else 0]
    limits.append(executors * each if executors <= _MOST_EXECUTORS else 0)
    found = min(filter(None, limits), default=UNKNOWN_CORES)
    return max(1, found // _number(spark, "spark.task.cpus", 1))


def _number(spark: Session, key: str, default: int) -> int:
    text = _setting(spark, key)
    return int(text) if text and text.isdecimal() else default


def _setting(spark: Session, key: str) -> str | None:
    """Return a setting of the session; a server of Connect may refuse to show it.

    The configuration of a SparkSession would load Spark's SQL, which takes seconds.
    """
    if is_connect(spark):
        with suppress(PySparkException):
            return spark.conf.get(key, None)
        return None
    return context_of(spark).getConf().get(key)
