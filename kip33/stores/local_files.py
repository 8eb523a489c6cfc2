"""Files of a local disk, read and written with few system calls.

A build opens a log and writes an index file per segment, so for small segments these calls are much
of its time. Arrow's files make more of them: they ask for a file's kind and position again.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from kip33.formats.byte_sources import ReadInto


def require_regular(path: str) -> None:
    """Raise OSError for a FIFO or a device, because opening one may block for ever."""
    mode = os.stat(path).st_mode  # noqa: PTH116 - a path, as the filesystem has it
    if not stat.S_ISREG(mode):
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, "not a regular file")  # EISDIR makes it an IsADirectoryError


@contextmanager
def opened_locally(path: str) -> Iterator[tuple[ReadInto, int]]:
    """Open a regular file; yield what reads it at any position, and its size in bytes now."""
    require_regular(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:

        def read_into(position: int, view: memoryview) -> int:
            return os.preadv(descriptor, [view], position)

        yield read_into, os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


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
