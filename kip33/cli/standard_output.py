"""Standard output with its own error, so that a full disk is not mistaken for an unreadable log.

`print` to a full disk raises OSError, and so does reading a log. Code that reads, deletes or
publishes files handles OSErrors. While a command runs, errors of standard output are OutputErrors,
which such code does not catch.
"""

import errno
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO


class OutputError(Exception):
    """Standard output cannot be written; `is_closed`: its reader has ended, as `head` does."""

    def __init__(self, error: OSError) -> None:
        """Take the system's error."""
        super().__init__(f"standard output cannot be written: {error.strerror or error}")
        self.is_closed = error.errno == errno.EPIPE


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


@contextmanager
def guarded_output() -> Iterator[None]:
    """Raise OutputErrors for faults of standard output, also for the last flush at the end.

    Unwritten output is then dropped; otherwise Python would report the fault again when it ends.
    """
    stream = sys.stdout
    if stream is None:  # closed by the parent process: nothing is printed
        yield
        return
    sys.stdout = _Guarded(stream)
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
