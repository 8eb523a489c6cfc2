"""Verify the index files of one segment against its log, in one pass over the log."""

from kip33.archive.segment_paths import beside
from kip33.errors import FileReadError
from kip33.formats.time_index import TIME_ENTRY_BYTES, IndexBytes
from kip33.indexing.file_time_entry import FileTimeEntry, with_file_time
from kip33.indexing.index_checks import Verification
from kip33.indexing.segment import BuiltIndexes, index_file
from kip33.indexing.segment_verdict import OFFSET_INDEX, TIME_INDEX_KIND, SegmentVerdict
from kip33.rules.index_builder import IndexSettings
from kip33.rules.index_verdict import IndexVerdict, Verdict
from kip33.rules.segment_summary import NOT_READ, SegmentStatus
from kip33.stores.files import is_archived, one_line, read_index, size_of
from kip33.stores.locations import Location


def offset_index_of(log: Location, time_index: Location) -> Location:
    """Return the place of a segment's `.index`: beside its `.timeindex`, else beside its log."""
    place = beside(time_index, "index")
    try:
        is_there = size_of(place) is not None
    except FileReadError:  # reported when it is read
        is_there = True
    return place if is_there else beside(log, "index")


def verify_file(  # parameters: the files of one segment, and what its listing tells
    log: Location,
    time_index: Location,
    offset_index: Location | None,
    *,
    base_offset: int,
    topic: str,
    settings: IndexSettings,
    native: bool | None = None,
    file_time: FileTimeEntry | None = None,
    with_producers: bool = False,
) -> tuple[SegmentVerdict, BuiltIndexes]:
    """Return the verdict on a segment's index files, and the index its log gives.

    `file_time`: the entry that the index has if the log has no timestamps (`--untimestamped`).
    `with_producers`: the index also says what its producers change.
    A log or an index that cannot be read has the verdict `unreadable`, in S3 Glacier `archived`;
    nothing is raised for it.
    """
    try:
        times, offsets = _index_bytes(time_index), _index_bytes(offset_index)
        failure, is_in_glacier = None, False
    except FileReadError as error:
        times = offsets = None
        is_in_glacier = is_archived(error)
        failure = f"the index file cannot be read: {one_line(error)}"
    check = Verification(times, offsets, base_offset=base_offset, topic=topic, settings=settings)
    index = index_file(
        log,
        base_offset=base_offset,
        topic=topic,
        settings=settings,
        native=native,
        watcher=check.append,
        with_producers=with_producers,
    )
    index = with_file_time(index, file_time)
    if failure is None and index.status in NOT_READ:
        is_in_glacier = index.status == SegmentStatus.ARCHIVED
        failure = f"the log cannot be read: {index.error}"
    if failure:
        verdict = IndexVerdict.ARCHIVED if is_in_glacier else IndexVerdict.UNREADABLE
        time, offset = Verdict(verdict, None, (failure,)), None
    else:
        time, offset = check.time_verdict(index), check.offset_verdict(index)
    offset_problems = offset.problems if offset else ()
    problems = time.problems + tuple(f".index: {problem}" for problem in offset_problems)
    judged = SegmentVerdict(
        log.uri,
        time_index.uri,
        time.verdict,
        time.dialect,
        None if times is None else len(times) // TIME_ENTRY_BYTES,
        problems,
        offset.verdict if offset else None,
        index.status,
        index.error,
        check.largest_gap(TIME_INDEX_KIND, time),
        check.largest_gap(OFFSET_INDEX, offset),
    )
    return judged, index


def _index_bytes(location: Location | None) -> IndexBytes | None:
    """Return a file's bytes, None if it is missing."""
    if location is None or size_of(location) is None:
        return None
    return read_index(location)
