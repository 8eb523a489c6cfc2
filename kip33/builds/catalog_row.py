"""The catalog row of a segment, from what was read of it."""

from typing import Any, Final

import kip33
from kip33.archive.directory import Segment
from kip33.builds.build_spec import BuildSpec
from kip33.builds.index_files import Published
from kip33.catalog.index_file_state import IndexFileState
from kip33.formats.time_index import TIME_ENTRY_BYTES
from kip33.indexing.segment import BuiltIndexes
from kip33.indexing.tail import Tail
from kip33.rules.draft_entries import entry_bytes_of
from kip33.rules.segment_status import NOT_READ, SegmentStatus
from kip33.rules.segment_summary import (
    TIMESTAMP_TYPES,
    TimestampSource,
    codec_names,
    largest_timestamp,
    names_of,
    smallest_timestamp,
)
from kip33.stores.locations import Location

_NO_FILE: Final = (None, None, None, None)


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
        **_index_columns("time", files.time_index_bytes, files.time_index_modified_ms, None),
        **_index_columns("offset", *offset_index, None),
    }


def _index_columns(
    kind: str,
    size_bytes: int | None,
    modified_ms: int | None,
    settings: str | None,
    crc32c: int | None = None,
) -> dict[str, Any]:
    """Return the columns that describe an index file; `kind` is `time` or `offset`."""
    return {
        f"{kind}_index_bytes": size_bytes,
        f"{kind}_index_modified_ms": modified_ms,
        f"{kind}_index_settings": settings,
        f"{kind}_index_crc32c": crc32c,
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
    row = _listed(build, segment, log) | {
        "status": index.status,
        "error": "; ".join(filter(None, (index.error, *published.notes))) or None,
        "index_file": published.state,
    }
    if published.state:
        row["index_uri"] = build.index_location(segment).uri
        for kind, file in zip(("time", "offset"), published.files, strict=True):
            row |= _index_columns(kind, *(file or _NO_FILE))
    # What the other figures of an invalid log count depends on where the scan stopped.
    if index.status == SegmentStatus.INVALID:
        return row | {"size_bytes": index.size_bytes, "valid_bytes": index.valid_bytes}
    if index.status in NOT_READ:
        return row
    summary = index.summary
    max_timestamp = int(summary["max_timestamp"])
    row |= {
        "size_bytes": index.size_bytes,
        "valid_bytes": index.valid_bytes,
        "batch_count": int(summary["batch_count"]),
        "out_of_order_batches": int(summary["out_of_order_batches"]),
        "record_count": None if summary["wrappers"] else int(summary["record_count"]),
        "max_timestamp": max_timestamp,
        "timestamp_types": names_of(int(summary["timestamp_types"]), TIMESTAMP_TYPES),
        "magics": list(index.magics),
        "codecs": codec_names(int(summary["codecs"])),
    }
    if summary["batch_count"]:
        row["last_offset"] = int(summary["last_offset"])
        row["first_batch_timestamp"] = int(summary["first_batch_timestamp"])
        row["smallest_timestamp"] = smallest_timestamp(summary)
    if max_timestamp >= 0:
        row["offset_of_max_timestamp"] = int(summary["offset_of_max_timestamp"])
    if index.time_index_data is not None:
        row["largest_timestamp"], row["largest_timestamp_source"] = largest_timestamp(
            max_timestamp, segment.last_modified_ms or 0
        )
        entry_bytes = entry_bytes_of(build.settings.dialect)
        row["time_index_entries"] = len(index.time_index_data) // entry_bytes
    return row
