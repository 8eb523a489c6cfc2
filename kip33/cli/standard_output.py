"""Standard output and error: safe for terminals, and a full disk is no unreadable log.

What is printed has escapes for control characters, which a name may have: a terminal would act on
them. Only `exact_output` writes texts as they are.

`print` to a full disk raises OSError, and so does reading a log. Code that reads, deletes or
publishes files handles OSErrors. While a command runs, errors of standard output are OutputErrors,
which such code does not catch.
"""

import errno
import io
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Final, TextIO, cast

from kip33.errors import ExitCode, Kip33Error
from kip33.formats.printed_fields import escaped, printable

_MOST_SHOWN: Final = 60  # characters of a key or value in a table


class OutputError(Exception):
    """Standard output cannot be written; `is_closed`: its reader has ended, as `head` does."""

    def __init__(self, error: OSError) -> None:
        """Take the system's error."""
        super().__init__(f"standard output cannot be written: {error.strerror or error}")
        self.is_closed = error.errno == errno.EPIPE
        self.exit_code = ExitCode.CLOSED_PIPE if self.is_closed else ExitCode.INCOMPLETE


class _Shown:
    """A text stream for people."""

    buffer = None  # or click writes to it if the encoding is ASCII

    def __init__(self, stream: Any) -> None:
        self.exact = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.exact, name)

    def write(self, text: str) -> int:
        status = _ShownNow.status
        with status.erased(text) if status and self.exact.isatty() else nullcontext():
            self.exact.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)


class _Guarded:
    """A text stream that raises OutputErrors instead of OSErrors."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with _as_output_error():
            return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        with _as_output_error():
            self._stream.writelines(lines)

    def flush(self) -> None:
        with _as_output_error():
            self._stream.flush()


@contextmanager
def _as_output_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(error) from error


def exact_output() -> TextIO:
    """Return standard output without escapes: for CSV, and for what has only printable names."""
    stream: TextIO = getattr(sys.stdout, "exact", sys.stdout)
    return stream


def make_utf8() -> None:
    """Let standard output be UTF-8, whatever the terminal's encoding is: data is for programs."""
    if reconfigure := getattr(sys.stdout, "reconfigure", None):
        reconfigure(encoding="utf-8", errors="backslashreplace")


@contextmanager
def guarded_output() -> Iterator[None]:
    """Escape control characters, and raise OutputErrors for faults of standard output.

    That includes the last flush at the end. Unwritten output is then dropped; otherwise Python
    would report the fault again when it ends.
    """
    stream, errors = sys.stdout, sys.stderr
    if errors is not None:
        sys.stderr = cast(TextIO, _Shown(errors))
    try:
        with _guarded(stream):
            yield
    finally:
        sys.stderr = errors


@contextmanager
def _guarded(stream: TextIO | None) -> Iterator[None]:
    if stream is None:  # closed by the parent process: nothing is printed
        yield
        return
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # of an encoding that lacks characters
    sys.stdout = cast(TextIO, _Shown(_Guarded(stream)))
    try:
        try:
            yield
        except SystemExit:
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except (OutputError, Kip33Error) as error:
        if isinstance(error, OutputError) or isinstance(error.__cause__, OutputError):
            _drop(stream)
        raise
    finally:
        sys.stdout = stream


def _drop(stream: TextIO) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, stream.fileno())
    finally:
        os.close(null)


class StatusLine:
    """A line at a terminal that is written over itself; what else is printed erases it first."""

    def __init__(self, terminal: TextIO) -> None:
        """Take the terminal."""
        self._terminal = terminal
        self._lock = threading.RLock()
        self._is_drawn = self._is_in_a_line = False

    def draw(self, text: str) -> None:
        """Show a text, which must fit the width; nothing where a printed line has not ended."""
        with self._lock:
            if not self._is_in_a_line:
                self._write(f"\r{text}\x1b[K")
                self._is_drawn = True

    @contextmanager
    def erased(self, text: str) -> Iterator[None]:
        """Keep the line away while a text is printed, and until its line ends."""
        with self._lock:
            self.erase()
            yield
            if text:
                self._is_in_a_line = not text.endswith("\n")

    def erase(self) -> None:
        """Leave nothing of the line."""
        with self._lock:
            if self._is_drawn:
                self._write("\r\x1b[K")
                self._is_drawn = False

    def _write(self, text: str) -> None:
        with suppress(OSError):  # of a closed terminal: the command goes on
            self._terminal.write(text)
            self._terminal.flush()


class _ShownNow:
    status: StatusLine | None = None


@contextmanager
def shown_status(terminal: TextIO) -> Iterator[StatusLine]:
    """Yield a status line; standard output and error erase it before they write to a terminal."""
    line = _ShownNow.status = StatusLine(terminal)
    try:
        yield line
    finally:
        _ShownNow.status = None
        line.erase()


def shown_bytes(data: bytes | None) -> str:
    r"""Return bytes for a table: at most 60 characters on one line, `-` for None.

    Bytes that are not UTF-8, and characters that cannot be printed, are escaped.

    >>> shown_bytes(b"a\n\xff"), shown_bytes("ä".encode()), len(shown_bytes(b"a" * 100))
    ('a\\n\\xff', 'ä', 60)
    """
    if data is None:
        return "-"
    text = data[: 4 * _MOST_SHOWN + 4].decode(errors="backslashreplace")
    text = escaped(text[: _MOST_SHOWN + 1])
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."
