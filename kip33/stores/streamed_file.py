"""A large file of kip33: written piece by piece, published when it is complete."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kip33.errors import PublishError
from kip33.stores.durable_files import flush, make_folder
from kip33.stores.file_status import status_of
from kip33.stores.files import one_line
from kip33.stores.locations import Location
from kip33.stores.own_files import TEMPORARY_SUFFIX, remove_quietly, rename_over


@contextmanager
def streamed_file(place: Location) -> Iterator[BinaryIO]:
    """Yield a file to write; it is published as `place` if the block ends without an error.

    A reader sees no file or the complete one. On a local disk the bytes go to a temporary file
    beside it (`.NAME.*.tmp`). For a store they are collected in a temporary file of this machine.
    Raises PublishError, one line, if the file cannot be written.
    """
    try:
        with _local_file(place) if place.is_local else _sent_file(place) as file:
            yield file
    except OSError as error:
        raise PublishError(
            f"{place.uri}: cannot be written: {one_line(error)}; there is no file: "
            "fix it and run the command again"
        ) from error


@contextmanager
def _local_file(place: Location) -> Iterator[BinaryIO]:
    temporary = _temporary(place)
    make_folder(place.parent)
    try:
        with Path(temporary.path).open("xb") as file:
            yield file
        flush(temporary.path)
        rename_over(place, temporary.path)
        flush(place.parent.path)
    except BaseException:
        remove_quietly(temporary)
        raise


@contextmanager
def _sent_file(place: Location) -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as file:
        yield file
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        target = place if place.is_object_store else _temporary(place)
        if not place.is_object_store:
            make_folder(place.parent)
        try:
            with place.filesystem().open_output_stream(target.path) as stream:
                shutil.copyfileobj(file, stream, 1 << 20)
            status = status_of(target)
            if status is None or status.size_bytes != size:
                found = status.size_bytes if status else None
                raise OSError(f"{size} bytes were written, but the file has {found} bytes")
            if target != place:
                rename_over(place, target.path)
        except BaseException:
            remove_quietly(target)
            raise


def _temporary(place: Location) -> Location:
    return place.parent.child(f".{place.name}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
