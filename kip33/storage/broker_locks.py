"""The `.lock` of a broker's log directory: no file is deleted under a broker that runs.

A broker holds it from its start to its end, through Java's `FileLock`, which is POSIX's lock of a
file's bytes. Whoever holds it here keeps a broker from starting. An archive has no `.lock`, or one
that was copied and nobody holds; none is ever made.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from kip33.errors import PlanError
from kip33.storage.files import reason
from kip33.storage.locations import Location

LOCK: Final = ".lock"
_HELD: Final = (PermissionError, BlockingIOError)


@contextmanager
def locked(log_dirs: Iterable[Location]) -> Iterator[None]:
    """Hold the lock of every log directory on this machine that has one.

    Raises PlanError where a broker, or another apply, holds it, or it cannot be opened.
    """
    opened: list[int] = []
    try:
        for place in sorted({log_dir.child(LOCK) for log_dir in log_dirs if log_dir.is_local}):
            try:
                opened.append(os.open(place.path, os.O_RDWR))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _refusal(place, f"cannot be opened: {reason(error)}") from error
            _lock(opened[-1], place)
        yield
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _lock(descriptor: int, place: Location) -> None:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except _HELD as error:
        raise _refusal(place, "a broker, or another apply, holds it") from error
    except OSError as error:
        raise _refusal(place, f"cannot be locked: {reason(error)}") from error


def _refusal(place: Location, why: str) -> PlanError:
    return PlanError(
        f"{place.uri}: {why}; nothing is deleted in the log directory of a broker that may run: "
        "stop it, or apply to a copy"
    )
