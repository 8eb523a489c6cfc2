"""Copy one log while it is scanned: each byte is read once.

The scan gives the index files, the leader epochs and what the producers did. CRCs are checked on
the bytes that are written. A log with a damaged end keeps its valid prefix, as in a broker that
recovers it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kip33.errors import CorruptSegmentError, FileReadError
from kip33.formats.byte_sources import ReadInto
from kip33.indexing.segment import BuiltIndexes, index_segment, unreadable
from kip33.indexing.segment_producers import read_changes
from kip33.restore.batch_facts import BatchFacts
from kip33.restore.log_copy import CopyingReader, local_file
from kip33.restore.restore_request import SourceSegment
from kip33.restore.restore_source import ONLY_THE_LAST
from kip33.restore.segment_facts import CHANGED, SegmentFacts
from kip33.restore.staged_files import new_file, target_errors, write_file
from kip33.rules.index_builder import IndexSettings
from kip33.rules.producer_state import ProducerChange
from kip33.rules.segment_summary import SegmentStatus
from kip33.rules.transactions import NO_TRANSACTIONS
from kip33.stores.files import one_line, opened, scanned, status_of
from kip33.stores.locations import Location
from kip33.stores.own_files import remove


class SegmentWishes(NamedTuple):
    """How the files of a segment are made."""

    settings: IndexSettings
    is_linked: bool = False  # the log is a hard link if nothing in it changes
    leader_epoch: int | None = None  # larger ones in batches become this one


def restore_segment(
    segment: SourceSegment, directory: Location, wishes: SegmentWishes, *, native: bool = True
) -> SegmentFacts:
    """Stage a segment's log, `.index` and `.timeindex` in `directory`; return what its scan found.

    `native` chooses compiled code, which takes a moment to load.
    Faults of the source are the result's `problem`, and then nothing is left in `directory`. Raises
    PublishError if a file of `directory` cannot be written.
    """
    target = directory.child(segment.file_name("log"))
    _remove(segment, directory)
    is_linked = False
    try:
        index, batches, is_linked = _copied(segment, target, wishes, native=native)
    except _SourceError as error:
        index, batches = unreadable(str(error), segment.size_bytes), BatchFacts(segment, None)
    problem, note = _problem(segment, index)
    if problem is None and batches.cut_at is not None and batches.cut_at < index.valid_bytes:
        index, batches = _cut(segment, target, wishes, batches.cut_at, native=native)
    if problem is None and batches.changes_epochs:
        batches.write_epochs(target, index.valid_bytes)
    producers: tuple[ProducerChange, ...] = ()
    if problem is None:
        try:
            with opened(target) as (read_into, _):
                producers = read_changes(batches.producers, read_into)
        except CorruptSegmentError as error:
            problem = f"{segment.log.uri}: {error}"
    if problem is not None:
        _remove(segment, directory)
    times, offsets = index.time_index_data or b"", index.offset_index_data or b""
    if problem is None:
        write_file(directory.child(segment.file_name("index")), offsets)
        write_file(directory.child(segment.file_name("timeindex")), times)
    has_batches = bool(index.summary["batch_count"])
    return SegmentFacts(
        segment.base_offset,
        index.status,
        problem,
        index.valid_bytes,
        (len(offsets), len(times)),
        int(index.summary["last_offset"]) if has_batches else None,
        None if index.summary["wrappers"] else int(index.summary["record_count"]),
        batches.epochs,
        batches.largest_epoch,
        index.transactions or NO_TRANSACTIONS,
        producers,
        note,
        is_linked,
    )


class _SourceError(Exception):
    """The log cannot be read; the text says why."""


def _copied(
    segment: SourceSegment, target: Location, wishes: SegmentWishes, *, native: bool
) -> tuple[BuiltIndexes, BatchFacts, bool]:
    """Copy or link a log while it is scanned; return its indexes and whether it is a link."""
    with _source_errors(), scanned(segment.log) as (read_into, size_bytes, _):
        if size_bytes != segment.size_bytes:
            raise _SourceError(CHANGED)
        if wishes.is_linked:
            index, facts = _indexed(segment, read_into, size_bytes, wishes, native=native)
            _require_unchanged(segment)
            if index.status == SegmentStatus.OK and not facts.changes_epochs:
                with target_errors(target):
                    os.link(os.path.realpath(segment.log.path), target.path)
                return index, facts, True
        with new_file(target) as descriptor, local_file(segment.log) as source:
            copying = CopyingReader(read_into, descriptor, target, source)
            index, facts = _indexed(segment, copying.read_into, size_bytes, wishes, native=native)
            if _is_kept(segment, index):
                copying.copy_up_to(index.valid_bytes)
            if copying.written > index.valid_bytes:
                os.truncate(descriptor, index.valid_bytes)
        _require_unchanged(segment)
    return index, facts, False


def _indexed(
    segment: SourceSegment,
    read_into: ReadInto,
    size_bytes: int,
    wishes: SegmentWishes,
    *,
    native: bool,
) -> tuple[BuiltIndexes, BatchFacts]:
    facts = BatchFacts(segment, wishes.leader_epoch)
    index = index_segment(
        read_into,
        size_bytes,
        base_offset=segment.base_offset,
        topic=segment.topic,
        settings=wishes.settings,
        native=native,
        on_batches=facts.append,
    )
    return index, facts


def _cut(
    segment: SourceSegment,
    target: Location,
    wishes: SegmentWishes,
    size_bytes: int,
    *,
    native: bool,
) -> tuple[BuiltIndexes, BatchFacts]:
    """Cut a staged log; return the indexes of what is left."""
    with target_errors(target):
        os.truncate(target.path, size_bytes)
    with opened(target) as (read_into, _):
        return _indexed(segment, read_into, size_bytes, wishes, native=native)


def _is_kept(segment: SourceSegment, index: BuiltIndexes) -> bool:
    is_cut = index.status == SegmentStatus.TRUNCATED and segment.is_last
    return is_cut or index.status in (SegmentStatus.OK, SegmentStatus.EMPTY)


def _problem(segment: SourceSegment, index: BuiltIndexes) -> tuple[str | None, str | None]:
    """Return why the segment cannot be restored, and a note if its end is cut."""
    cut = index.size_bytes - index.valid_bytes
    if _is_kept(segment, index):
        if index.status != SegmentStatus.TRUNCATED:
            return None, None
        return None, (
            f"{segment.log.uri}: {index.error}; the last {cut} bytes are cut, as a broker cuts "
            "them when it recovers the log"
        )
    what = f"{segment.log.uri}: {index.error}"
    if index.status == SegmentStatus.TRUNCATED:
        return f"{what}; {ONLY_THE_LAST}", None
    return what, None


def _require_unchanged(segment: SourceSegment) -> None:
    place = segment.log._replace(inside="")
    status = status_of(place)
    modified_ms, listed_ms = (status.modified_ms if status else None), segment.last_modified_ms
    if place.is_object_store and listed_ms is not None:
        listed_ms -= listed_ms % 1000
    is_same_size = segment.log.inside or (status and status.size_bytes == segment.size_bytes)
    if not status or not is_same_size or modified_ms != listed_ms:
        raise _SourceError(CHANGED)


@contextmanager
def _source_errors() -> Iterator[None]:
    try:
        yield
    except CorruptSegmentError as error:
        raise _SourceError(f"{error}") from error
    except FileReadError as error:
        raise _SourceError(one_line(error)) from error


def _remove(segment: SourceSegment, directory: Location) -> None:
    for kind in ("log", "index", "timeindex"):
        remove(directory.child(segment.file_name(kind)))
