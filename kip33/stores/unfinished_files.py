"""A process that is told to end leaves no temporary file: it ends after the files under way.

An exception out of a signal handler would not do: it may come anywhere, also where exceptions are
ignored.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.RLock()  # a handler runs in the main thread, which may hold it
_under_way = 0
_ends_with: int | None = None  # the exit code, as soon as the process is to end


@contextmanager
def unfinished_file() -> Iterator[None]:
    """Let the process end only after this block, or before it."""
    global _under_way
    with _lock:
        is_ending = _ends_with is not None
        _under_way += not is_ending
    if is_ending:
        threading.Event().wait()  # the last file under way ends the process
    try:
        yield
    finally:
        with _lock:
            _under_way -= 1
            _end_if_finished()


def end_process(number: int, _: object) -> None:
    """End this process as soon as no file is under way: a handler of a signal."""
    global _ends_with
    with _lock:
        _ends_with = 128 + number
        _end_if_finished()


def _end_if_finished() -> None:
    if _ends_with is not None and not _under_way:
        os._exit(_ends_with)
