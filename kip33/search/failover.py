"""Translate consumer-group offsets to another cluster, by timestamp, for a failover.

KIP-33, use case 3. `failover` takes the timestamp of the last record that a group read from a
partition and subtracts a buffer for latency and clock differences. It searches for that time in the
other cluster's archive. No record at or after that time is before the answer. So every record that
the group has not read on the first cluster is read on the second, unless its timestamp is older
than the buffer allows.

A record without a timestamp is not older than that time: it is not known when it was sent. So no
answer is behind the first one, as far as headers show it.

If the clusters have different partitions of a topic, it is unknown which record went where. Then
the smallest of the topic's times is used for all of its partitions.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias, TypedDict

from kip33.archive.common_options import MaxBatchBytes, TopicGlobList
from kip33.archive.log_window import Meter
from kip33.errors import counted
from kip33.formats.batch import NO_TIMESTAMP
from kip33.formats.kafka_configs import GroupOffset
from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES
from kip33.formats.times import UtcTime, utc_time
from kip33.rules.search import EARLIEST, Exactness, SearchResult
from kip33.search.answers import Answer, SearchOptions, joined_notes
from kip33.search.emitted_offsets import EmittedOffsets
from kip33.search.offset_lookup import (
    WithoutTimestamp,
    first_without_timestamp,
    record_before,
    record_from,
)
from kip33.search.partition_search import search_partition
from kip33.search.replica_search import (
    SEARCH_THREADS,
    PartitionKey,
    SearchedLog,
    doubt_of,
    log_end,
    searched_log,
)
from kip33.search.searched_segment import SearchedSegment
from kip33.stores.progress import OnProgress, Phase, tell_nobody, telling

Rows: TypeAlias = dict[PartitionKey, list[dict[str, Any]]]
"""The rows of a catalog, `partitions_of` of `catalog_search`."""

NONE_IN_ARCHIVE: Final = "the archive has none of the records that were read: resume at the start"
NO_TIMESTAMP_READ: Final = "the last record that was read has no timestamp: resume at the start"
BEFORE_1970: Final = "the last record that was read is from before 1970: resume at the start"
_NOT_OLDER: Final = "it may not have been read, so resume there"
_MOST_MARKERS: Final = 100  # to skip


class FailoverOptions(TypedDict, total=False):
    """Whose offsets are translated."""

    topics: TopicGlobList
    max_batch_bytes: MaxBatchBytes


class ResumePoint(NamedTuple):
    """The offset at which a group continues in a partition of the second cluster.

    `last_read_timestamp` is that of the last record read on the first cluster, `target_ms` the time
    that was searched (-2: the start). `read_twice_at_most` counts the records between that time and
    the group's offset on the first cluster, of all partitions if `topic_wide`; None: unknown. The
    number is right if the second cluster has the records in the same order. There is no `guarantee`
    if the partition does not exist or part of it cannot be read.
    """

    group: str
    topic: str
    partition: int | None
    committed_offset: int | None  # on the first cluster; None if partitions differ
    last_read_timestamp: int | None
    target_ms: int
    resume_offset: int | None
    resume_timestamp: int | None
    result: SearchResult
    read_twice_at_most: int | None
    topic_wide: bool
    guarantee: str | None
    note: str | None

    @property
    def last_read_time(self) -> UtcTime:
        """Return `last_read_timestamp` as a time."""
        return utc_time(self.last_read_timestamp)

    @property
    def target_time(self) -> UtcTime:
        """Return `target_ms` as a time."""
        return utc_time(self.target_ms)

    @property
    def resume_time(self) -> UtcTime:
        """Return `resume_timestamp` as a time."""
        return utc_time(self.resume_timestamp)


class _Read(NamedTuple):
    """A group's progress in one partition of the first cluster."""

    committed: GroupOffset
    segments: list[SearchedSegment]
    timestamp: int | None  # of the last record
    target_ms: int
    note: str | None
    is_sure: bool = True  # nothing was skipped before that record


