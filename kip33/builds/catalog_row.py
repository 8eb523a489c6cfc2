"""The catalog row of a segment, from what was read of it."""

from typing import Any, Final

import kip33
from kip33.archive.directory import Segment
from kip33.builds.build_spec import BuildSpec
from kip33.builds.index_files import Published
from kip33.catalog.schema import IndexFileState
from kip33.formats.time_index import TIME_ENTRY_BYTES
from kip33.indexing.segment import BuiltIndexes, Tail
from kip33.rules.draft_entries import entry_bytes_of
from kip33.rules.segment_summary import (
    NOT_READ,
    SUMMARY_RECORD,
    TIMESTAMP_TYPES,
    SegmentStatus,
    TimestampSource,
    codec_names,
    largest_timestamp,
    names_of,
    smallest_timestamp,
)
from kip33.stores.locations import Location

_NO_FILE: Final = (None, None, None, None)
_INDEX_COLUMNS: Final = tuple(  # of the two index files, in the order of a `PublishedFile`
    tuple(f"{kind}_index_{what}" for what in ("bytes", "modified_ms", "settings", "crc32c"))
    for kind in ("time", "offset")
)


def tail_row(build: BuildSpec, segment: Segment, log: Location, tail: Tail) -> dict[str, Any]:
    """Return the row of a log that was not read: unknown columns are null."""
    names_next = build.settings.dialect == "kip33"  # such an entry names the offset after a batch
    files = tail.files
    offset_index: tuple[int | None, int | None] = (None, None)
    if build.offset_index:
        offset_index = files.offset_index_bytes, files.offset_index_modified_ms
    return _listed(build, segment, log) | {
        "size_bytes": tail.log_bytes,
        "index_uri": files.time_index.uri,
        "first_batch_timestamp": tail.first_batch.max_timestamp,
        "max_timestamp": tail.last_entry.timestamp,
        "offset_of_max_timestamp": None if names_next else tail.last_entry.offset,
        "largest_timestamp": tail.last_entry.timestamp,
        "largest_timestamp_source": TimestampSource.TIME_INDEX,
        "time_index_entries": (files.time_index_bytes or 0) // TIME_ENTRY_BYTES,
        "status": SegmentStatus.UNVERIFIED,
        "index_file": IndexFileState.KEPT,
        "time_index_bytes": files.time_index_bytes,
        "time_index_modified_ms": files.time_index_modified_ms,
        "offset_index_bytes": offset_index[0],
        "offset_index_modified_ms": offset_index[1],
    }


def _listed(build: BuildSpec, segment: Segment, log: Location) -> dict[str, Any]:
    """Return the columns that come from the listing and the settings."""
    return {
        "log_dir": segment.log_dir,
        "topic": segment.topic,
        "partition": segment.partition,
        "base_offset": segment.base_offset,
        "log_uri": log.uri,
        "size_bytes": segment.size_bytes,
        "last_modified_ms": segment.last_modified_ms,
        "active_segment": segment.active_segment,
        "topic_id": segment.topic_id,
        "partition_metadata_modified_ms": segment.partition_metadata_modified_ms,
        "build_settings": build.build_settings,
        "kip33_version": kip33.__version__,
    }


def row_of(
    build: BuildSpec, segment: Segment, log: Location, index: BuiltIndexes, published: Published
) -> dict[str, Any]:
    """Return the row of a log that was read, or could not be, and of its index files."""
    row = _listed(build, segment, log)
    row["status"] = index.status
    row["error"] = "; ".join(filter(None, (index.error, *published.notes))) or None
    row["index_file"] = published.state
    if row["index_file"]:
        row["index_uri"] = build.index_location(segment).uri
        for columns, file in zip(_INDEX_COLUMNS, published.files, strict=True):
            row.update(zip(columns, file or _NO_FILE, strict=True))
    # What the other figures of an invalid log count depends on where the scan stopped.
    if index.status == SegmentStatus.INVALID:
        return row | {"size_bytes": index.size_bytes, "valid_bytes": index.valid_bytes}
    if index.status in NOT_READ:
        return row
    # One call for all numbers: each field of a record is an object of numpy.
    summary = dict(zip(SUMMARY_RECORD.names or (), index.summary.item(), strict=True))
    max_timestamp = summary["max_timestamp"]
    row["size_bytes"] = index.size_bytes
    row["valid_bytes"] = index.valid_bytes
    row["batch_count"] = summary["batch_count"]
    row["out_of_order_batches"] = summary["out_of_order_batches"]
    row["record_count"] = None if summary["wrappers"] else summary["record_count"]
    row["max_timestamp"] = max_timestamp
    row["timestamp_types"] = names_of(summary["timestamp_types"], TIMESTAMP_TYPES)
    row["magics"] = list(index.magics)
    row["codecs"] = codec_names(summary["codecs"])
    if summary["batch_count"]:
        row["last_offset"] = summary["last_offset"]
        row["first_batch_timestamp"] = summary["first_batch_timestamp"]
        row["smallest_timestamp"] = smallest_timestamp(summary)
    if max_timestamp >= 0:
        row["offset_of_max_timestamp"] = summary["offset_of_max_timestamp"]
    if index.time_index_data is not None:
        row["largest_timestamp"], row["largest_timestamp_source"] = largest_timestamp(
            max_timestamp, segment.last_modified_ms or 0
        )
        entry_bytes = entry_bytes_of(build.settings.dialect)
        row["time_index_entries"] = len(index.time_index_data) // entry_bytes
    return row
