"""What a worker process does: it works on the bins that it is sent, until it is told to end.

It ends at once when it gets SIGTERM and when the process that started it has ended, however that
ended. It ignores SIGINT: Ctrl-C at a terminal reaches all processes of a command, and the one that
was started by the user ends the others.
"""

import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection, wait
from multiprocessing.process import parent_process
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from kip33.stores.filesystems import use_stores


class Bin(NamedTuple):
    """A number and its rows of files."""

    number: int
    files: pa.Table


class Stores(NamedTuple):
    """How remote stores are reached: settings, keys among them, and filesystems by their root."""

    settings: Mapping[str, str]
    given: Mapping[str, fs.FileSystem]


class Done(NamedTuple):
    """What a worker answers for a bin: results, or what was raised instead."""

    number: int
    results: list[Any]
    error: BaseException | None = None


class UnportableError(Exception):
    """An exception that cannot travel between processes: its trace."""


def work_on_bins(
    connection: Connection,
    run: Callable[[int, pa.Table], Iterable[Any]],
    stores: Stores | None,
) -> None:
    """Answer each Bin that `connection` sends with a Done; return when it sends None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if stores is not None:
        use_stores(*stores)
    while (asked := connection.recv()) is not None:
        connection.send_bytes(pickle.dumps(_answer(asked, run)))


def _answer(asked: Bin, run: Callable[[int, pa.Table], Iterable[Any]]) -> Done:
    try:
        return Done(asked.number, list(run(asked.number, asked.files)))
    except Exception as error:
        return Done(asked.number, [], _portable(error))


def _portable(error: Exception) -> BaseException:
    """Return the exception with its trace as a note, as it arrives in another process."""
    trace = "".join(traceback.format_exception(error))
    try:
        arrived: BaseException = pickle.loads(pickle.dumps(error))
    except Exception:
        return UnportableError(trace)
    arrived.add_note(f"in a worker process:\n{trace}")
    return arrived


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
