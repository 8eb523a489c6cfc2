"""What is in a broker's log directory that a starting broker stumbles over.

Names and small files are read, no log. `rules.broker_directory` says what a broker does with it.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from kip33.archive.log_start_offsets import MOST_CHECKPOINT_BYTES
from kip33.archive.sources import OF_A_BROKER, RESTORE_STAGING
from kip33.errors import proves_nothing
from kip33.formats.names import METADATA_TOPIC, PartitionDir, parse_partition_dir
from kip33.formats.partition_metadata import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    MAX_PARTITION_METADATA_BYTES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    PartitionMetadata,
    parse_epoch_checkpoint,
    parse_offset_checkpoint,
)
from kip33.rules.broker_directory import INDEX_CACHE, Find, Found
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location

_CHECKPOINTS: Final = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
)
_OF_KRAFT: Final = b"version=1"
_MOST_NAMES: Final = 3  # in a message


def names_text(names: Sequence[str]) -> str:
    """Return the first names, and how many others there are."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more:,} others" if more > 0 else "")


def found_on_start(log_dir: Location, replaced: Collection[str] = ()) -> Iterator[Found]:
    """Yield what keeps a broker from starting with a local log directory, or loses records.

    `replaced` are the partitions that a restore puts there: what they have now does not matter.
    Raises OSError if the log directory cannot be listed.
    """
    with os.scandir(log_dir.path) as entries:
        names = {entry.name for entry in entries if entry.is_dir()}
    partitions: defaultdict[PartitionDir, list[str]] = defaultdict(list)
    for name in sorted({*names, *replaced} - {RESTORE_STAGING, INDEX_CACHE}):
        parsed = parse_partition_dir(name)
        if parsed is None:
            yield Found(Find.NO_PARTITION, log_dir.child(name).uri)
        elif parsed.topic != METADATA_TOPIC and not parsed.kind:
            partitions[parsed].append(name)
    for same in partitions.values():
        if len(same) > 1:
            detail = f"{' and '.join(same)} found"
            yield Found(Find.SAME_PARTITION, log_dir.uri, detail, same[0])
    try:
        properties = read_whole(log_dir.child(OF_A_BROKER), most_bytes=MOST_CHECKPOINT_BYTES)
    except OSError as error:  # its absence is not reported here: an archive has none
        if proves_nothing(error):
            raise
        properties = b""
    if properties and not any(line.startswith(b"version=") for line in properties.split()):
        detail = (
            f"{properties[:40]!r} found, expected version=1 and the ids of a node and a cluster"
        )
        yield Found(Find.DAMAGED_FORMAT, log_dir.child(OF_A_BROKER).uri, detail)
    for name in _CHECKPOINTS:
        yield from _damage(log_dir.child(name), Find.DAMAGED_CHECKPOINT, _offsets)
    directories = [name for same in partitions.values() for name in same if name not in replaced]
    for name in directories:
        yield from _of_partition(log_dir.child(name))
    if _OF_KRAFT in properties.split():
        yield from _without_ids(log_dir, directories)


def _of_partition(directory: Location) -> Iterator[Found]:
    epochs = directory.child(LEADER_EPOCH_CHECKPOINT)
    yield from _damage(epochs, Find.DAMAGED_EPOCHS, _epochs, directory.name)
    topic_id = directory.child(PARTITION_METADATA)
    yield from _damage(
        topic_id, Find.DAMAGED_TOPIC_ID, PartitionMetadata.from_bytes, directory.name
    )


def _offsets(data: bytes) -> object:
    return parse_offset_checkpoint(data.decode())


def _epochs(data: bytes) -> object:
    return parse_epoch_checkpoint(data.decode())


def _damage(
    place: Location, find: Find, parse: Callable[[bytes], object], partition: str | None = None
) -> Iterator[Found]:
    most_bytes = MOST_CHECKPOINT_BYTES
    if find is Find.DAMAGED_TOPIC_ID:
        most_bytes = MAX_PARTITION_METADATA_BYTES
    try:
        parse(read_whole(place, most_bytes=most_bytes))
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        if proves_nothing(error):
            raise
        yield Found(find, place.uri, one_line(error), partition)


def _without_ids(log_dir: Location, directories: list[str]) -> Iterator[Found]:
    """Yield one line for the partitions without a topic id."""
    missing = [
        name
        for name in directories
        if not os.path.lexists(log_dir.child(f"{name}/{PARTITION_METADATA}").path)
    ]
    if missing:
        uri = log_dir.child(missing[0]).uri if len(missing) == 1 else log_dir.uri
        detail = f"no {PARTITION_METADATA} in {names_text(missing)}"
        yield Found(Find.NO_TOPIC_ID, uri, detail, missing[0])
