"""Copy the bytes of a log while they are read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kip33.errors import CorruptSegmentError
from kip33.formats.byte_sources import PIECE_BYTES, ReadInto, read_fully
from kip33.restore.staged_files import target_errors
from kip33.stores.locations import Location
from kip33.stores.read_faults import READ_FAULTS

KERNEL_BYTES: Final = 8 << 20  # copied ahead of the scan


class CopyingReader:
    """Reads a log for its scan, and copies the bytes to a new file in the same order.

    A local file is copied by the kernel a piece ahead of the scan, which then reads the copy from
    memory. Where the kernel cannot copy, as between two file systems, the scan's bytes are written.
    """

    def __init__(
        self, read_into: ReadInto, descriptor: int, target: Location, source: int | None = None
    ) -> None:
        """Take what reads the log, an empty open file, and the log's descriptor if it is local."""
        self._read_into, self._descriptor, self._target = read_into, descriptor, target
        self._source = source if hasattr(os, "copy_file_range") else None
        self.written = 0

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill `view` from a position of the log; return how many bytes were read."""
        end = position + len(view)
        if self._source is not None:
            self._copy_ahead(end)
        if self.written >= end:
            return os.preadv(self._descriptor, [view], position)
        count = self._read_into(position, view)
        if position > self.written:
            self.copy_up_to(position)
        if position + count > self.written:
            self._write(view[self.written - position : count])
        return count

    def copy_up_to(self, end: int) -> None:
        """Copy what the scan did not read, up to `end`; CorruptSegmentError if it is shorter."""
        while self.written < end:
            piece = read_fully(self._read_into, self.written, min(PIECE_BYTES, end - self.written))
            if not piece:
                raise CorruptSegmentError(f"the log ends at byte {self.written}, expected {end}")
            self._write(memoryview(piece))

    def _copy_ahead(self, end: int) -> None:
        """Let the kernel copy at least up to `end`, unless the file is shorter or it cannot."""
        assert self._source is not None
        while self.written < end:
            try:
                count = os.copy_file_range(
                    self._source, self._descriptor, KERNEL_BYTES, self.written, self.written
                )
            except OSError:  # the bytes are then written one by one, which shows the fault
                self._source = None
                return
            if not count:
                return
            self.written += count

    def _write(self, data: memoryview) -> None:
        with target_errors(self._target):
            while data:
                count = os.pwrite(self._descriptor, data, self.written)
                self.written += count
                data = data[count:]


@contextmanager
def local_file(log: Location) -> Iterator[int | None]:
    """Open a log that is a local file; None for others."""
    if not log.is_local or log.inside:
        yield None
        return
    with READ_FAULTS:
        descriptor = os.open(log.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
