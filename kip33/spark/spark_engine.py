"""The engine on Spark; pyspark is imported, and a session started, when there is work."""

from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa

from kip33.archive.bins import (
    READING_LOGS,
    BinProgress,
    EngineName,
    Result,
    Work,
    least_task_cost,
    rows_of_bins,
    weights,
)
from kip33.archive.common_options import EngineRun
from kip33.stores.progress import OnProgress, Phase, Progress, tell_nobody

if TYPE_CHECKING:
    from kip33.spark.store_settings import Session


class SparkEngine:
    """Works on bins in tasks of a session. Without bins no session is started."""

    name: EngineName = EngineName.SPARK

    def __init__(
        self,
        session: "Callable[[], Session]",
        parallelism: int | None = None,
        on_progress: OnProgress = tell_nobody,
    ) -> None:
        """Take the function that returns the session, the number of tasks, and who is told."""
        self._session: Final = session
        self._parallelism, self.on_progress = parallelism, on_progress
        self.workers = 0

    @classmethod
    def of(cls, spark: "Session", options: EngineRun) -> Self:
        """Return the engine of a function's options, in its session."""
        return cls(lambda: spark, options["parallelism"], options["on_progress"])

    def prepare(self, files: pa.Table) -> None:
        """Start the session if there are files; SparkStartError or JavaMissingError if it fails."""
        if files.num_rows:
            self.on_progress(Progress(Phase.STARTING_SPARK))
            self._session()

    def run_on_bins(
        self,
        files: pa.Table,
        run: Callable[[int, pa.Table], Iterable[Result]],
        *,
        reads_files: bool = True,
        work: Work = READING_LOGS,
    ) -> list[Result]:
        """Do as `kip33.archive.bins.Engine` says, one task a bin; SparkJobError if the job fails.

        SparkStartError or JavaMissingError if the session does not start.
        """
        return list(self._results(files, run, work, reads_files=reads_files, streams=False))

    def stream_bins(
        self,
        files: pa.Table,
        run: Callable[[int, pa.Table], Iterable[Result]],
        *,
        work: Work = READING_LOGS,
    ) -> Generator[Result, None, None]:
        """Do as `kip33.archive.bins.Engine` says; errors are those of `run_on_bins`."""
        yield from self._results(files, run, work, reads_files=True, streams=True)

    def _results(
        self,
        files: pa.Table,
        run: Callable[[int, pa.Table], Iterable[Result]],
        work: Work,
        *,
        reads_files: bool,
        streams: bool,
    ) -> Iterable[Result]:
        if not files.num_rows:
            return ()
        from kip33.spark.jobs import cores, cores_to_come  # with pyspark, which takes a second
        from kip33.spark.tasks import run_on_bins

        spark = self._session()
        sizes = weights(files, reads_files=reads_files)
        now = cores(spark)
        most = max(now, cores_to_come(spark))
        least = least_task_cost(files, work, reads_files=reads_files)
        bin_rows = rows_of_bins(sizes, most, self._parallelism, least)
        self.workers = min(now, len(bin_rows))

        def saw_cores(number: int) -> None:
            self.workers = min(max(self.workers, number), len(bin_rows))

        progress = BinProgress(sizes, bin_rows, work, self.on_progress)
        name = work.text(len(bin_rows), int(sizes.sum()) if work.has_bytes else 0)
        return run_on_bins(
            spark, name, files, bin_rows, work, run, progress, saw_cores, streams=streams
        )
