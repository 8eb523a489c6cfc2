"""A progress bar on a terminal, nothing elsewhere."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ProgressBar:
    """The progress of a long command: the listing, Spark's start, then finished tasks of all."""

    def __init__(self, progress: "Progress", bar: "TaskID", what: str) -> None:
        """Draw on a task of rich's."""
        self._progress, self._bar, self._what = progress, bar, what
        self._has_tasks = False

    def listed(self, segments: int) -> None:
        """Show how many segments were found so far."""
        self._progress.update(self._bar, description=f"{self._what}: {segments:,} segments listed")

    def counted(self, records: int) -> None:
        """Show how many records were found so far."""
        self._progress.update(self._bar, description=f"{self._what}: {records:,} records")

    def advance(self, done: int, total: int) -> None:
        """Show how many tasks are done; the number of segments is shown before, however short."""
        is_first, self._has_tasks = not self._has_tasks, True
        if is_first:
            self._progress.refresh()
        text = f"{self._what}: tasks"
        self._progress.update(
            self._bar, description=text, completed=done, total=total, refresh=is_first
        )


@contextmanager
def progress_bar(what: str) -> Iterator[ProgressBar | None]:
    """Yield a bar, or None if standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    # A copy of standard error, which is redirected while the JVM starts (spark.jvm).
    with (
        os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal,
        Progress(*columns, console=Console(file=terminal), transient=True) as progress,
    ):
        yield ProgressBar(progress, progress.add_task(what, total=None), what)
