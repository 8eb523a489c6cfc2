"""A trash, to which an apply moves files, and from which an undo moves them back.

Each complete file is in one place or the other:

    TRASH/<plan id>/segments/broker-1/orders-0/00000000000000000042.log     as below SOURCE
    TRASH/<plan id>/indexes/broker-1/orders-0/00000000000000000042.index    as in an index directory
    TRASH/<plan id>/plan.jsonl    the plan, there before its first file is moved

On one filesystem a move is a rename. Otherwise the file is copied to a temporary name, the copy's
size is compared with the plan, the copy is renamed, and then the original is deleted.
"""

import errno
import os
import shutil
from typing import Final

from kip33.archive.segment_paths import PlannedFile, is_link
from kip33.archive.sources import require_outside_brokers
from kip33.errors import PlanError
from kip33.retention.plan import (
    PlannedPartition,
    RetentionPlan,
    with_plan_id,
    write_plan,
)
from kip33.stores.files import opened, size_of
from kip33.stores.locations import Location
from kip33.stores.own_files import flush, make_folder, move, remove_quietly, temporary_of

KEPT_PLAN: Final = "plan.jsonl"
_COPY_CHUNK_BYTES: Final = 1 << 20


def require_trash(plan: RetentionPlan, trash: Location) -> None:
    """Raise PlanError for a trash on another store, or inside a directory of the plan.

    Raises LocationError for a trash inside any broker's log directory.
    """
    basis = plan.basis
    if trash.root != basis.source.root:
        raise PlanError(f"{trash.uri}: expected a trash on the same store as {basis.source.uri}")
    places = {basis.source: "SOURCE", basis.catalog: "the catalog"}
    indexes = [basis.index_dir, *(one.index_directory for one in plan.partitions)]
    places |= {place: "the index directory" for place in indexes if place}
    for place, what in places.items():
        if place.contains(trash):
            raise PlanError(f"{trash.uri}: the trash is inside {what}, {place.uri}: give another")
    require_outside_brokers(trash, "the trash")


def folder_in_trash(plan: RetentionPlan, trash: Location) -> Location:
    """Return the plan's folder in a trash; `trash` may be that folder itself."""
    return trash if trash.name == plan.plan_id else trash.child(plan.plan_id)


def keep_plan(plan: RetentionPlan, folder: Location) -> None:
    """Write the plan to its folder of the trash; a plan of an older version stays where it is.

    Raises PublishError if that fails.
    """
    if with_plan_id(plan.basis, plan.partitions).plan_id == plan.plan_id:
        write_plan(plan, folder.child(KEPT_PLAN))


def has_plan(folder: Location) -> bool:
    """Return whether a plan's folder of a trash has the plan; False if that cannot be seen."""
    try:
        return size_of(folder.child(KEPT_PLAN)) is not None
    except OSError:
        return False


def place_in_trash(
    folder: Location, partition: PlannedPartition, source: Location, file: PlannedFile
) -> Location:
    """Return where a file is in a plan's folder of a trash."""
    kind, below = "indexes" if file.in_index_dir else "segments", partition.below(source)
    return folder.child("/".join(filter(None, (kind, below, file.name))))


def keeps_times(one: Location, other: Location) -> bool:
    """Return whether a file that is moved between these places keeps its modification time."""
    return one.root == other.root and not one.is_object_store


def move_file(file: Location, target: Location, *, size_bytes: int) -> None:
    """Move a file of `size_bytes`; OSError if that fails, FileNotFoundError if it is missing.

    An existing target with the same bytes is treated as the copy of a move that was killed between
    copy and deletion, unless it is a link, or the file itself by another path.
    """
    if _is_taken(target):
        if _is_one_file(file, target):
            raise FileExistsError(errno.EEXIST, f"it is the same file: {target.uri}")
        if is_link(target) or size_of(target) is None or not _same_bytes(file, target):
            raise FileExistsError(errno.EEXIST, f"another file is there: {target.uri}")
    elif _rename(file, target):
        return
    else:
        _copy(file, target, size_bytes=size_bytes)
    file.filesystem().delete_file(file.path)


def _is_taken(target: Location) -> bool:
    """Return whether the name is used: a rename would also replace a link or a pipe."""
    if target.is_local:
        return os.path.lexists(target.path)
    return size_of(target) is not None


def _is_one_file(file: Location, target: Location) -> bool:
    """Return whether both paths lead to one file, by a link on the way."""
    if not (file.is_local and target.is_local and os.path.exists(target.path)):  # noqa: PTH110
        return False
    return os.path.samefile(file.path, target.path)  # noqa: PTH121


def _rename(file: Location, target: Location) -> bool:
    """Rename a file if that is one atomic step; return whether it was renamed."""
    if file.root != target.root or file.is_object_store:
        return False
    try:
        move(file, target)
    except OSError as error:
        if error.errno == errno.EXDEV:
            return False
        raise
    return True


def _copy(file: Location, target: Location, *, size_bytes: int) -> None:
    """Publish a complete copy at `target`, with the file's times and mode on a local disk."""
    temporary = temporary_of(target)
    store = target.filesystem()
    if not target.is_object_store:
        make_folder(target.parent)
    try:
        if file.is_local and target.is_local:
            shutil.copy2(file.path, temporary.path)
        elif file.root == target.root:  # the store itself copies
            store.copy_file(file.path, temporary.path)
        else:
            _stream(file, temporary)
        copied = size_of(temporary)
        if copied != size_bytes:
            raise OSError(f"{target.uri}: {copied} bytes were copied, expected {size_bytes}")
        if target.is_local:
            flush(temporary.path)
        move(temporary, target)  # it flushes the folder before the original is deleted
    except BaseException:
        remove_quietly(temporary)
        raise


def _stream(file: Location, target: Location) -> None:
    buffer = memoryview(bytearray(_COPY_CHUNK_BYTES))
    store = target.filesystem()
    with opened(file) as (read_into, size_bytes), store.open_output_stream(target.path) as stream:
        for position in range(0, size_bytes, _COPY_CHUNK_BYTES):
            stream.write(buffer[: read_into(position, buffer)])


def _same_bytes(one: Location, other: Location) -> bool:
    first, second = (memoryview(bytearray(_COPY_CHUNK_BYTES)) for _ in range(2))
    with opened(one) as (read_one, size_bytes), opened(other) as (read_other, other_bytes):
        return size_bytes == other_bytes and all(
            first[: read_one(position, first)] == second[: read_other(position, second)]
            for position in range(0, size_bytes, _COPY_CHUNK_BYTES)
        )
