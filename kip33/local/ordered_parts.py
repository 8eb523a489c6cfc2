"""Parts that workers read at the same time, whose pieces arrive in the order of the parts.

Parts go to the workers in turn, some ahead of their time. The parent listens only to the worker of
the first unfinished part. The others wait when MOST_UNREAD_BYTES of theirs are not taken, so memory
is bounded, however slow the consumer is. A worker never waits for itself: what it has sent is of
parts before the one it works on, and the parent takes those first.

Pieces are pickled, and the buffers of Arrow's arrays are not: they go into a file in memory that
has no name, which the parent maps. The system frees it when both have closed it, or have ended.
"""

import mmap
import os
import pickle
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import reduction
from typing import Any, Final, NamedTuple, TypeVar

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
    """Pieces of a part: pickled ones, and the sizes of their buffers."""

    pieces: list[tuple[bytes, list[int]]]
    size_bytes: int  # of all buffers, with what aligns them
    inside: bytes | None  # the buffers; None: in the file that comes next
    file_number: int | None = None  # of that file, if the worker can use it again


class _Taken(NamedTuple):
    """The parent has taken a message; it has released the memory of these files."""

    released: list[int]


class _Ended(NamedTuple):
    """The end of a part, or the error at it."""

    error: BaseException | None = None


class _Assigned:
    """A part that a worker has."""

    def __init__(self, part: Any, number: int) -> None:
        """Take the part, and the number of its worker."""
        self.part, self.number = part, number
        self.attempts, self.taken = 1, 0  # pieces
        self.is_dropped = False  # the other pieces are not wanted, nor the error after them


def pieces_in_order(
    pool: WorkerPool, parts: Iterable[Part], segments_of: Callable[[Part], tuple[str, int]]
) -> Iterator[tuple[Part, Iterator[Any]]]:
    """Yield each part with its pieces; the workers of `pool` run `serve_parts`."""
    run = _OrderedRun(pool, segments_of)
    waiting = enumerate(parts)
    while True:
        while run.has_room() and (numbered := next(waiting, None)) is not None:
            run.assign(numbered[1], numbered[0] % pool.most)
        if not run.assigned:
            return
        pieces = run.pieces()
        yield run.assigned[0].part, pieces
        run.assigned[0].is_dropped = True
        for _ in pieces:  # what the consumer has not taken
            pass
        run.finish()


class _OrderedRun:
    """The parts that workers have, and those workers."""

    def __init__(self, pool: WorkerPool, segments_of: Callable[[Any], tuple[str, int]]) -> None:
        """Start the workers."""
        self._pool, self._segments_of = pool, segments_of
        self._workers = pool.start(pool.most)
        self.assigned: deque[_Assigned] = deque()

    def has_room(self) -> bool:
        return len(self.assigned) < _PARTS_AHEAD * len(self._workers)

    def assign(self, part: Any, number: int) -> None:
        """Send a part to the worker of this number."""
        self.assigned.append(_Assigned(part, number))
        worker = self._workers[number]
        if worker.work is None:
            worker.begin(*self._segments_of(part))
        worker.send(part)

    def finish(self) -> None:
        """Go to the next part; note which workers have none."""
        number = self.assigned.popleft().number
        later = next((one for one in self.assigned if one.number == number), None)
        worker = self._workers[number]
        if later is None:
            worker.work = None
        else:
            worker.begin(*self._segments_of(later.part))

    def pieces(self) -> Iterator[Any]:
        """Yield the pieces of the first part; the end of its worker is not seen by the caller."""
        first = self.assigned[0]
        skipped = 0
        while True:
            worker = self._workers[first.number]
            self._pool.answered([worker], 1.0)
            try:
                message = self._pool.receive(worker)
                found = _arrived(message, worker) if isinstance(message, _Sent) else ()
            except (EOFError, OSError) as error:
                self._replace(worker, first, error)
                skipped = 0
                continue
            if isinstance(message, _Ended):
                if message.error and not first.is_dropped:
                    raise message.error
                return
            for piece in found:
                skipped += 1
                if skipped > first.taken:  # else it was taken before a worker was lost
                    first.taken += 1
                    yield piece
            if isinstance(message, _Sent):
                del found, message
                worker.send(_Taken(worker.take_released()))

    def _replace(self, lost: Worker, first: _Assigned, error: Exception) -> None:
        """Give the parts of a worker that was killed to a new one."""
        worker = self._pool.replace(lost, first.attempts, error)
        first.attempts += 1
        self._workers[first.number] = worker
        worker.begin(*self._segments_of(first.part))
        for one in self.assigned:
            if one.number == first.number:
                worker.send(one.part)


