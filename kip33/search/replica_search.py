"""Searches of a partition's log, or of what each of its replicas has of it.

A replica is the segments of one log directory. `catalog.logs` says which of them is the log.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from kip33.catalog.logs import IS_REMOTE, Log, LogNote, Row, log_of, replica_lines
from kip33.catalog.topics_by_name import IS_AGE_UNSURE, IS_OLDER
from kip33.formats.names import two_directories_in
from kip33.rules.offset_holes import APART, overlaps
from kip33.rules.search import EARLIEST_LOCAL, LATEST_TIERED, Exactness, SearchResult
from kip33.rules.which_log import Kind
from kip33.search.answers import Answer, SearchOptions, joined_notes
from kip33.search.partition_search import search_partition
from kip33.search.searched_segment import SearchedSegment, losses_of, segment_of

SEARCH_THREADS: Final = 16  # per search: stores take most of its time

PartitionKey: TypeAlias = tuple[str, int | None]  # topic, number
ReplicaKey: TypeAlias = tuple[str | None, str, int | None]  # log_dir (None: the log), topic, number


class TimeQuestion(NamedTuple):
    """A time to find in a partition; None: in all partitions, in any replica."""

    topic: str
    partition: int | None
    target_ms: int
    log_dir: str | None = None


class ReplicaAnswer(NamedTuple):
    """An answer and the replica that is read first; None if there is no such partition."""

    question: int  # its number
    log_dir: str | None
    answer: Answer


class SearchedLog(NamedTuple):
    """What is searched: the log of a partition, or what a replica has of it."""

    log_dir: str | None  # of the replica that is read first; None: there is no such partition
    segments: list[SearchedSegment]  # in order
    unread: list[SearchedSegment]  # the other ones of the replicas that are read
    notes: tuple[LogNote, ...]

    @classmethod
    def of(cls, log: Log) -> "SearchedLog":
        """The segments of the rows of a log."""
        unread = [segment_of(row, is_unread=True) for row in log.unread]
        return cls(log.log_dir, [*map(segment_of, log.rows)], unread, log.notes)

    def alone_from(self, offset: int) -> str | None:
        """A note on records at or after an offset that only one replica has."""
        alone = (
            note.text
            for note in self.notes
            if note.kind == Kind.ALONE and (note.until_offset or 0) > offset
        )
        return joined_notes(*alone)

    def note_at(self, offset: int | None) -> str | None:
        """A note on replicas that differ, or on the one that has the record at an offset."""
        told = (
            note
            for note in self.notes
            if note.kind not in (Kind.EARLIER, Kind.FILLED)
            or (offset is not None and note.from_offset <= offset < (note.until_offset or 0))
        )
        return joined_notes(*replica_lines(told))


def searched_log(rows: Iterable[Row], log_dir: str | None = None) -> SearchedLog:
    """The log of a partition's newest topic; of the topic that a log directory has, if given.

    `rows` have the columns SEARCHED, of all copies, in any order.
    """
    placed = [row for row in rows if row["base_offset"] is not None]
    asked = of_newest_topic(placed)
    if log_dir is not None and all(row["log_dir"] != log_dir for row in asked):
        mine = {row["topic_id"] for row in placed if row["log_dir"] == log_dir}
        known = mine - {None}
        asked = [row for row in placed if row["log_dir"] == log_dir or row.get("topic_id") in known]
    if not asked:
        return SearchedLog(None, [], [], ())
    return SearchedLog.of(log_of(asked, log_dir))


def answers_of(
    rows: Iterable[Row],
    questions: Iterable[TimeQuestion],
    how: SearchOptions,
    starts: Mapping[str, int] | None = None,
) -> Iterator[ReplicaAnswer]:
    """Yield the answers to each question, given the catalog's rows of one topic and partition.

    `rows` have the columns SEARCHED, of all copies, in any order. `starts`: log start offsets by
    log directory; records below are ignored. Without a log directory a question is for the newest
    topic of this name: rows with IS_OLDER are of an older one. A broker answers of its own log.
    """
    rows = list(rows)
    older = older_topic_note(rows)
    newest = {row["log_dir"] for row in of_newest_topic(rows)}
    is_unsure = any(row.get(IS_AGE_UNSURE) for row in rows)
    is_apart = _has_local_log(rows) and not _has_local_log(of_newest_topic(rows))
    logs: dict[tuple[str | None, bool, bool], SearchedLog] = {}
    asked: dict[tuple[str | None, bool, bool], list[tuple[int, int]]] = {}
    for number, question in enumerate(questions):
        is_of_tiers = question.target_ms in (EARLIEST_LOCAL, LATEST_TIERED)
        is_brokers, is_by_time = how.as_kafka or is_of_tiers, how.as_kafka and not is_of_tiers
        log_dirs = [question.log_dir]
        if how.all_replicas and question.log_dir is None:
            log_dirs = _replicas_of(of_newest_topic(rows)) or log_dirs
        for log_dir in log_dirs:
            key = log_dir, is_brokers, is_by_time
            if key not in logs:
                logs[key] = searched_log(rows, log_dir)
                if is_brokers and log_dir is None and logs[key].log_dir is not None:
                    logs[key] = searched_log(rows, logs[key].log_dir)
                if is_by_time:
                    logs[key] = _looked_in(rows, logs[key])
            if logs[key].segments:
                asked.setdefault(key, []).append((number, question.target_ms))
            else:
                no_such, record = SearchResult.NO_SUCH_PARTITION, Exactness.RECORD
                nothing = Answer(question.target_ms, None, None, no_such, record, 0, older)
                yield ReplicaAnswer(number, question.log_dir, nothing)
    for key, targets in asked.items():
        log = logs[key]
        answers = search_partition(
            [*log.segments, *log.unread],
            [target_ms for _, target_ms in targets],
            how,
            log_start_offset=(starts or {}).get(log.log_dir or ""),
        )
        twice = overlapping(log.segments)
        note = two_directories_note(log.segments)
        for (number, _), answer in zip(targets, answers, strict=True):
            about_log = joined_notes(answer.note, log.note_at(answer.offset))
            noted = _with_notes(answer._replace(note=about_log), twice, note)
            if older and log.log_dir in newest:
                noted = noted._replace(note=joined_notes(noted.note, older))
                if is_apart or is_unsure:
                    noted = noted._replace(exactness=Exactness.UNSURE, passed_over=True)
            yield ReplicaAnswer(number, log.log_dir, noted)


def _looked_in(rows: Sequence[Row], log: SearchedLog) -> SearchedLog:
    """The log in which a broker looks for a time.

    It leaves out remote segments with a record that is not of the log, although their first records
    may be, and finds these in others (`RemoteLogManager.isRemoteSegmentWithinLeaderEpochs`).
    """
    every = (*log.segments, *log.unread)
    outside = {one.log_uri for one in every if one.is_remote and one.outside_from is not None}
    if not outside or log.log_dir is None:
        return log
    return searched_log([row for row in rows if row["log_uri"] not in outside], log.log_dir)


def _replicas_of(rows: Iterable[Row]) -> list[str | None]:
    """The log directories of a partition; none if it has only remote segments."""
    return sorted({row["log_dir"] for row in rows if not row.get(IS_REMOTE)})


def _with_notes(answer: Answer, twice: Sequence[SearchedSegment], note: str | None) -> Answer:
    """Return the answer, with a note if it depends on which of two segments is read.

    `note`: the reason why every answer of this replica is unsure, if any.
    """
    about_offset = None if answer.offset is None else overlap_note(answer.offset, twice)
    if note is None and about_offset is None:
        return answer
    note = joined_notes(answer.note, about_offset, note)
    return answer._replace(note=note, exactness=Exactness.UNSURE)


def of_newest_topic(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of the newest topic of their name; see `rules.topics_of_a_name`."""
    return [row for row in rows if not row.get(IS_OLDER)]