def resume_points(
    first: Rows,
    second: Rows,
    offsets: Sequence[GroupOffset],
    *,
    buffer_ms: int,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    on_progress: OnProgress = tell_nobody,
) -> list[ResumePoint]:
    """Return where each group continues, by group, topic and partition of the second cluster.

    A batch that decompresses to more than `max_batch_bytes` is not read, and a note says so. Raises
    ValueError for a negative buffer.
    """
    if buffer_ms < 0:
        raise ValueError(f"buffer_ms {buffer_ms}: expected 0 or more")
    with ThreadPoolExecutor(SEARCH_THREADS) as pool:
        read = pool.map(
            lambda committed: _last_read(first, committed, buffer_ms, max_batch_bytes), offsets
        )
        reads = list(telling(read, Phase.SEARCHING, len(offsets), "offset", on_progress))
    points: list[ResumePoint] = []
    ordered = sorted(reads, key=lambda read: read.committed)
    for (group, topic), of_topic in groupby(ordered, key=lambda read: read.committed[:2]):
        points += _of_topic(first, second, group, topic, list(of_topic), max_batch_bytes)
    return points


def _last_read(first: Rows, committed: GroupOffset, buffer_ms: int, most: int) -> _Read:
    log = _log(first, committed.topic, committed.partition)
    segments = log.segments
    located = record_before(segments, committed.offset, Meter(most))
    last = None if located.record is None else located.record.offset
    doubt = doubt_of(segments, last)
    about_log = log.note_at(last), log.alone_from(committed.offset)
    located = located._replace(
        note=joined_notes(located.note, doubt, *about_log),
        passed_over=located.passed_over or bool(doubt),
    )
    if located.record is None:
        return _Read(
            committed, segments, None, EARLIEST, joined_notes(located.note, NONE_IN_ARCHIVE)
        )
    timestamp = located.record.timestamp
    if timestamp < 0:
        why = NO_TIMESTAMP_READ if timestamp == NO_TIMESTAMP else BEFORE_1970
        return _Read(committed, segments, None, EARLIEST, joined_notes(located.note, why))
    note = located.note
    end = log_end(segments)[0]
    if committed.offset > end:
        behind = (
            f"the archive ends at {end}, before the committed offset: the archive's last "
            "record is used"
        )
        note = joined_notes(note, behind)
    is_sure = not located.passed_over
    return _Read(committed, segments, timestamp, max(0, timestamp - buffer_ms), note, is_sure)


def reset_offsets(points: Sequence[ResumePoint]) -> EmittedOffsets:
    """Return resume points as the CSV of `kafka-consumer-groups.sh --from-file`.

    Lines have groups if there are several. `warnings` name the partitions that are left out, and
    those without a guarantee.
    """
    several = len({point.group for point in points}) > 1
    text, warnings = io.StringIO(), []
    lines = csv.writer(text, lineterminator="\n")
    for point in points:
        name = f"{point.topic}-{'?' if point.partition is None else point.partition}"
        if point.resume_offset is None:
            is_there = point.result != SearchResult.NO_SUCH_PARTITION
            why = (is_there and point.note) or point.result
            warnings.append(f"{name}: {why}; the output leaves it out")
            continue
        if point.guarantee is None:
            warnings.append(f"{name}: no guarantee: {point.note}")
        row = (point.topic, point.partition, point.resume_offset)
        lines.writerow((point.group, *row) if several else row)
    return EmittedOffsets(text.getvalue().splitlines(), warnings, None)


def _of_topic(
    first: Rows, second: Rows, group: str, topic: str, reads: list[_Read], most: int
) -> Iterator[ResumePoint]:
    there = sorted(number for name, number in second if name == topic and number is not None)
    here = {number for name, number in first if name == topic and number is not None}
    unread = sorted(here - {read.committed.partition for read in reads})
    if not there or here == set(there):
        why = None
        if there and unread:
            why = f"partition {unread[0]} has no committed offset, so it has no row"
        for read in reads:
            log = _log(second, topic, read.committed.partition)
            twice = _read_twice([read], read.target_ms, most) if there else None
            note = joined_notes(read.note, why)
            yield _point(
                [read], read.committed, read.target_ms, log, most, read_twice=twice, note=note
            )
    else:
        target_ms = EARLIEST if unread else min(read.target_ms for read in reads)
        why = (
            f"{counted(len(here), 'partition')} on one cluster, {len(there)} on the other: the "
            "smallest time of the topic is used"
        )
        if unread:
            why = f"{why}, which is the start, because partition {unread[0]} was not read"
        note = joined_notes(why, *(read.note for read in reads))
        twice = _read_twice(reads, target_ms, most)
        for number in there:
            place = GroupOffset(group, topic, number, -1)
            log = _log(second, topic, number)
            yield _point(reads, place, target_ms, log, most, read_twice=twice, note=note, wide=True)


