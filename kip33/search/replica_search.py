"""All requests for one partition, answered from the replica that has most, or from each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kip33.formats.records import DEFAULT_MAX_BATCH_BYTES
from kip33.rules.search import NEWEST_KAFKA, Exactness, SearchResult
from kip33.search.partition_search import Answer, search_partition
from kip33.search.replicas import (
    most_complete,
    overlap_note,
    overlapping,
    replicas_of,
    two_directories_note,
)
from kip33.search.searched_segment import SearchedSegment

SEARCHED: Final = ("log_dir", *SearchedSegment._fields)
"""The catalog's columns that a search asks for."""


class SearchOptions(NamedTuple):
    """How all requests alike are answered."""

    as_kafka: bool = False  # with Kafka's traps
    index_only: bool = False  # no log is opened
    all_replicas: bool = False  # else one, the fullest
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES  # a larger one, decompressed, is not read
    kafka_version: tuple[int, int] = NEWEST_KAFKA  # whose traps


class Request(NamedTuple):
    """A time to look for; `log_dir` None: in whichever replica."""

    target_ms: int
    log_dir: str | None = None


class ReplicaAnswer(NamedTuple):
    """An answer, and the replica it is from; None where there is no such partition."""

    request: int  # its place among the requests
    log_dir: str | None
    answer: Answer


def answers_of(
    rows: Iterable[Mapping[str, Any]],
    requests: Iterable[Request],
    how: SearchOptions,
    starts: Mapping[str, int] | None = None,
) -> Iterator[ReplicaAnswer]:
    """Yield what is found for each request, given the catalog's rows of one topic and partition.

    `rows` have SEARCHED, in no order, of all log directories. `starts`: log start offsets by log
    directory; records below do not count.
    """
    replicas = replicas_of(rows)
    best = most_complete(replicas)
    asked: dict[str, list[tuple[int, int]]] = {}
    for number, request in enumerate(requests):
        if request.log_dir is not None:
            log_dirs = [request.log_dir]
        else:
            log_dirs = sorted(replicas) if how.all_replicas else [best] if best is not None else []
        found = [log_dir for log_dir in log_dirs if log_dir in replicas]
        if not found:
            no_such, record = SearchResult.NO_SUCH_PARTITION, Exactness.RECORD
            nothing = Answer(request.target_ms, None, None, no_such, record, 0, None)
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
            yield ReplicaAnswer(number, log_dir, _with_notes(answer, twice, note))


def _with_notes(answer: Answer, twice: Sequence[SearchedSegment], note: str | None) -> Answer:
    """Return the answer with a note where it depends on which of two segments is read.

    `note`: what makes every answer of this replica unsure.
    """
    about_offset = None if answer.offset is None else overlap_note(answer.offset, twice)
    if note is None and about_offset is None:
        return answer
    joined = "; ".join(filter(None, (answer.note, about_offset, note)))
    return answer._replace(note=joined, exactness=Exactness.UNSURE)
