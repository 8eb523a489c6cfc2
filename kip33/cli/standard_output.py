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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from kip33.cli.payload_text import printable


class OutputError(Exception):
    """Standard output cannot be written; `is_closed`: its reader has ended, as `head` does."""

    def __init__(self, error: OSError) -> None:
        """Take the system's error."""
        super().__init__(f"standard output cannot be written: {error.strerror or error}")
        self.is_closed = error.errno == errno.EPIPE


class _Shown:
    """A text stream for people."""

    buffer = None  # or click writes to it if the encoding is ASCII

    def __init__(self, stream: Any) -> None:
        self.exact = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.exact, name)

    def write(self, text: str) -> int:
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
    except OutputError:
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
