"""Files of a local disk, read and written with few system calls.

A build opens a log and writes an index file per segment, so for small segments these calls are much
of its time. Arrow's files make more of them: they ask for a file's kind and position again.
"""

import errno
import os
import stat
from contextlib import AbstractContextManager

from kip33.formats.byte_sources import ReadInto
from kip33.stores.read_faults import READ_FAULTS


def require_regular(path: str) -> None:
    """Raise OSError for a FIFO or a device, because opening one may block for ever."""
    mode = os.stat(path).st_mode  # noqa: PTH116 - a path, as the filesystem has it
    if not stat.S_ISREG(mode):
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, "not a regular file")  # EISDIR makes it an IsADirectoryError


def opened_locally(path: str) -> AbstractContextManager[tuple[ReadInto, int]]:
    """Open a regular file; it gives what reads it at any position, and its size in bytes now."""
    return _OpenedFile(path)


class _OpenedFile:
    """A file that is open in a `with` block. A generator would take longer than the calls here."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> tuple[ReadInto, int]:
        with READ_FAULTS:
            require_regular(self._path)
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return self._read_into, os.fstat(self._descriptor).st_size
            except BaseException:
                os.close(self._descriptor)
                raise

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def _read_into(self, position: int, view: memoryview) -> int:
        with READ_FAULTS:
            return os.preadv(self._descriptor, [view], position)


def write_new(path: str, data: bytes) -> None:
    """Write a file that does not exist yet; FileNotFoundError if its folder does not."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)  # less the umask
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
    finally:
        os.close(descriptor)