def _arrived(sent: _Sent, worker: Worker) -> Iterator[Any]:
    """Return the pieces of a message, whose buffers are in mapped memory."""
    if sent.inside is not None:
        data = memoryview(sent.inside)
    else:
        descriptor = reduction.recv_handle(worker.connection)
        try:
            mapped = mmap.mmap(descriptor, sent.size_bytes, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        if sent.file_number is not None:  # known when no array uses the memory any longer
            weakref.finalize(mapped, worker.released.append, sent.file_number).atexit = False
        data = memoryview(mapped)
    return _unpickled(sent.pieces, data)


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


class _MemoryFiles:
    """Files in memory; those that the parent has released are written again.

    New memory is cleared by the kernel, which takes longer than to read most records.
    """

    def __init__(self) -> None:
        """Begin without files."""
        self._files: dict[int, int] = {}  # number to descriptor
        self._free: deque[int] = deque()

    def release(self, numbers: Iterable[int]) -> None:
        """Note which files may be written again."""
        self._free.extend(numbers)

    def take(self, size_bytes: int) -> tuple[int, int | None]:
        """Return a file with room, and its number; without a number it must be closed."""
        number = self._free.popleft() if self._free else None
        if number is None and len(self._files) < _MOST_FILES:
            number = len(self._files)
            self._files[number] = os.memfd_create("kip33")
        descriptor = os.memfd_create("kip33") if number is None else self._files[number]
        if os.fstat(descriptor).st_size < size_bytes:
            os.ftruncate(descriptor, size_bytes)
        return descriptor, number


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
        sender.flush()
        link.send(_Ended(error))


class _Sender:
    """A worker's side: sends pieces, and waits while the parent has not taken enough of them."""

    def __init__(self, link: Link) -> None:
        """Begin with nothing."""
        self._link = link
        self._parts: deque[Any] = deque()
        self._unread: deque[int] = deque()  # bytes of each message
        self._files = _MemoryFiles()
        self._changed = threading.Condition()
        self._clear()

    def _clear(self) -> None:
        self._pieces: list[tuple[bytes, list[int]]] = []
        self._buffers: list[memoryview] = []
        self._size_bytes = 0

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
                    self._files.release(message.released)
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
        if self._size_bytes + sum(len(one) for one, _ in self._pieces) >= _ENOUGH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what was not sent yet, as soon as the parent has taken enough."""
        if not self._pieces:
            return
        size_bytes = self._size_bytes
        weight = size_bytes + sum(len(one) for one, _ in self._pieces)
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(weight))
            self._unread.append(weight)
        if size_bytes > _INSIDE_BYTES and _HAS_MEMORY_FILES:
            with self._changed:
                descriptor, number = self._files.take(size_bytes)
            self._write(descriptor)
            self._link.send(_Sent(self._pieces, size_bytes, None, number), descriptor)
            if number is None:
                os.close(descriptor)
        else:
            inside = b"".join(
                bytes(one).ljust(_aligned(one.nbytes), b"\0") for one in self._buffers
            )
            self._link.send(_Sent(self._pieces, size_bytes, inside))
        self._clear()

    def _has_room(self, weight: int) -> bool:
        if not self._unread:
            return True
        return sum(self._unread) + weight <= MOST_UNREAD_BYTES and len(self._unread) < _MOST_UNREAD

    def _write(self, descriptor: int) -> None:
        at = 0
        for buffer in self._buffers:
            done = 0
            while done < buffer.nbytes:
                done += os.pwrite(descriptor, buffer[done:], at + done)
            at += _aligned(buffer.nbytes)
