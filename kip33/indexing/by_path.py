"""One file or tree by its path: what a notebook or script calls, without Spark."""

from collections.abc import Iterator

from kip33.archive.directory import Segment
from kip33.archive.layouts import layout_of
from kip33.archive.segment_paths import base_offset_in, beside
from kip33.archive.sources import require_segments
from kip33.errors import LocationError, UnsupportedFormatError
from kip33.formats.batch import BatchColumns
from kip33.formats.names import parse_partition_dir, parse_segment_file
from kip33.formats.scan import BatchScan
from kip33.formats.time_index import TimeIndex
from kip33.indexing.segment import BuiltIndexes, index_file
from kip33.indexing.transaction_verification import (
    VerifiedSegment,
    seen_transactions,
    with_transaction_verdicts,
)
from kip33.indexing.verification import SegmentVerdict, offset_index_of, verify_file
from kip33.rules.index_builder import IndexSettings
from kip33.rules.index_entries import DEFAULT_INDEX_INTERVAL_BYTES, DEFAULT_SEGMENT_INDEX_BYTES
from kip33.stores.files import MOST_INDEX_BYTES, entries_of, one_line, opened, read_whole, size_of
from kip33.stores.locations import Location


def list_segments(source: str, *, layout: str = "kafka") -> list[Segment]:
    """Return the segments below a directory, by path; LocationError where there are none.

    `layout` is a name of `kip33.archive.layouts` or a pattern; ValueError where it is neither.
    """
    return list(require_segments(Location.of(source), layout=layout_of(layout)).segments())


def scan_batches(log_path: str, *, check_crc: bool = True) -> Iterator[BatchColumns]:
    """Yield the batches of one segment file as arrays of `kip33.formats.batch.BATCH`.

    Ends where recovery would end. Raises LocationError where the file cannot be read.
    """
    log = Location.of(log_path)
    try:
        with opened(log) as (read_into, size_bytes):
            for batches in BatchScan(read_into, size_bytes, check_crc=check_crc):
                yield batches.copy()
    except OSError as error:
        raise LocationError(f"{log.uri}: cannot be read: {one_line(error)}") from error


def read_time_index(index_path: str, base_offset: int | None = None) -> TimeIndex:
    """Return the `.timeindex` at a path, every byte believed; `without_tail` drops padding.

    Raises LocationError where it cannot be read, CorruptIndexError for half an entry.
    """
    location = Location.of(index_path)
    base_offset, _ = base_offset_and_topic(location, base_offset)
    try:
        data = read_whole(location, most_bytes=MOST_INDEX_BYTES)
    except OSError as error:
        raise LocationError(f"{location.uri}: cannot be read: {one_line(error)}") from error
    return TimeIndex.from_bytes(data, base_offset=base_offset)


def base_offset_and_topic(file: Location, base_offset: int | None) -> tuple[int, str]:
    """Return what the names say: base offset of the file, topic of its directory or empty.

    Raises UnsupportedFormatError where the name has no offset and none was given.
    """
    directory = parse_partition_dir(file.parent.name)
    if base_offset is None:
        name = parse_segment_file(file.name)
        base_offset = name.base_offset if name else base_offset_in(file.name)
        if base_offset is None:
            raise UnsupportedFormatError(
                f"{file.uri}: not named as a segment's file, '<base offset>.log' expected; "
                "give the base offset"
            )
    return base_offset, directory.topic if directory else ""


def topic_of(path: str) -> str | None:
    """Return the topic that a segment file's directory is named by, None where it is by none."""
    directory = parse_partition_dir(Location.of(path).parent.name)
    return directory.topic if directory else None


def build_time_index(
    log_path: str,
    base_offset: int | None = None,
    *,
    dialect: str = "recover",
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    segment_index_bytes: int = DEFAULT_SEGMENT_INDEX_BYTES,
    check_crc: bool = True,
) -> BuiltIndexes:
    """Return the indexes of one segment file, a path or URI; nothing is written.

    The base offset comes from the file's name unless it is given. A damaged, invalid or unreadable
    file is a `status`. Raises ValueError for a setting that Kafka refuses.
    """
    settings = IndexSettings(dialect, index_interval_bytes, segment_index_bytes, check_crc)
    settings.require_valid()
    log = Location.of(log_path)
    base_offset, topic = base_offset_and_topic(log, base_offset)
    return index_file(log, base_offset=base_offset, topic=topic, settings=settings)


def verify_segment(
    log_path: str,
    index_path: str | None = None,
    *,
    base_offset: int | None = None,
    dialect: str = "recover",
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
    segment_index_bytes: int = DEFAULT_SEGMENT_INDEX_BYTES,
    check_crc: bool = True,
) -> SegmentVerdict:
    """Return the verdict on the index files of one segment file, a path or URI.

    `index_path` is the `.timeindex`, else the one beside the log. The `.index` beside it, else
    beside the log, is checked as well; it is `missing` if other segments of that directory have
    one. So is the `.txnindex` beside that; which transactions of earlier segments are open is
    known only from a `.snapshot` beside the log. `dialect` says how to read the `.timeindex`:
    `kip33` for a file built in it. Raises LocationError where there is no such log.
    """
    settings = IndexSettings(dialect, index_interval_bytes, segment_index_bytes, check_crc)
    settings.require_valid()
    log = Location.of(log_path)
    if size_of(log) is None:
        raise LocationError(f"{log.uri}: no such segment file")
    base_offset, topic = base_offset_and_topic(log, base_offset)
    time_index = Location.of(index_path) if index_path else beside(log, "timeindex")
    offset_index = offset_index_of(log, time_index)
    verdict, index = verify_file(
        log,
        time_index,
        offset_index,
        base_offset=base_offset,
        topic=topic,
        settings=settings,
    )
    seen = seen_transactions((), log, offset_index, index, base_offset=base_offset)
    (verdict,) = with_transaction_verdicts([VerifiedSegment(verdict, seen)])
    if verdict.offset_index_verdict is None and _has_offset_indexes(time_index, log):
        return verdict.with_missing_offset_index()
    return verdict


def _has_offset_indexes(*files: Location) -> bool:
    """Return whether any of the files' directories has a `.index`."""
    directories = {file.parent for file in files if not file.inside}
    try:
        return any(
            entry.base_name.endswith(".index") and parse_segment_file(entry.base_name)
            for directory in directories
            for entry in entries_of(directory)
        )
    except OSError:  # then nothing says that one is expected
        return False
