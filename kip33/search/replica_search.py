"""Answer all requests for one partition, from the most complete replica or from each one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES
from kip33.rules.search import NEWEST_KAFKA, Exactness, SearchResult
from kip33.search.answers import Answer
from kip33.search.partition_search import search_partition
from kip33.search.replicas import (
    most_complete,
    of_newest_topic,
    older_topic_note,
    overlap_note,
    overlapping,
    replicas_of,
    two_directories_note,
)
from kip33.search.searched_segment import SearchedSegment

SEARCHED: Final = ("log_dir", *SearchedSegment._fields)
"""The catalog's columns that a search needs."""


class SearchOptions(NamedTuple):
    """The options for all requests."""

    as_kafka: bool = False  # with Kafka's traps
    index_only: bool = False  # no log is opened
    all_replicas: bool = False  # else only the most complete one
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES  # larger decompressed batches are not read
    kafka_version: tuple[int, int] = NEWEST_KAFKA  # whose traps


class Request(NamedTuple):
    """A time to search for; `log_dir` None: in any replica."""

    target_ms: int
    log_dir: str | None = None


class ReplicaAnswer(NamedTuple):
    """An answer and its replica; None if there is no such partition."""

    request: int  # the number of the request
    log_dir: str | None
    answer: Answer


def answers_of(
    rows: Iterable[Mapping[str, Any]],
    requests: Iterable[Request],
    how: SearchOptions,
    starts: Mapping[str, int] | None = None,
) -> Iterator[ReplicaAnswer]:
    """Yield the answers to each request, given the catalog's rows of one topic and partition.

    `rows` have the columns SEARCHED, of all log directories, in any order. `starts`: log start
    offsets by log directory; records below are ignored. Without a log directory a request is for
    the newest topic of this name: rows with IS_OLDER are of an older one.
    """
    rows = list(rows)
    replicas, newest = replicas_of(rows), replicas_of(of_newest_topic(rows))
    best, older = most_complete(newest), older_topic_note(rows)
    asked: dict[str, list[tuple[int, int]]] = {}
    for number, request in enumerate(requests):
        if request.log_dir is not None:
            log_dirs = [request.log_dir]
        else:
            log_dirs = sorted(newest) if how.all_replicas else [best] if best is not None else []
        found = [log_dir for log_dir in log_dirs if log_dir in replicas]
        if not found:
            no_such, record = SearchResult.NO_SUCH_PARTITION, Exactness.RECORD
            nothing = Answer(request.target_ms, None, None, no_such, record, 0, older)
            yield ReplicaAnswer(number, request.log_dir, nothing)
        for log_dir in found:
            asked.setdefault(log_dir, []).append((number, request.target_ms))
    for log_dir, targets in asked.items():
        answers = search_partition(
            replicas[log_dir],
            [target_ms for _, target_ms in targets],
            as_kafka=how.as_kafka,
            kafka_version=how.kafka_version,
            index_only=how.index_only,
            max_batch_bytes=how.max_batch_bytes,
            log_start_offset=(starts or {}).get(log_dir),
        )
        twice = overlapping(replicas[log_dir])
        note = two_directories_note(replicas[log_dir])
        for (number, _), answer in zip(targets, answers, strict=True):
            noted = _with_notes(answer, twice, note)
            if older and log_dir in newest:
                noted = noted._replace(note="; ".join(filter(None, (noted.note, older))))
            yield ReplicaAnswer(number, log_dir, noted)


def _with_notes(answer: Answer, twice: Sequence[SearchedSegment], note: str | None) -> Answer:
    """Return the answer, with a note if it depends on which of two segments is read.

    `note`: the reason why every answer of this replica is unsure, if any.
    """
    about_offset = None if answer.offset is None else overlap_note(answer.offset, twice)
    if note is None and about_offset is None:
        return answer
    joined = "; ".join(filter(None, (answer.note, about_offset, note)))
    return answer._replace(note=joined, exactness=Exactness.UNSURE)
