"""The replicas of a partition, and the search of the most complete one or of each.

A replica is the segments of one log directory.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from kip33.catalog.tiers import IS_REMOTE, extent_of
from kip33.catalog.topics_by_name import IS_AGE_UNSURE, IS_OLDER
from kip33.formats.names import two_directories_in
from kip33.rules.offset_holes import APART, Extent, most_complete_of, overlaps
from kip33.rules.search import Exactness, SearchResult
from kip33.search.answers import Answer, SearchOptions, joined_notes
from kip33.search.partition_search import search_partition
from kip33.search.searched_segment import OF_TIERS, SearchedSegment, losses_of

SEARCHED: Final = ("log_dir", *(name for name in SearchedSegment._fields if name not in OF_TIERS))
"""The catalog's columns that a search needs."""

SEARCH_THREADS: Final = 16  # per search: stores take most of its time

PartitionKey: TypeAlias = tuple[str, int | None]  # topic, number
ReplicaKey: TypeAlias = tuple[str | None, str, int | None]  # log_dir, topic, number


class TimeQuestion(NamedTuple):
    """A time to find in a partition; None: in all partitions, in any replica."""

    topic: str
    partition: int | None
    target_ms: int
    log_dir: str | None = None


class ReplicaAnswer(NamedTuple):
    """An answer and its replica; None if there is no such partition."""

    question: int  # its number
    log_dir: str | None
    answer: Answer


def answers_of(
    rows: Iterable[Mapping[str, Any]],
    questions: Iterable[TimeQuestion],
    how: SearchOptions,
    starts: Mapping[str, int] | None = None,
) -> Iterator[ReplicaAnswer]:
    """Yield the answers to each question, given the catalog's rows of one topic and partition.

    `rows` have the columns SEARCHED, of all log directories, in any order. `starts`: log start
    offsets by log directory; records below are ignored. Without a log directory a question is for
    the newest topic of this name: rows with IS_OLDER are of an older one.
    """
    rows = list(rows)
    replicas, newest = replicas_of(rows), replicas_of(of_newest_topic(rows))
    best, older = most_complete(of_newest_topic(rows)), older_topic_note(rows)
    is_unsure = any(row.get(IS_AGE_UNSURE) for row in rows)
    is_apart = _has_local_log(rows) and not _has_local_log(of_newest_topic(rows))
    targets_by_replica: dict[str, list[tuple[int, int]]] = {}
    for number, question in enumerate(questions):
        if question.log_dir is not None:
            log_dirs = [question.log_dir]
        else:
            log_dirs = sorted(newest) if how.all_replicas else [best] if best is not None else []
        to_search = [log_dir for log_dir in log_dirs if log_dir in replicas]
        if not to_search:
            no_such, record = SearchResult.NO_SUCH_PARTITION, Exactness.RECORD
            nothing = Answer(question.target_ms, None, None, no_such, record, 0, older)
            yield ReplicaAnswer(number, question.log_dir, nothing)
        for log_dir in to_search:
            targets_by_replica.setdefault(log_dir, []).append((number, question.target_ms))
    for log_dir, targets in targets_by_replica.items():
        answers = search_partition(
            replicas[log_dir],
            [target_ms for _, target_ms in targets],
            how,
            log_start_offset=(starts or {}).get(log_dir),
        )
        twice = overlapping(replicas[log_dir])
        note = two_directories_note(replicas[log_dir])
        for (number, _), answer in zip(targets, answers, strict=True):
            noted = _with_notes(answer, twice, note)
            if older and log_dir in newest:
                noted = noted._replace(note=joined_notes(noted.note, older))
                if is_apart or is_unsure:
                    noted = noted._replace(exactness=Exactness.UNSURE, passed_over=True)
            yield ReplicaAnswer(number, log_dir, noted)


def _with_notes(answer: Answer, twice: Sequence[SearchedSegment], note: str | None) -> Answer:
    """Return the answer, with a note if it depends on which of two segments is read.

    `note`: the reason why every answer of this replica is unsure, if any.
    """
    about_offset = None if answer.offset is None else overlap_note(answer.offset, twice)
    if note is None and about_offset is None:
        return answer
    note = joined_notes(answer.note, about_offset, note)
    return answer._replace(note=note, exactness=Exactness.UNSURE)


def replicas_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[SearchedSegment]]:
    """Return a partition's segments by log directory, oldest first."""
    replicas: dict[str, list[SearchedSegment]] = {}
    for row in rows:
        if row["base_offset"] is not None:
            replicas.setdefault(row["log_dir"], []).append(_segment(row))
    for segments in replicas.values():
        segments.sort(key=attrgetter("base_offset", "is_remote", "log_uri"))
    return replicas


def of_newest_topic(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of the newest topic of their name; see `rules.topics_of_a_name`."""
    return [row for row in rows if not row.get(IS_OLDER)]


def _has_local_log(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether there is a segment of the local one of two tiers.

    A local log without a topic id is of none of several topics in the remote tier, and yet it may
    go on with the newest one.
    """
    return any(row.get(IS_REMOTE) is False for row in rows)


def older_topic_note(rows: Iterable[Mapping[str, Any]]) -> str | None:
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


def most_complete(rows: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the log directory of the replica to search, None without replicas."""
    extents: dict[str, list[Extent]] = {}
    for row in rows:
        if row["base_offset"] is not None:
            extents.setdefault(row["log_dir"], []).append(extent_of(row))
    return most_complete_of(extents)


def _segment(row: Mapping[str, Any]) -> SearchedSegment:
    fields = (name for name in SearchedSegment._fields if name in row)
    return SearchedSegment(**{name: row[name] for name in fields})


def best_replica(rows: Iterable[Mapping[str, Any]]) -> tuple[str | None, list[SearchedSegment]]:
    """Return the log directory to search of the newest topic, and its segments; None without."""
    newest = of_newest_topic(rows)
    log_dir = most_complete(newest)
    return log_dir, [] if log_dir is None else replicas_of(newest)[log_dir]


def overlapping(segments: Sequence[SearchedSegment]) -> list[SearchedSegment]:
    """Return the segments of one partition that share offsets with an earlier one.

    `segments` are in order of their base offsets.
    """
    segments = [segment for segment in segments if segment.is_read]
    bases = np.array([segment.base_offset for segment in segments], np.int64)
    lasts = np.array([segment.span.end - 1 for segment in segments], np.int64)
    kinds = overlaps(np.zeros(len(segments), np.int64), bases, lasts)
    return [segment for segment, kind in zip(segments, kinds, strict=True) if kind != APART]


def overlap_note(offset: int, twice: Sequence[SearchedSegment]) -> str | None:
    """Return a note on an answer at an offset if segments overlap there, else None.

    `twice` are the segments that `overlapping` returns.
    """
    for segment in twice:
        last = segment.base_offset if segment.last_offset is None else segment.last_offset
        if segment.base_offset <= offset <= last + 1:  # the next offset depends on it, too
            return f"{segment.log_uri}: overlaps an earlier segment; their records may differ"
    return None


def doubt_of(segments: Sequence[SearchedSegment], offset: int | None) -> str | None:
    """Return why an answer depends on which of two logs or segments is read, else None."""
    about_offset = None if offset is None else overlap_note(offset, overlapping(segments))
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
    known = [segment.last_offset + 1 for segment in segments if segment.last_offset is not None]
    return max([last.base_offset, *known]), note
