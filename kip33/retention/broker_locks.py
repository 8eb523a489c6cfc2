"""The `.lock` of a broker's log directory: no file is deleted or replaced under a running broker.

A broker holds it from its start to its end, through Java's `FileLock`, which is POSIX's lock of a
file's bytes. Whoever holds it here keeps a broker from starting. Brokers of 4.x delete the file
when they stop, those before leave it: where a log directory has `meta.properties`, as a broker's
has, the file is made if it is not there, and removed in the end. An archive has neither, or a
`.lock` that was copied and is not held.

The lock is a process's: it does not tell two runs in one process from each other.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from kip33.archive.broker_log_dirs import OF_A_BROKER
from kip33.errors import LockedError
from kip33.stores.files import one_line
from kip33.stores.locations import Location

LOCK: Final = ".lock"
_HELD: Final = (PermissionError, BlockingIOError)
_TRIES: Final = 5


@contextmanager
def locked(partitions: Iterable[Location], *, make: bool = True) -> Iterator[None]:
    """Hold the lock of every log directory on this machine of partition directories.

    `make`: also where a broker's log directory has no lock file now. Raises LockedError where a
    broker, or another run of kip33, holds one, or it cannot be opened.
    """
    held: list[tuple[int, Location | None]] = []  # descriptor, and the file if we made it
    try:
        for log_dir in sorted(_log_dirs(partitions)):
            one = _take(log_dir, make=make)
            if one:
                held.append(one)
        yield
    finally:
        for descriptor, made in held:
            if made:
                with suppress(OSError):
                    os.unlink(made.path)  # noqa: PTH108 - before it is let go, as Kafka does
            os.close(descriptor)


def _log_dirs(partitions: Iterable[Location]) -> set[Location]:
    """Return the parents of the directories, by their paths and behind links."""
    found = set()
    for partition in partitions:
        if partition.is_local:
            real = partition._replace(path=os.path.realpath(partition.path))
            found |= {partition.parent, real.parent}
    return found


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
            continue  # a broker stopped, or started, meanwhile
        except OSError as error:
            raise _refusal(place, f"cannot be opened: {one_line(error)}") from error
        try:
            _lock(descriptor, place)
            if _is_at(descriptor, place):
                return descriptor, None if there else place
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # a broker deleted it when it stopped: that is no lock any more
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