def _point(
    reads: Sequence[_Read],
    place: GroupOffset,
    target_ms: int,
    log: SearchedLog,
    most: int,
    *,
    read_twice: int | None,
    note: str | None,
    wide: bool = False,
) -> ResumePoint:
    segments = log.segments
    answer, is_record = _first_record(segments, target_ms, most)
    offset = answer.offset
    is_target_sure = target_ms == EARLIEST or all(read.is_sure for read in reads)
    read = None if wide else reads[0]
    is_there = answer.result != SearchResult.NO_SUCH_PARTITION
    untimed = WithoutTimestamp(None)
    if target_ms != EARLIEST and not answer.passed_over:
        untimed = first_without_timestamp(segments, offset, Meter(most))
    if untimed.offset is not None:
        offset, answer, is_record = untimed.offset, answer._replace(timestamp=None), False
        note = joined_notes(note, f"the record at offset {offset} has no timestamp: {_NOT_OLDER}")
    elif offset is None and not answer.passed_over and is_there:
        offset, end_note = log_end(segments)
        note = joined_notes(note, "no record there is late enough: resume at the end", end_note)
    doubt = joined_notes(doubt_of(segments, offset), untimed.note)
    about_log = None
    if offset is not None:
        about_log = joined_notes(log.note_at(offset), log.alone_from(offset))
    is_sure = is_target_sure and not (answer.passed_over or doubt)
    guarantee = None
    if offset is not None and is_sure:
        guarantee = (
            "every record of the archive will be read"
            if target_ms == EARLIEST
            else f"no record with timestamp {target_ms} or later is before offset {offset}"
        )
    return ResumePoint(
        *(place.group, place.topic, place.partition),
        read.committed.offset if read else None,
        read.timestamp if read else None,
        target_ms,
        offset,
        answer.timestamp,
        answer.result,
        read_twice if is_record else None,
        read is None,
        guarantee,
        joined_notes(note, answer.note, doubt, about_log),
    )


def _first_record(
    segments: list[SearchedSegment], target_ms: int, most: int
) -> tuple[Answer, bool]:
    """Return the first record at or after a time, and whether it is a record or a marker.

    A marker has the timestamp of its coordinator's clock, so earlier records may follow it. These
    would be read twice without being counted, so markers are skipped. If there are too many in a
    row, the first one is the answer.
    """
    how = SearchOptions(max_batch_bytes=most)
    [first] = search_partition(segments, [target_ms], how)
    answer = first
    for _ in range(_MOST_MARKERS):
        if answer.offset is None or answer.exactness != Exactness.RECORD or target_ms == EARLIEST:
            return answer, True
        located = record_from(segments, answer.offset, Meter(most))
        is_it = located.record and located.record.offset == answer.offset
        if located.passed_over or is_it:
            return answer, not located.passed_over
        if located.record is None:
            return answer._replace(offset=None, timestamp=None, result=SearchResult.AFTER_END), True
        start = located.record.offset
        [answer] = search_partition(segments, [target_ms], how, log_start_offset=start)
        answer = answer._replace(
            result=answer.result if answer.offset is None else first.result,
            note=joined_notes(first.note, answer.note),
            passed_over=first.passed_over or answer.passed_over,
        )
    return first, False


def _read_twice(reads: Sequence[_Read], target_ms: int, most: int) -> int | None:
    """Return the number of offsets from the target's position up to the groups' offsets.

    Records before and after the archive were also read and are counted: the second cluster may have
    them.
    """
    total = 0
    for read in reads:
        if not read.segments:
            return None
        [answer] = search_partition(read.segments, [target_ms], SearchOptions(max_batch_bytes=most))
        if answer.passed_over or not read.is_sure:
            return None
        begins = read.committed.offset if answer.offset is None else answer.offset
        if answer.result == SearchResult.BEFORE_START or begins <= read.segments[0].begin_offset:
            begins = 0
        total += max(0, read.committed.offset - begins)
    return total


def _log(rows: Rows, topic: str, partition: int) -> SearchedLog:
    return searched_log(rows.get((topic, partition), []))
