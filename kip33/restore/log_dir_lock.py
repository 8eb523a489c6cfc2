"""One run of `kip33 restore` or `kip33 truncate` at a time in a log directory.

The directory itself is locked, because a copy of a log directory has no `.lock`.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from kip33.errors import Kip33Error, LockedError
from kip33.stores.files import one_line
from kip33.stores.locations import Location


@contextmanager
def alone_in(log_dir: Location, what: str, failure: type[Kip33Error]) -> Iterator[None]:
    """Hold a log directory until the end of the block; `what` is the operation in the message.

    Raises LockedError if another run holds it, `failure` if it cannot be opened.
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
