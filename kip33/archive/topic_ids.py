"""The topic ids in the `partition.metadata` files beside logs: one file for each directory."""

from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.uri_columns import Column, directories_of
from kip33.errors import FileReadError
from kip33.formats.partition_metadata import (
    MAX_PARTITION_METADATA_BYTES,
    PARTITION_METADATA,
    PartitionMetadata,
)
from kip33.stores.files import one_line, read_whole
from kip33.stores.locations import Location

METADATA_FILES_AT_ONCE: Final = 16  # a local disk is read by one thread


class TopicIds(NamedTuple):
    """A LISTING with topic ids, and at most one line about files that cannot be read."""

    files: pa.Table
    warnings: tuple[str, ...]


def with_topic_ids(source: Location, files: pa.Table, known: Column | None = None) -> TopicIds:
    """Return a LISTING below `source` with the topic ids from the files beside the logs.

    `known` has for each row an id that need not be read again, or null. A directory is read only
    if a row of it has none. A file that cannot be read gives no id.
    """
    ids = files["topic_id"] if known is None else pc.coalesce(files["topic_id"], known)
    is_there = pc.is_valid(files["partition_metadata_modified_ms"])
    unknown = pc.and_(is_there, pc.is_null(ids)).combine_chunks()
    directories = directories_of(files["path"].filter(unknown))
    warnings: list[str] = []
    if len(directories):
        each = pc.unique(directories)
        read, failed = _read_all(source, each.to_pylist())
        texts = pa.array(read, pa.string())
        found = texts.take(pc.index_in(directories, value_set=each).combine_chunks())
        ids = pc.replace_with_mask(pa.chunked_array([ids.combine_chunks()]), unknown, found)
        if failed:
            warnings.append(
                f"{len(failed)} {PARTITION_METADATA} files cannot be used, for example "
                f"{failed[0]}; the topic ids of the logs beside them are not known"
            )
    number = files.schema.get_field_index("topic_id")
    return TopicIds(files.set_column(number, files.schema.field(number), ids), tuple(warnings))


def _read_all(source: Location, paths: list[str]) -> tuple[list[str | None], list[str]]:
    """Return the id in each directory, None where it is not known, and a line for each of those."""
    failed: list[str] = []

    def read(path: str) -> str | None:
        place = (source.child(path) if path else source).child(PARTITION_METADATA)
        try:
            data = read_whole(place, most_bytes=MAX_PARTITION_METADATA_BYTES)
            return PartitionMetadata.from_bytes(data).topic_id
        except (FileReadError, ValueError) as error:
            failed.append(f"{place.uri}: {one_line(error)}")
            return None

    if source.is_local:
        return [read(path) for path in paths], sorted(failed)
    with ThreadPoolExecutor(METADATA_FILES_AT_ONCE) as pool:
        found = list(pool.map(read, paths))
    return found, sorted(failed)
