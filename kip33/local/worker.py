"""A worker process: it processes the bins that it receives, until it is told to end.

SIGTERM ends it, after the file that it is writing. It ends immediately when its parent process has
ended for any reason. It ignores SIGINT: Ctrl-C at a terminal reaches all processes of a command,
and the parent ends the others.
"""

import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection, wait
from multiprocessing.process import parent_process
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from kip33.archive.bins import Result
from kip33.errors import ExitCode, Kip33Error
from kip33.stores.filesystems import use_stores
from kip33.stores.own_files import end_process


class Bin(NamedTuple):
    """A number and its rows of files."""

    number: int
    files: pa.Table


class Stores(NamedTuple):
    """Access to remote stores: settings, including keys, and filesystems by their root."""

    settings: Mapping[str, str]
    given: Mapping[str, fs.FileSystem]


class Done(NamedTuple):
    """A worker's answer for a bin: results or the error."""

    number: int
    results: list[Any]
    error: BaseException | None = None


class BinError(Exception):
    """A plain ValueError of a bin: a bug, which a command must not take for wrong usage."""


class UnportableError(Exception):
    """The trace of an exception that cannot be sent between processes."""


def work_on_bins(
    connection: Connection,
    run: Callable[[int, pa.Table], Iterable[Any]],
    stores: Stores | None,
) -> None:
    """Answer each Bin that `connection` sends with a Done; return when it sends None."""
    # A progress bar replaces them with objects that have a lock; a fork may copy it locked.
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end_process)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    failure: BaseException | None = None
    try:
        threading.Thread(target=_end_with_parent, daemon=True).start()
        if stores is not None:
            use_stores(*stores)
    except Exception as error:  # no thread is left, for example; the parent reports it
        failure = _portable(error)
    while (work_bin := connection.recv()) is not None:
        done = Done(work_bin.number, [], failure) if failure else _answer(work_bin, run)
        connection.send_bytes(pickle.dumps(done))


def results_of_bin(
    run: Callable[[int, pa.Table], Iterable[Result]], number: int, files: pa.Table
) -> list[Result]:
    """Return a bin's results. Its errors end a command with exit code 1, as on Spark.

    Raises BinError for a plain ValueError.
    """
    try:
        return list(run(number, files))
    except Kip33Error as error:
        error.exit_code = ExitCode.INCOMPLETE
        raise
    except ValueError as error:
        if type(error) is ValueError:  # pyarrow's errors are subclasses
            raise BinError(str(error)) from error
        raise


def _answer(work_bin: Bin, run: Callable[[int, pa.Table], Iterable[Any]]) -> Done:
    try:
        return Done(work_bin.number, results_of_bin(run, work_bin.number, work_bin.files))
    except Exception as error:
        return Done(work_bin.number, [], _portable(error))


def _portable(error: Exception) -> BaseException:
    """Return the exception in a form that can be sent, with its trace as a note."""
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
