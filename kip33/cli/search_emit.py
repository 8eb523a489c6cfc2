"""The offsets that `kip33 search --emit` prints, without the unsafe ones.

They are in the forms of the tools that set offsets or delete records. An offset is unsafe if a
consumer that begins there could miss records, or if records that are late enough would be deleted.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import click

from kip33.cli.output import counted, human_bytes, iso_time, warn
from kip33.formats.kafka_configs import delete_records_object
from kip33.rules.search import EARLIEST, MAX_TIMESTAMP, Exactness, SearchResult
from kip33.search import answers as search_answers
from kip33.search.range_size import newer_records
from kip33.search.replica_search import ReplicaKey

if TYPE_CHECKING:
    from kip33.cli.search import SearchCommand

AnswerRow: TypeAlias = dict[str, Any]
"""A row of an answer to `kip33 search`."""

_RESET_OFFSETS, _SPARK, DELETE_RECORDS = "reset-offsets", "spark", "delete-records"
_SPARK_LATEST: Final = -1


class NewerRecordCount:
    """Counts the records at or after each answer's time that are before its offset."""

    def __init__(
        self, rows: Mapping[ReplicaKey, Sequence[Mapping[str, Any]]], max_batch_bytes: int
    ) -> None:
        """Take the catalog's rows of each replica."""
        self._rows, self._max_batch_bytes = rows, max_batch_bytes
        self.partitions = self._records = self._bytes_read = 0  # counted so far
        self._is_exact = True

    def __call__(self, answer: AnswerRow, offset: int) -> str | None:
        """Return how many records of one partition are lost and why, None without any.

        A search for the earliest or the latest offset has no time, so nothing is counted.
        """
        target_ms = answer["target_ms"]
        if target_ms == MAX_TIMESTAMP:
            target_ms = answer["timestamp"]
        if target_ms is None or target_ms < 0:
            return None
        rows = self._rows.get(replica_key(answer), ())
        found = newer_records(rows, offset, target_ms, max_batch_bytes=self._max_batch_bytes)
        self.partitions += 1
        self._records += found.records
        self._bytes_read += found.bytes_read
        self._is_exact &= found.is_exact
        if not found.records:
            return None
        bound = "" if found.is_exact else "at most "
        note = f" ({found.note})" if found.note else ""
        records = counted(found.records, "record")
        return (
            f"{bound}{records} with timestamp {iso_time(target_ms)} or later "
            f"before offset {offset} would be deleted{note}"
        )

    def summary(self) -> str:
        """Return the sum of all partitions as one line."""
        bound = "" if self._is_exact else "at most "
        where = counted(self.partitions, "partition")
        return (
            f"Newer records before the offsets: {bound}{self._records:,}, in "
            f"{where}; {human_bytes(self._bytes_read)} read to count them"
        )


class Offset(NamedTuple):
    """The offset to begin in a partition; `is_end`: the log's end, because no record was found."""

    topic: str
    partition: int
    offset: int
    is_end: bool = False


def offset_lines(offsets: Iterable[Offset], emit: str) -> list[str]:
    """Return offsets in the form of `emit`.

    `reset-offsets`: CSV for `kafka-consumer-groups.sh --reset-offsets --from-file`; `spark`: the
    JSON of `startingOffsets`, -1 for a log's end; `delete-records`: the JSON of
    `kafka-delete-records.sh --offset-json-file`.
    """
    ordered = sorted(offsets)
    if emit == _RESET_OFFSETS:
        return [f"{position.topic},{position.partition},{position.offset}" for position in ordered]
    if emit == DELETE_RECORDS:
        found = delete_records_object(
            (position.topic, position.partition, position.offset) for position in ordered
        )
        return [json.dumps(found)]
    topics: dict[str, dict[str, int]] = {}
    for position in ordered:
        offset = _SPARK_LATEST if position.is_end else position.offset
        topics.setdefault(position.topic, {})[str(position.partition)] = offset
    return [json.dumps(topics)]


def offsets_to_emit(
    answers: Sequence[AnswerRow],
    ends: Mapping[ReplicaKey, search_answers.Answer],
    command: "SearchCommand",
    count_newer: NewerRecordCount | None,
    untimed: Callable[[AnswerRow], str | None],
) -> Iterator[Offset]:
    """Yield one offset per partition; without a record the log's end, as Kafka's own tool does.

    A partition with an unsafe answer is left out and named, unless it is allowed. `count_newer`
    counts the records at or after the time that are before the offset: deleting up to there is
    unsafe. So is an end behind records without timestamps, which `untimed` names.
    """
    repeated = Counter((answer["topic"], answer["partition"]) for answer in answers)
    for (topic, partition), count in repeated.items():
        if count > 1:
            raise click.UsageError(
                f"--emit prints one offset per partition, but {topic}-{partition} has "
                "several answers: give one --time, and no --all-replicas"
            )
    for answer in answers:
        key = answer["topic"], answer["partition"]
        end = ends.get(replica_key(answer)) if answer["offset"] is None else None
        offset = end.offset if end else answer["offset"]
        unsafe = _unsafe(answer, end, command.emit)
        if answer["target_ms"] >= 0 and not unsafe and (answer["offset"] is not None or end):
            unsafe = search_answers.joined_notes(unsafe, untimed(answer))
        if count_newer and offset is not None:
            unsafe = search_answers.joined_notes(unsafe, count_newer(answer, offset))
        if offset is None:
            warn(f"{key[0]}-{key[1]}: {unsafe or answer['result']}; the output leaves it out")
            continue
        if unsafe and not command.allow_unsafe:
            warn(f"{key[0]}-{key[1]}: {unsafe}; the output leaves it out, --allow-unsafe prints it")
            continue
        if unsafe:
            warn(f"{key[0]}-{key[1]}: {unsafe}")
        if end:
            warn(
                f"{key[0]}-{key[1]}: {answer['result']}; the end of the partition is used, "
                f"offset {offset}"
            )
        yield Offset(*key, offset, is_end=end is not None)


def _unsafe(answer: AnswerRow, end: search_answers.Answer | None, emit: str | None) -> str | None:
    """Return why an offset could skip or delete wrong records, None if it cannot."""
    exactness = {answer["exactness"], end.exactness if end else Exactness.RECORD}
    if answer["passed_over"] or Exactness.UNSURE in exactness:
        notes = dict.fromkeys(filter(None, (answer["note"], end.note if end else None)))
        return f"unsure, {'; '.join(notes)}"
    if answer["result"] == SearchResult.NO_TIMESTAMPS and answer["target_ms"] != EARLIEST:
        return "no record has a timestamp, so the end of the partition would be used"
    if answer["result"] == SearchResult.NOT_IN_TIER:
        return "not_in_tier, so the end of the partition would be used"
    if emit == DELETE_RECORDS and exactness != {Exactness.RECORD}:
        return f"exactness {answer['exactness']} found, expected {Exactness.RECORD}"
    return None


def replica_key(answer: AnswerRow) -> ReplicaKey:
    """Return the replica that an answer is from."""
    return answer["log_dir"], answer["topic"], answer["partition"]
