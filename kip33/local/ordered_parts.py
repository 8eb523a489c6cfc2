"""Parts that workers read at the same time, whose pieces arrive in the order of the parts.

Parts go to the workers in turn, some ahead of their time. The parent listens only to the worker of
the first unfinished part. The others wait when MOST_UNREAD_BYTES of theirs are not taken, so memory
is bounded, however slow the consumer is. A worker never waits for itself: what it has sent is of
parts before the one it works on, and the parent takes those first.

Pieces are pickled, and the buffers of Arrow's arrays are not: they go into a file in memory that
has no name, which the parent maps. The system frees it when both have closed it, or have ended.
"""

import io
import mmap
import os
import pickle
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, islice
from multiprocessing import reduction
from typing import Any, BinaryIO, Final, NamedTuple, TypeVar

from kip33.local.worker_pool import Link, Worker, WorkerPool, portable

Part = TypeVar("Part")
Piece = TypeVar("Piece")

MOST_UNREAD_BYTES: Final = 1 << 27  # of a worker, unless one piece has more
_MOST_UNREAD: Final = 32  # messages: each may have an open file
_MOST_FILES: Final = 8  # that a worker uses again
_PARTS_AHEAD: Final = 3  # of a worker: one that it reads, others that wait
_ENOUGH_BYTES: Final = 1 << 20  # pieces of one message
_INSIDE_BYTES: Final = 1 << 16  # so few are sent in the message itself
_ALIGNED: Final = 64  # bytes, as Arrow recommends
_HAS_MEMORY_FILES: Final = hasattr(os, "memfd_create")  # Linux


class _Sent(NamedTuple):
    """Pieces of a part: pickled ones, and the sizes of their buffers; and maybe its end."""

    pieces: list[tuple[bytes, list[int]]]
    inside: bytes | None = None  # the buffers; None: in the file that comes next
    file: int | None = None  # the worker's descriptor of that file, if it can use it again
    is_end: bool = False
    error: BaseException | None = None  # at the end


class _Taken(NamedTuple):
    """The parent has taken a message; it has released the memory of these files."""

    released: list[int]


class _Assigned:
    """A part that a worker has."""

    def __init__(self, part: Any, number: int) -> None:
        """Take the part, and the number of its worker."""
        self.part, self.number = part, number
        self.attempts, self.taken = 1, 0  # pieces
        self.is_dropped = False  # the other pieces are not wanted, nor the error after them


class OrderedRun:
    """The parts that workers have, and those workers, which run `serve_parts`."""

    def __init__(self, pool: WorkerPool, segments_of: Callable[[Any], tuple[str, int]]) -> None:
        """Start the workers."""
        self._pool, self._segments_of = pool, segments_of
        self._workers = pool.start()
        self._assigned: deque[_Assigned] = deque()

    def in_order(self, parts: Iterable[Part]) -> Iterator[tuple[Part, Iterator[Any]]]:
        """Yield each part with its pieces."""
        waiting, numbers = iter(parts), cycle(range(len(self._workers)))
        while True:
            for part in islice(waiting, _PARTS_AHEAD * len(self._workers) - len(self._assigned)):
                self._assign(_Assigned(part, next(numbers)))
            if not self._assigned:
                return
            first = self._assigned[0]
            pieces = self._pieces(first)
            yield first.part, pieces
            first.is_dropped = True
            for _ in pieces:  # what the consumer has not taken
                pass
            self._assigned.popleft()
            if all(one.number != first.number for one in self._assigned):
                self._workers[first.number].work = None

    def _assign(self, one: _Assigned) -> None:
        """Send a part to its worker."""
        self._assigned.append(one)
        worker = self._workers[one.number]
        if worker.work is None:
            worker.begin(*self._segments_of(one.part))
        worker.send(one.part)

    def _pieces(self, first: _Assigned) -> Iterator[Any]:
        """Yield the pieces of the first part; the end of its worker is not seen by the caller."""
        self._workers[first.number].begin(*self._segments_of(first.part))
        skipped = 0
        while True:
            worker = self._workers[first.number]
            self._pool.answered([worker], 1.0)
            try:
                message: _Sent | None = self._pool.receive(worker)
                found = _arrived(message, worker) if message else ()
            except (EOFError, OSError) as error:
                self._replace(worker, first, error)
                skipped = 0
                continue
            for piece in found:
                skipped += 1
                if skipped > first.taken:  # else it was taken before a worker was lost
                    first.taken += 1
                    yield piece
            if message is None:  # it has said a line
                continue
            worker.send(_Taken([worker.released.popleft() for _ in range(len(worker.released))]))
            if message.error and not first.is_dropped:
                raise message.error
            if message.is_end:
                return

    def _replace(self, lost: Worker, first: _Assigned, error: Exception) -> None:
        """Give the parts of a worker that was killed to a new one."""
        worker = self._pool.replace(lost, first.attempts, error)
        first.attempts += 1
        self._workers[first.number] = worker
        worker.begin(*self._segments_of(first.part))
        for one in self._assigned:
            if one.number == first.number:
                worker.send(one.part)


