"""Index and verify one segment, or list a tree, without Spark: functions for notebooks and scripts.

A segment is a path, a URI or a `Segment` of `list_segments`. A missing file raises
LocationError; damage is a status or a verdict. `storage_options` and `filesystem` are those of
`kip33.stores.filesystem_option`.
"""

import os
from collections.abc import Iterator

from kip33.archive.directory import Segment
from kip33.archive.layouts import layout_of
from kip33.archive.segment_paths import base_offset_in, beside
from kip33.archive.sources import SegmentLike, log_of, require_log, require_segments
from kip33.errors import FileReadError, LocationError, UnsupportedFormatError
from kip33.formats.batch import MAX_INT32, BatchColumns
from kip33.formats.names import parse_partition_dir, parse_segment_file
from kip33.formats.scan import BatchScan
from kip33.formats.time_index import TIME_ENTRY_BYTES, TimeIndex
from kip33.indexing.folded_verdicts import seen_segment, with_folded_verdicts
from kip33.indexing.segment import BuiltIndexes, index_file, unreadable
from kip33.indexing.verification import SegmentVerdict, offset_index_of, verify_file
from kip33.indexing.verify_tree import unreadable_verdict
from kip33.options import number_of
from kip33.rules.index_builder import IndexSettings
from kip33.rules.index_entries import (
    DEFAULT_INDEX_INTERVAL_BYTES,
    DEFAULT_SEGMENT_INDEX_BYTES,
    DialectName,
)
from kip33.stores.files import MOST_INDEX_BYTES, entries_of, one_line, opened, read_whole
from kip33.stores.filesystem_option import Filesystem, StorageOptions, place_on, places_on
from kip33.stores.locations import Location