def _has_local_log(rows: Iterable[Row]) -> bool:
    """Return whether there is a segment of the local one of two tiers.

    A local log without a topic id is of none of several topics in the remote tier, and yet it may
    go on with the newest one.
    """
    return any(row.get(IS_REMOTE) is False for row in rows)


def older_topic_note(rows: Iterable[Row]) -> str | None:
    """Return a note on the log directories with an older topic of the same name, else None."""
    log_dirs = sorted({row["log_dir"] or "" for row in rows if row.get(IS_OLDER)})
    if not log_dirs:
        return None
    note = (
        f"log_dir {', '.join(map(repr, log_dirs))}: an older topic of this name, with another "
        "topic id or none; it is not searched unless the log_dir is given"
    )
    if any(row.get(IS_AGE_UNSURE) for row in rows):
        note += "; by its records it is older, by the times of its files it is newer"
    return note


def overlapping(segments: Sequence[SearchedSegment]) -> list[SearchedSegment]:
    """Return the segments of a log, in order, that share offsets with an earlier one."""
    bases = np.array([segment.begin_offset for segment in segments], np.int64)
    lasts = np.array([segment.span.end - 1 for segment in segments], np.int64)
    kinds = overlaps(np.zeros(len(segments), np.int64), bases, lasts)
    return [segment for segment, kind in zip(segments, kinds, strict=True) if kind != APART]


def overlap_note(offset: int, twice: Sequence[SearchedSegment]) -> str | None:
    """Return a note on an answer at an offset if segments overlap there, else None.

    `twice` are the segments that `overlapping` returns.
    """
    for segment in twice:
        last = segment.base_offset if segment.last_offset is None else segment.last_offset
        if segment.begin_offset <= offset <= last + 1:  # the next offset depends on it, too
            return f"{segment.log_uri}: overlaps an earlier segment; their records may differ"
    return None


def doubt_of(segments: Sequence[SearchedSegment], offset: int | None) -> str | None:
    """Return why an answer depends on which of two logs or segments is read, else None."""
    about_offset = None
    if offset is not None:
        unsure = (one.doubt_at(offset) for one in segments if one.begin_offset <= offset)
        about_offset = joined_notes(overlap_note(offset, overlapping(segments)), *unsure)
    return joined_notes(about_offset, two_directories_note(segments))


def two_directories_note(segments: Sequence[SearchedSegment]) -> str | None:
    """Return a note on a replica with two directories, else None."""
    here = (segment for segment in segments if not segment.is_remote)
    pair = two_directories_in(segment.log_uri.rpartition("/")[0] for segment in here)
    if pair is None:
        return None
    return (
        f"{pair[0]} and {pair[1]} are directories of the same partition; they may be different logs"
    )


def log_end(segments: Sequence[SearchedSegment]) -> tuple[int, str | None]:
    """Return the offset after the last known record, and a note if later records are unknown."""
    last, loss = segments[-1], losses_of(segments)[-1]
    is_known = last.is_bare or (last.last_offset is not None and not loss)
    note = (
        None if is_known else f"{last.log_uri}: {last.status}, so the end of the log is not known"
    )
    return max([last.begin_offset, *(segment.span.end for segment in segments)]), note
