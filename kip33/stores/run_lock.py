"""One run at a time: a lock in a folder that all runs of one piece of work know.

    FOLDER/run.lock            on a disk: an empty file that stays; the kernel locks it (`flock`)
    FOLDER/run-<run id>.lock   on a store: one for each run, put anew every minute until its end

On a disk the lock ends with its process, however that ends. A file is locked, not the folder,
because NFS shares only the locks of files between its machines.

HDFS and object stores have no locks. There each run puts its file, then lists the folder, and ends
if it sees another run: of two runs at least one sees the other. A file that is ten minutes older
than the run's own, by the store's clock, is of a run that was killed, and is removed. A machine
that stood still for so long may go on beside a later run. So on a store this lock makes results
clear, but no file may depend on it.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from kip33.errors import LockedError
from kip33.stores.files import entries_of, modified_ns, one_line
from kip33.stores.locations import Location
from kip33.stores.own_files import publish, publish_or_raise, remove_quietly

_DEAD_AFTER_MS: Final = 600_000
_RENEWED_AFTER_S: Final = 60
_LOCK: Final = "run.lock"
_PREFIX, _SUFFIX = "run-", ".lock"


@contextmanager
def only_run(folder: Location, run_id: str, what: str) -> Iterator[None]:
    """Hold the lock of a folder, which exists, until the end of the block.

    Raises LockedError if another run holds it or it cannot be taken; `what` is a run's name there.
    PublishError if a store does not take the run's file.
    """
    with _locked_file(folder, what) if folder.is_local else _put_file(folder, run_id, what):
        yield


@contextmanager
def _locked_file(folder: Location, what: str) -> Iterator[None]:
    place = folder.child(_LOCK)
    try:
        descriptor = os.open(place.path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise LockedError(
            f"{place.uri}: cannot be opened: {one_line(error)}; fix it and run the command again"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _under_way(place, what) from error
        except OSError as error:
            raise LockedError(
                f"{place.uri}: cannot be locked: {one_line(error)}; expected a file system with "
                "locks (flock)"
            ) from error
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _put_file(folder: Location, run_id: str, what: str) -> Iterator[None]:
    mine = folder.child(f"{_PREFIX}{run_id}{_SUFFIX}")
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(_RENEWED_AFTER_S):
            with suppress(OSError):
                publish(mine, b"\n")

    renewal = threading.Thread(target=renew, daemon=True)
    publish_or_raise(mine, b"\n", "nothing was changed")
    try:
        _require_alone(mine, what)
        renewal.start()
        yield
    finally:
        ended.set()
        if renewal.ident:
            renewal.join()
        remove_quietly(mine)


def _require_alone(mine: Location, what: str) -> None:
    """Remove the files of dead runs; LockedError for one of a run that may be alive."""
    folder = mine.parent
    try:
        found = {
            one.base_name: modified_ns(one, folder)
            for one in entries_of(folder)
            if one.base_name.startswith(_PREFIX) and one.base_name.endswith(_SUFFIX)
        }
    except OSError as error:
        raise LockedError(
            f"{folder.uri}: cannot be listed: {one_line(error)}; fix it and run the command again"
        ) from error
    mine_ns = found.pop(mine.name, None)
    for name, theirs_ns in found.items():
        age_ns = mine_ns - theirs_ns if mine_ns and theirs_ns else 0
        if age_ns <= _DEAD_AFTER_MS * 1_000_000:
            raise _under_way(folder.child(name), what)
        remove_quietly(folder.child(name))


def _under_way(place: Location, what: str) -> LockedError:
    minutes = _DEAD_AFTER_MS // 60_000
    killed = "" if place.name == _LOCK else f" (if it was killed, {minutes} minutes later)"
    return LockedError(
        f"{place.uri}: another {what} is under way; run the command again when it has ended{killed}"
    )
