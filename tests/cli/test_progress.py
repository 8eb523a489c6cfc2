"""Progress at a terminal and in a log: what it says, and that it leaves nothing behind."""

import io
import os
import pty
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kip33.cli import progress
from kip33.cli.progress import ProgressDisplay, progress_line
from kip33.cli.standard_output import StatusLine, guarded_output
from kip33.stores.progress import Phase, Progress, called_until_the_end

GIB = 1 << 30
READING = Progress(Phase.READING_LOGS, 0, 5000, 0, 65 * GIB)
LATER = Progress(Phase.READING_LOGS, 1234, 5000, 27 * GIB, 65 * GIB)


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def line_after(seconds: float, *told: Progress, width: int = 200) -> str:
    """Return the line when the last progress is told `seconds` after the first."""
    clock = Clock()
    display = ProgressDisplay("build", clock)
    for one in told:
        clock.now = 0.0 if one is told[0] else seconds
        display(one)
        display.line()
    clock.now = seconds
    return display.line(width)


def test_a_line_says_what_is_known(subtests: pytest.Subtests) -> None:
    cases = {
        "nothing told": ((), 3, "build: starting, 3 s"),
        "a listing, whose end is not known": (
            (Progress(Phase.LISTING, 1234, directories=56),),
            22,
            "build: listing, 1,234 segments in 56 directories, 22 s",
        ),
        "one": (
            (Progress(Phase.LISTING, 1, directories=1),),
            1,
            "build: listing, 1 segment in 1 directory, 1 s",
        ),
        "bytes, rate, time left": (
            (READING, LATER),
            100,
            "build: reading logs 41%, 1,234 of 5,000 segments, 27.0 of 65.0 GiB, 276 MiB/s, "
            "2:21 left",
        ),
        "no bytes: the time left is of the partitions": (
            (Progress(Phase.SEARCHING, 0, 40), Progress(Phase.SEARCHING, 10, 40, unit="partition")),
            10,
            "build: searching 25%, 10 of 40 partitions, 30 s left",
        ),
        "records": (
            (Progress(Phase.READING_LOGS, 5_000_000, unit="record"),),
            75,
            "build: reading logs, 5,000,000 records, 1:15",
        ),
        "the time of a phase begins with it": (
            (LATER, Progress(Phase.WRITING_CATALOG)),
            9,
            "build: writing the catalog, 0 s",
        ),
        "no time has passed": (
            (LATER, LATER),
            0,
            "build: reading logs 41%, 1,234 of 5,000 segments, 27.0 of 65.0 GiB, 0 s",
        ),
    }
    for name, (told, seconds, expected) in cases.items():
        with subtests.test(name):
            assert line_after(seconds, *told) == expected


def test_a_line_fits_the_width(subtests: pytest.Subtests) -> None:
    for width, expected in [
        (79, "reading logs, 1,234 of 5,000 segments, 27.0 of 65.0 GiB, 276 MiB/s, 2:21 left"),
        (70, "reading logs 41%, 27.0 of 65.0 GiB, 276 MiB/s, 2:21 left"),
        (39, "reading logs 41%, 2:21 left"),
        (20, "reading logs 41%"),
        (5, "readi"),
    ]:
        with subtests.test(f"{width}"):
            assert line_after(100, READING, LATER, width=width) == expected


def test_a_rate_is_of_the_last_seconds() -> None:
    clock = Clock()
    display = ProgressDisplay("build", clock)
    for second in range(101):
        clock.now = second
        read = second if second < 50 else 50 + 3 * (second - 50)
        display(Progress(Phase.READING_LOGS, 0, 1, read << 20, 500 << 20))
        line = display.line()
    assert "3.0 MiB/s, 1:40 left" in line


def shown_on(text: str) -> list[str]:
    """Return the lines that a terminal shows after it has printed a text."""
    lines, at = [""], 0
    for part in re.findall(r"\r|\n|\x1b\[K|[^\r\n\x1b]+", text):
        if part == "\n":
            lines, at = [*lines, ""], 0
        elif part == "\r":
            at = 0
        elif part == "\x1b[K":
            lines[-1] = lines[-1][:at]
        else:
            lines[-1] = lines[-1][:at] + part + lines[-1][at + len(part) :]
            at += len(part)
    return lines


def test_what_is_printed_meanwhile_stands_on_lines_of_its_own() -> None:
    terminal = io.StringIO()
    line = StatusLine(terminal)
    line.draw("build: listing, 1,234 segments")
    line.draw("build: reading")
    assert shown_on(terminal.getvalue()) == ["build: reading"]
    for text in ("Warning: half", " a line", "\n"):
        with line.erased(text):
            terminal.write(text)
        line.draw("drawn") if text != "\n" else None
    line.draw("build: more")
    assert shown_on(terminal.getvalue()) == ["Warning: half a line", "build: more"]
    line.erase()
    assert shown_on(terminal.getvalue()) == ["Warning: half a line", ""]


@contextmanager
def standard_error_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w", buffering=1) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        yield ours
    os.close(ours)


def test_at_a_terminal_the_line_is_gone_when_a_command_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    seen = ""
    with standard_error_at_a_terminal(monkeypatch) as terminal:
        with (
            pytest.raises(ValueError, match="fails"),
            guarded_output(),
            progress_line("build") as on_progress,
        ):
            on_progress(Progress(Phase.LISTING, 7, directories=2))
            while "7 segments in 2 directories" not in seen:
                seen += os.read(terminal, 4096).decode()
            sys.stderr.write("Warning: a link\n")
            raise ValueError("fails")
        sys.stderr.write("the prompt\n")
        while "the prompt" not in seen:
            seen += os.read(terminal, 4096).decode()
    assert shown_on(seen) == ["Warning: a link", "the prompt", ""]


def test_in_a_log_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = threading.Event()

    class Log(io.StringIO):
        def write(self, text: str) -> int:
            if "7 segments" in text:
                printed.set()
            return super().write(text)

    log = Log()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(progress, "LOGGED_SECONDS", 0.01)
    with progress_line("build") as on_progress:
        on_progress(Progress(Phase.LISTING, 7, directories=2))
        assert printed.wait(600)
    assert re.search(
        r"^20\d\d-\d\d-\d\dT[\d:]{8}Z build: listing, 7 segments in 2 directories, 0 s$",
        log.getvalue(),
        re.M,
    )
    assert "\r" not in log.getvalue()


def test_what_a_callback_raises_in_its_thread_reaches_the_caller() -> None:
    called = threading.Event()

    def fail() -> None:
        called.set()
        raise OSError("no room in the notebook")

    with pytest.raises(OSError, match="no room"), called_until_the_end(fail, 0.01):
        assert called.wait(600)
    with pytest.raises(KeyError), called_until_the_end(fail, 0.01):
        raise KeyError("the work's own error is the one that is raised")


def test_a_short_command_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_line("build") as on_progress:
        on_progress(LATER)
    assert capsys.readouterr() == ("", "")