def list_segments(
    source: str | os.PathLike[str],
    *,
    layout: str = "kafka",
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> list[Segment]:
    """Return the segments below a directory, a path or URI, sorted by path.

    >>> first, *others = list_segments("archive/broker-1/orders-0")
    >>> first.base_offset, first.size_bytes, len(others)
    (0, 316099, 2)

    Each has an absolute `log_uri`. A directory that cannot be listed is a segment with an `error`.
    `layout` is a name of `kip33.archive.layouts` or a pattern; any other text raises ValueError.
    Raises LocationError if there are no segments.
    """
    place = place_on(source, storage_options, filesystem)
    listing = require_segments(place, layout=layout_of(layout))
    return [segment._replace(source=place) for segment in listing.segments()]


def scan_batches(
    segment: SegmentLike,
    *,
    check_crc: bool = True,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> Iterator[BatchColumns]:
    """Yield the batches of one segment as arrays of `kip33.formats.batch.BATCH`.

    >>> log = "archive/broker-1/orders-0/00000000000000000000.log"
    >>> sum(batches["records_count"].sum() for batches in scan_batches(log)).item()
    4000

    The scan ends at the byte where recovery would cut the log. Raises LocationError if the file
    cannot be read.
    """
    log = log_of(segment, storage_options, filesystem)
    try:
        with opened(log) as (read_into, size_bytes):
            for batches in BatchScan(read_into, size_bytes, check_crc=check_crc):
                yield batches.copy()
    except FileReadError as error:
        raise LocationError(f"{log.uri}: cannot be read: {one_line(error)}") from error


def read_time_index(
    index: SegmentLike,
    base_offset: int | None = None,
    *,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> TimeIndex:
    """Return the `.timeindex` at a path or URI; for a `Segment`, the one beside its log.

    >>> index = read_time_index("indexes/broker-1/orders-0/00000000000000000000.timeindex")
    >>> len(index), index.lookup(1_700_000_300_000)
    (67, TimestampOffset(timestamp=1700000298086, offset=2949))

    - `index`: the path or URI of the file, or a `Segment`

    The entries are not checked; `without_tail` drops padding. Raises LocationError if the file
    cannot be read, CorruptIndexError if it ends inside an entry, UnsupportedFormatError if its name
    has no base offset and none was given.
    """
    if isinstance(index, Segment):
        location = beside(log_of(index, storage_options, filesystem), "timeindex")
    else:
        location = place_on(index, storage_options, filesystem)
    base_offset, _ = _base_offset_and_topic(location, base_offset, index)
    try:
        data = read_whole(location, most_bytes=MOST_INDEX_BYTES)
    except FileReadError as error:
        raise LocationError(f"{location.uri}: cannot be read: {one_line(error)}") from error
    return TimeIndex.from_bytes(data, base_offset=base_offset)


def topic_of(path: str) -> str | None:
    """Return the topic in the name of a segment's directory, None if it has no topic."""
    directory = parse_partition_dir(Location.of(path).parent.name)
    return directory.topic if directory else None


def build_time_index(
    segment: SegmentLike,
    base_offset: int | None = None,
    *,
    dialect: DialectName = "recover",
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    segment_index_bytes: int = DEFAULT_SEGMENT_INDEX_BYTES,
    check_crc: bool = True,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> BuiltIndexes:
    """Return the indexes of one segment: a path, a URI or a `Segment`. No file is written.

    >>> built = build_time_index("archive/broker-1/orders-0/00000000000000000000.log")
    >>> built.status.value, len(built.time_index), len(built.time_index_data)
    ('ok', 67, 804)

    The base offset comes from the segment or the file's name unless it is given. A damaged, invalid
    or unreadable file is a `status`. Raises LocationError if the file is missing, ValueError for a
    setting that Kafka refuses, UnsupportedFormatError for a name without a base offset.
    """
    settings = _settings(dialect, index_interval_bytes, segment_index_bytes, check_crc)
    log = log_of(segment, storage_options, filesystem)
    if isinstance(segment, Segment) and segment.error:
        return unreadable(segment.error)
    base_offset, topic = _base_offset_and_topic(log, base_offset, segment)
    require_log(log)
    return index_file(log, base_offset=base_offset, topic=topic, settings=settings)


def verify_segment(  # parameters: a notebook user sees each option as a keyword
    segment: SegmentLike,
    index_path: str | os.PathLike[str] | None = None,
    *,
    base_offset: int | None = None,
    dialect: DialectName = "recover",
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    segment_index_bytes: int = DEFAULT_SEGMENT_INDEX_BYTES,
    check_crc: bool = True,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> SegmentVerdict:
    """Return the verdict on the index files of one segment: a path, a URI or a `Segment`.

    >>> seen = verify_segment("archive/broker-1/orders-0/00000000000000000000.log")
    >>> seen.verdict.value, seen.problems
    ('missing', ('the .timeindex is missing',))

    - `index_path`: the `.timeindex`; None: the one beside the log

    The `.index` and the
    `.txnindex` beside it, or else beside the log, are also checked. A `.index` is `missing` if
    other segments of its directory have one. The open transactions of earlier segments are known
    only if a `.snapshot` is beside the log. `dialect` says how to read the `.timeindex`: `kip33`
    for a file that was built with that dialect. Raises LocationError if the log is missing.
    """
    settings = _settings(dialect, index_interval_bytes, segment_index_bytes, check_crc)
    log = log_of(segment, storage_options, filesystem)
    time_index = beside(log, "timeindex")
    if index_path:
        _, time_index = places_on([log.uri, index_path], storage_options, filesystem)
    if isinstance(segment, Segment) and segment.error:
        return unreadable_verdict(segment, log, time_index)
    require_log(log)
    base_offset, topic = _base_offset_and_topic(log, base_offset, segment)
    offset_index = offset_index_of(log, time_index)
    verdict, index = verify_file(
        log,
        time_index,
        offset_index,
        base_offset=base_offset,
        topic=topic,
        settings=settings,
    )
    seen = seen_segment(
        verdict,
        index,
        partition=(),
        base_offset=base_offset,
        log=log,
        offset_index=offset_index,
    )
    (verdict,) = with_folded_verdicts([seen])
    if verdict.offset_index_verdict is None and _has_offset_indexes(time_index, log):
        return verdict.with_missing_offset_index()
    return verdict


def _settings(
    dialect: DialectName, index_interval_bytes: int, segment_index_bytes: int, check_crc: bool
) -> IndexSettings:
    settings = IndexSettings(
        dialect,
        number_of("index_interval_bytes", index_interval_bytes, most=MAX_INT32),
        number_of("segment_index_bytes", segment_index_bytes, TIME_ENTRY_BYTES, MAX_INT32),
        check_crc,
    )
    settings.require_valid()
    return settings


def _base_offset_and_topic(
    file: Location, base_offset: int | None, segment: SegmentLike = ""
) -> tuple[int, str]:
    """Return base offset and topic of a `Segment`, else those in the names; the topic may be empty.

    Raises UnsupportedFormatError if the file's name has no offset and none was given.
    """
    base_offset = None if base_offset is None else number_of("base_offset", base_offset)
    if isinstance(segment, Segment) and segment.base_offset is not None:
        given = segment.base_offset if base_offset is None else base_offset
        return given, segment.topic or ""
    directory = parse_partition_dir(file.parent.name)
    if base_offset is None:
        name = parse_segment_file(file.name)
        base_offset = name.base_offset if name else base_offset_in(file.name)
        if base_offset is None:
            raise UnsupportedFormatError(
                f"{file.uri}: the name is not that of a segment's file, expected '<base "
                "offset>.log'; give the base offset"
            )
    return base_offset, directory.topic if directory else ""


def _has_offset_indexes(*files: Location) -> bool:
    """Return whether any of the files' directories has a `.index`."""
    directories = {file.parent for file in files if not file.inside}
    try:
        return any(
            entry.base_name.endswith(".index") and parse_segment_file(entry.base_name)
            for directory in directories
            for entry in entries_of(directory)
        )
    except FileReadError:  # then no `.index` is expected
        return False