def _arrived(sent: _Sent, worker: Worker) -> Iterator[Any]:
    """Return the pieces of a message, whose buffers are in mapped memory."""
    if sent.inside is not None:
        return _unpickled(sent.pieces, memoryview(sent.inside))
    descriptor = reduction.recv_handle(worker.connection)
    try:
        mapped = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)
    if sent.file is not None:  # known when no array uses the memory any longer
        weakref.finalize(mapped, worker.released.append, sent.file).atexit = False
    return _unpickled(sent.pieces, memoryview(mapped))


def _unpickled(pieces: list[tuple[bytes, list[int]]], data: memoryview) -> Iterator[Any]:
    at = 0
    for pickled, sizes in pieces:
        buffers = []
        for size in sizes:
            buffers.append(data[at : at + size])
            at += _aligned(size)
        yield pickle.loads(pickled, buffers=buffers)


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // _ALIGNED) * _ALIGNED


def serve_parts(
    run: Callable[[Part], Iterable[Piece]], link: Link, failure: BaseException | None
) -> None:
    """Send the pieces of each part that the parent sends; return when it sends None."""
    sender = _Sender(link)
    threading.Thread(target=sender.listen, daemon=True).start()
    while (part := sender.next_part()) is not None:
        error = failure
        try:
            if not failure:
                for piece in run(part):
                    sender.add(piece)
                    del piece
        except Exception as found:
            error = portable(found)
        sender.flush(is_end=True, error=error)


class _Sender:
    """A worker's side: sends pieces, and waits while the parent has not taken enough of them."""

    def __init__(self, link: Link) -> None:
        """Begin with nothing."""
        self._link = link
        self._parts: deque[Any] = deque()
        self._unread: deque[int] = deque()  # bytes of each message
        self._files: set[int] = set()  # in memory, which are written again
        self._free: deque[int] = deque()  # of these, those that the parent has released
        self._changed = threading.Condition()
        self._pieces: list[tuple[bytes, list[int]]] = []
        self._buffers: list[memoryview] = []
        self._pickled_bytes = self._size_bytes = 0  # of pickles; of buffers, with what aligns them

    def listen(self) -> None:
        """Take what the parent sends, whatever this process does: the parent never waits long."""
        message: Any = ""
        while message is not None:
            try:
                message = self._link.receive()
            except (EOFError, OSError):
                message = None
            with self._changed:
                if isinstance(message, _Taken):
                    self._unread.popleft()
                    self._free.extend(message.released)
                else:
                    self._parts.append(message)
                self._changed.notify()

    def next_part(self) -> Any:
        """Return the next part when it is there, None after the last one."""
        with self._changed:
            self._changed.wait_for(lambda: self._parts)
            return self._parts.popleft()

    def add(self, piece: Any) -> None:
        """Send a piece, perhaps together with the next ones."""
        buffers: list[memoryview] = []
        pickled = pickle.dumps(
            piece, protocol=5, buffer_callback=lambda one: buffers.append(one.raw())
        )
        sizes = [one.nbytes for one in buffers]
        self._pieces.append((pickled, sizes))
        self._buffers += buffers
        self._size_bytes += sum(map(_aligned, sizes))
        self._pickled_bytes += len(pickled)
        if self._size_bytes + self._pickled_bytes >= _ENOUGH_BYTES:
            self.flush()

    def flush(self, *, is_end: bool = False, error: BaseException | None = None) -> None:
        """Send what was not sent yet, as soon as the parent has taken enough."""
        size_bytes = self._size_bytes
        weight = size_bytes + self._pickled_bytes
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(weight))
            self._unread.append(weight)
        if size_bytes > _INSIDE_BYTES and _HAS_MEMORY_FILES:
            descriptor = self._memory_file(size_bytes)
            is_kept = descriptor in self._files
            with open(descriptor, "wb", closefd=not is_kept) as file:
                file.seek(0)
                self._write(file)
                file.flush()
                sent = _Sent(self._pieces, None, descriptor if is_kept else None, is_end, error)
                self._link.send(sent, descriptor)
        else:
            inside = io.BytesIO()
            self._write(inside)
            self._link.send(_Sent(self._pieces, inside.getvalue(), None, is_end, error))
        self._pieces, self._buffers = [], []
        self._pickled_bytes = self._size_bytes = 0

    def _has_room(self, weight: int) -> bool:
        if not self._unread:
            return True
        return sum(self._unread) + weight <= MOST_UNREAD_BYTES and len(self._unread) < _MOST_UNREAD

    def _memory_file(self, size_bytes: int) -> int:
        """Return a file in memory with room; one that is not in `_files` must be closed.

        New memory is cleared by the kernel, which takes longer than to read most records.
        """
        descriptor = self._free.popleft() if self._free else os.memfd_create("kip33")
        if len(self._files) < _MOST_FILES:
            self._files.add(descriptor)
        if os.fstat(descriptor).st_size < size_bytes:
            os.ftruncate(descriptor, size_bytes)
        return descriptor

    def _write(self, file: BinaryIO) -> None:
        for buffer in self._buffers:
            file.write(buffer)
            file.write(bytes(_aligned(buffer.nbytes) - buffer.nbytes))
