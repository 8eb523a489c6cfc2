"""How far a command is: what it tells its caller while it works.

Whoever works calls an `OnProgress` with the `Progress` so far, some times a second at most, perhaps
from a thread of its own. A terminal's display (`kip33.cli.progress`) and a notebook take the same
calls. What was read of a file that is not finished counts, too: `stores.files` adds it to
READ_SO_FAR of this process, and an engine adds up its processes.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, MutableSequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias, TypeVar


class Phase(StrEnum):
    """What a command does at the moment."""

    LISTING = "listing"
    STARTING_SPARK = "starting Spark"
    LARGEST_BEFORE = "reading logs for the largest timestamps"
    READING_LOGS = "reading logs"
    READING_INDEXES = "reading index files"
    READING_CATALOG = "reading the catalog"
    WRITING_CATALOG = "writing the catalog"
    SEARCHING = "searching"
    COPYING = "copying logs"
    FINISHING = "finishing the copies"
    EVALUATING = "evaluating retention"
    DELETING = "deleting"
    PUTTING_BACK = "putting back"
    REPAIRING = "repairing"
    REPORTING = "making the report"


class Progress(NamedTuple):
    """How far a phase is; totals are None where they are not known.

    >>> Progress(Phase.LISTING, done=7).total is None
    True
    """

    phase: Phase
    done: int = 0  # segments, unless `unit` names another thing
    total: int | None = None
    done_bytes: int = 0
    total_bytes: int | None = None
    unit: str = "segment"
    directories: int | None = None  # listed so far


OnProgress: TypeAlias = Callable[[Progress], None]
"""Called with the progress so far."""


Result = TypeVar("Result")


def telling(
    results: Iterable[Result], phase: Phase, total: int, unit: str, on_progress: OnProgress
) -> Iterator[Result]:
    """Yield results; tell how many there are, of a known number."""
    on_progress(Progress(phase, 0, total, unit=unit))
    for done, result in enumerate(results, 1):
        yield result
        on_progress(Progress(phase, done, total, unit=unit))


@contextmanager
def called_until_the_end(
    call: Callable[[], None], seconds: float, first: float | None = None
) -> Iterator[None]:
    """Call a function each `seconds` from a thread of its own, first after `first` seconds.

    What the function raises ends its calls, and is raised at the end if nothing else is.
    """
    ended = threading.Event()
    errors: list[BaseException] = []

    def call_again_and_again() -> None:
        pause = seconds if first is None else first
        try:
            while not ended.wait(pause):
                call()
                pause = seconds
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call_again_and_again, name="kip33-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if errors:
        raise errors[0]


def tell_nobody(progress: Progress) -> None:
    """Take progress and do nothing."""


class Read(NamedTuple):
    """Files that were read to their ends, and bytes, those of unfinished files included."""

    files: int = 0
    size_bytes: int = 0

    def less(self, before: "Read") -> "Read":
        """Return what was read since."""
        return Read(self.files - before.files, self.size_bytes - before.size_bytes)


class ReadSoFar:
    """Counts what the threads of this process read."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self._counts: MutableSequence[int] = [0, 0]  # files, bytes

    def count_in(self, counts: MutableSequence[int]) -> None:
        """Count in these two numbers from now on: of memory that another process reads, too."""
        self._lock, self._counts = threading.Lock(), counts

    def add(self, size_bytes: int, *, files: int = 0) -> None:
        """Count bytes that were read, and files of which these were the last."""
        with self._lock:
            self._counts[0] += files
            self._counts[1] += size_bytes

    def total(self) -> Read:
        """Return what was read so far."""
        return Read(*self._counts)


READ_SO_FAR: Final = ReadSoFar()
