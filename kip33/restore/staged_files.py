"""New files of a restore, and the error for those that cannot be written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from kip33.errors import PublishError
from kip33.stores.files import one_line, write_new
from kip33.stores.locations import Location


@contextmanager
def target_errors(target: Location) -> Iterator[None]:
    """Raise PublishError for an OSError of a block that writes `target`."""
    try:
        yield
    except OSError as error:
        raise not_written(target, error) from error


def not_written(target: Location, error: OSError) -> PublishError:
    """Return the error for a file of the log directory that cannot be written."""
    return PublishError(
        f"{target.uri}: cannot be written: {one_line(error)}; the restore is not complete, and "
        "nothing in the log directory was replaced: fix it and run the same command again"
    )


@contextmanager
def new_file(target: Location) -> Iterator[int]:
    """Create a file that does not exist yet; yield its descriptor, to read and write."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with target_errors(target):
        descriptor = os.open(target.path, flags, 0o666)  # less the umask
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_file(place: Location, data: bytes) -> None:
    """Write a file that does not exist yet; PublishError if that fails."""
    with target_errors(place):
        write_new(place.path, data)
