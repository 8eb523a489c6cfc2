"""Standard output that fails as itself: a full disk or a closed pipe is no fault of a file read.

`print` to a full disk raises OSError, and so does reading a log. Code that reads, deletes or
publishes handles the OSErrors of its files; while a command runs, those of standard output are
OutputErrors, which no such code catches.
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
        """Take what the system said."""
        super().__init__(f"standard output cannot be written: {error.strerror or error}")
        self.is_closed = error.errno == errno.EPIPE


class _Guarded:
    """A text stream whose OSErrors are OutputErrors."""

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
    """Let a fault of standard output be an OutputError; at the end all is written, or one raised.

    What could not be written is dropped then, or Python would complain once more when it ends.
    """
    stream = sys.stdout
    if stream is None:  # closed by who started us: nothing is printed
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
