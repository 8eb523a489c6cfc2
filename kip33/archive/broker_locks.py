"""The `.lock` of a broker's log directory: no file is deleted or replaced under a running broker.

A broker holds it from start to stop, through Java's `FileLock`, which is a POSIX lock on a file's
bytes. While kip33 holds it, no broker starts. Brokers of 4.x delete the file when they stop, older
ones keep it. In a broker's log directory (with `meta.properties`) a missing file is created, and
removed at the end. An archive has neither file, or a copied `.lock` that is not held.

The lock belongs to a process: it does not separate two runs in one process.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from kip33.archive.sources import OF_A_BROKER, require_no_restore
from kip33.errors import Kip33Error, LockedError
from kip33.stores.files import one_line
from kip33.stores.locations import Location

LOCK: Final = ".lock"
_HELD: Final = (PermissionError, BlockingIOError)
_TRIES: Final = 5


@contextmanager
def locked(
    partitions: Iterable[Location], *, make: bool = True, restores: bool = False
) -> Iterator[None]:
    """Hold the lock of every local log directory that contains the partition directories.

    `make`: create the lock file of a broker's log directory if it is missing. Raises LockedError if
    a broker or another run of kip33 holds one, or it cannot be opened, and for an unfinished
    restore unless the caller `restores`.
    """
    held: list[tuple[int, Location | None]] = []  # descriptor, and the file if created here
    try:
        for log_dir in sorted(_log_dirs(partitions)):
            lock = _take(log_dir, make=make)
            if lock:
                held.append(lock)
            if not restores:
                require_no_restore(log_dir)
        yield
    finally:
        for descriptor, created in held:
            if created:
                with suppress(OSError):
                    os.unlink(created.path)  # noqa: PTH108 - before unlocking, as Kafka does
            os.close(descriptor)


@contextmanager
def alone_in(log_dir: Location, what: str, failure: type[Kip33Error]) -> Iterator[None]:
    """Hold a log directory until the end of the block; `what` is the operation in the message.

    The directory itself is locked, because a copy of a log directory has no `.lock`. Raises
    LockedError if another run holds it, `failure` if it cannot be opened.
    """
    path = os.path.realpath(log_dir.path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise failure(
            f"{log_dir.uri}: cannot be opened: {one_line(error)}; fix it and run the command again"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LockedError(
                f"{log_dir.uri}: another {what} works in this log directory; wait until it has "
                "ended"
            ) from error
        yield
    finally:
        os.close(descriptor)


def _log_dirs(partitions: Iterable[Location]) -> set[Location]:
    """Return the parents of the directories, as named and with links resolved."""
    log_dirs = set()
    for partition in partitions:
        if partition.is_local:
            real = partition._replace(path=os.path.realpath(partition.path))
            log_dirs |= {partition.parent, real.parent}
    return log_dirs


def _take(log_dir: Location, *, make: bool) -> tuple[int, Location | None] | None:
    """Return the locked file, None if it is missing and must not be made."""
    place = log_dir.child(LOCK)
    is_brokers = os.path.exists(log_dir.child(OF_A_BROKER).path)  # noqa: PTH110
    for _ in range(_TRIES):
        there = os.path.exists(place.path)  # noqa: PTH110
        if not there and not (make and is_brokers):
            return None
        flags = os.O_RDWR | (0 if there else os.O_CREAT | os.O_EXCL)
        try:
            descriptor = os.open(place.path, flags, 0o644)
        except (FileNotFoundError, FileExistsError):
            continue  # a broker stopped or started in between
        except OSError as error:
            raise _refusal(place, f"cannot be opened: {one_line(error)}") from error
        try:
            _lock(descriptor, place)
            if _is_at(descriptor, place):
                return descriptor, None if there else place
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # a broker deleted it when it stopped: no longer a lock
    raise _refusal(place, "is created and deleted repeatedly")


def _is_at(descriptor: int, place: Location) -> bool:
    """Return whether the open file is still the one of this name."""
    try:
        there = os.stat(place.path)  # noqa: PTH116
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def _lock(descriptor: int, place: Location) -> None:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except _HELD as error:
        raise _refusal(place, "a broker or another run of kip33 holds the lock") from error
    except OSError as error:
        raise _refusal(place, f"cannot be locked: {one_line(error)}") from error


def _refusal(place: Location, why: str) -> LockedError:
    return LockedError(
        f"{place.uri}: {why}; kip33 does not change the log directory of a running "
        "broker: stop the broker, or use a copy"
    )
