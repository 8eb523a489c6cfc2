"""How a command shows its progress on standard error.

At a terminal it is one line, which is written over itself from the first second on. It fits the
width, and nothing of it stays when the command ends or fails, or prints something else. Elsewhere,
as in the log of a job, a line with the time is printed each minute, so that short commands print
none.
"""

import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TextIO

from kip33.archive.moments import current_ms
from kip33.cli.standard_output import shown_status
from kip33.errors import counted
from kip33.formats.times import iso_time
from kip33.stores.progress import Progress, called_until_the_end

FIRST_SECONDS: Final = 1.0  # a shorter command shows no line at a terminal
_DRAWN_SECONDS: Final = 0.2
LOGGED_SECONDS: Final = 60.0
_RATE_SECONDS: Final = 20.0  # over which a rate is the mean
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_WITHOUT_LIMIT: Final = 10_000
# What a line has, from the longest to the shortest; the first that fits is shown.
_FORMS: Final = (
    ("what", "phase", "share", "count", "bytes", "rate", "time"),
    ("phase", "share", "count", "bytes", "rate", "time"),
    ("phase", "count", "bytes", "rate", "time"),
    ("phase", "share", "bytes", "rate", "time"),
    ("phase", "share", "bytes", "time"),
    ("phase", "share", "count", "time"),
    ("phase", "share", "time"),
    ("phase", "share"),
)


class ProgressDisplay:
    """Takes progress, and says it in a line."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the name of the command and a clock in seconds."""
        self._what, self._clock = what, clock
        self._progress: Progress | None = None
        self._began = clock()  # the phase
        self._samples: deque[tuple[float, int]] = deque()

    def __call__(self, progress: Progress) -> None:
        """Take the progress so far; any thread may call."""
        if self._progress is None or progress.phase != self._progress.phase:
            self._began = self._clock()
            self._samples = deque()
        self._progress = progress

    def line(self, width: int = _WITHOUT_LIMIT) -> str:
        """Return the progress now, in at most `width` characters."""
        progress, now = self._progress, self._clock()
        if progress is None:
            return f"{self._what}: starting, {_clock_text(now - self._began)}"[:width]
        parts = self._parts(progress, now)
        line = ""
        for form in _FORMS:
            line = _joined({name: parts[name] for name in form if parts.get(name)})
            if len(line) <= width:
                return line
        return line[:width]

    def _parts(self, progress: Progress, now: float) -> dict[str, str]:
        """Return the texts of a line by their names in _FORMS."""
        done, total = progress.done, progress.total
        parts = {"what": f"{self._what}: ", "phase": progress.phase.value}
        if progress.directories is not None:
            several = "y" if progress.directories == 1 else "ies"
            inside = f"{progress.directories:,} director{several}"
            parts["count"] = f"{counted(done, progress.unit)} in {inside}"
        elif total is not None:
            parts["count"] = f"{done:,} of {counted(total, progress.unit)}"
        elif done:
            parts["count"] = counted(done, progress.unit)
        if progress.total_bytes:
            parts["bytes"] = _bytes_text(progress.done_bytes, progress.total_bytes)
            done, total = progress.done_bytes, progress.total_bytes
        if total:
            parts["share"] = f" {min(100, 100 * done // total)}%"
        rate = self._rate(now, done)
        if rate and progress.total_bytes:
            parts["rate"] = f"{_bytes_text(int(rate))}/s"
        elapsed = _clock_text(now - self._began)
        parts["time"] = f"{_clock_text((total - done) / rate)} left" if rate and total else elapsed
        return parts

    def _rate(self, now: float, done: int) -> float:
        """Return how much was done a second lately; 0 if that is not known yet."""
        samples = self._samples
        samples.append((now, done))
        while len(samples) > 2 and samples[1][0] <= now - _RATE_SECONDS:
            samples.popleft()
        seconds, more = now - samples[0][0], done - samples[0][1]
        if more <= 0:  # tasks of a cluster end seldom
            seconds, more = now - self._began, done
        return more / seconds if seconds > 0 else 0.0


def _joined(parts: dict[str, str]) -> str:
    """Return the parts with commas between them, but none behind the name or before a share."""
    head = "".join(parts.pop(name, "") for name in ("what", "phase", "share"))
    return ", ".join([head, *parts.values()])


def _bytes_text(done: int, total: int | None = None) -> str:
    """Return a size, or one of a total in the same unit.

    >>> _bytes_text(430 << 20), _bytes_text(27 << 30, 65 << 30), _bytes_text(1, 2 << 20)
    ('430 MiB', '27.0 of 65.0 GiB', '0.0 of 2.0 MiB')
    """
    unit = 0
    while (done if total is None else total) >> (10 * (unit + 1)) and unit < len(_UNITS) - 1:
        unit += 1
    value = done / (1 << 10 * unit)
    if total is None:
        digits = 1 if unit and value < 100 else 0
        return f"{value:.{digits}f} {_UNITS[unit]}"
    digits = 1 if unit else 0
    return f"{value:,.{digits}f} of {total / (1 << 10 * unit):,.{digits}f} {_UNITS[unit]}"


def _clock_text(seconds: float) -> str:
    """Return a duration.

    >>> _clock_text(7.4), _clock_text(92), _clock_text(7384)
    ('7 s', '1:32', '2:03 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"


@contextmanager
def progress_line(what: str) -> Iterator[ProgressDisplay]:
    """Yield who takes the progress of a command, and show it until the block ends."""
    display = ProgressDisplay(what)
    stream = sys.stderr
    if stream is None:  # closed by the parent process: nothing is shown
        yield display
        return
    with _at_terminal(display, stream) if stream.isatty() else _in_log(display, stream):
        yield display


@contextmanager
def _at_terminal(display: ProgressDisplay, stream: TextIO) -> Iterator[None]:
    # A copy of standard error, which is redirected while the JVM starts (spark.session).
    with os.fdopen(os.dup(stream.fileno()), "w") as terminal, shown_status(terminal) as line:

        def draw() -> None:
            line.draw(display.line(_width(terminal) - 1))

        with called_until_the_end(draw, _DRAWN_SECONDS, first=FIRST_SECONDS):
            yield


@contextmanager
def _in_log(display: ProgressDisplay, stream: TextIO) -> Iterator[None]:
    def log() -> None:
        with suppress(OSError):
            now = iso_time(current_ms() // 1_000 * 1_000).replace(".000Z", "Z")
            print(f"{now} {display.line()}", file=stream, flush=True)

    with called_until_the_end(log, LOGGED_SECONDS):
        yield


def _width(terminal: TextIO) -> int:
    try:
        return os.get_terminal_size(terminal.fileno()).columns or 80
    except OSError:
        return shutil.get_terminal_size().columns
