"""Answers of a search as the input of other programs, in which an offset must skip nothing.

An answer that could skip or delete wrong records is left out, and a line names it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, TypedDict

from kip33.errors import Kip33Error, counted
from kip33.formats.kafka_configs import delete_records_object
from kip33.formats.times import iso_time
from kip33.options import Option
from kip33.rules.policies import human_bytes
from kip33.rules.search import EARLIEST, MAX_TIMESTAMP, Exactness, SearchResult
from kip33.search.answers import Answer, joined_notes
from kip33.search.range_size import NewerRecords, newer_records
from kip33.search.replica_search import ReplicaKey
from kip33.search.time_search import AnswerRow, TimeSearch, replica_key

EmitName: TypeAlias = Literal["reset-offsets", "spark", "delete-records"]
_RESET_OFFSETS, _SPARK, _DELETE_RECORDS = "reset-offsets", "spark", "delete-records"
_SPARK_LATEST: Final = -1


class EmitOptions(TypedDict, total=False):
    """For which program answers are, and which ones."""

    emit: Annotated[
        EmitName | None,
        Option(
            "Print only the input of kafka-consumer-groups.sh --from-file, Spark's "
            "startingOffsets or kafka-delete-records.sh."
        ),
    ]
    allow_unsafe: Annotated[
        bool,
        Option(
            "With --emit: also print partitions whose answer is unsafe. By default they are "
            "left out, and standard error names them; for Spark, which needs all, that is an "
            "error.",
            python="Also give partitions whose answer is unsafe; by default they are left out.",
        ),
    ]


class EmittedOffsets(NamedTuple):
    """The input of another program, and what is said about it."""

    lines: list[str]
    warnings: list[str]  # on partitions that are left out, or unsafe
    counted_newer: str | None  # how many newer records deleting up to the offsets would delete

    @property
    def text(self) -> str:
        """Return the lines as the content of a file."""
        return "".join(f"{line}\n" for line in self.lines)


def emitted_offsets(
    search: TimeSearch, answers: Sequence[AnswerRow], asked: EmitOptions
) -> EmittedOffsets:
    """Return one offset per partition; without a record the log's end, as Kafka's own tool does.

    A partition with an unsafe answer is left out and named, unless it is allowed. For
    `delete-records` the records at or after the time that are before the offset are counted:
    deleting up to there is unsafe. So is an end behind records without timestamps. ValueError if a
    partition has several answers. Kip33Error if one would be left out of Spark's JSON.
    """
    repeated = Counter((answer["topic"], answer["partition"]) for answer in answers)
    for (topic, partition), count in repeated.items():
        if count > 1:
            raise ValueError(
                f"--emit prints one offset per partition, but {topic}-{partition} has "
                "several answers: give one time, and no --all-replicas"
            )
    emit = asked["emit"] or _RESET_OFFSETS
    ends = search.log_ends(answers)
    newer = None
    if emit == _DELETE_RECORDS:
        newer = _NewerRecordCount(search.log_rows(answers), search.how.max_batch_bytes)
    warnings: list[str] = []
    left_out: list[str] = []
    offsets: list[_Offset] = []
    for answer in answers:
        end = ends.get(replica_key(answer)) if answer["offset"] is None else None
        offset = end.offset if end else answer["offset"]
        unsafe = _unsafe(answer, end, emit)
        if answer["target_ms"] >= 0 and not unsafe and (answer["offset"] is not None or end):
            unsafe = joined_notes(unsafe, search.untimed(answer))
        if newer and offset is not None:
            unsafe = joined_notes(unsafe, newer(answer, offset))
        name = f"{answer['topic']}-{answer['partition']}"
        if offset is None or (unsafe and not asked["allow_unsafe"]):
            why = "the output leaves it out"
            why += "" if offset is None else ", --allow-unsafe prints it"
            left_out.append(f"{name}: {unsafe or answer['result']}; {why}")
            continue
        if unsafe:
            warnings.append(f"{name}: {unsafe}")
        if end:
            warnings.append(
                f"{name}: {answer['result']}; the end of the partition is used, offset {offset}"
            )
        offsets.append(_Offset(answer["topic"], answer["partition"], offset, end is not None))
    if left_out and emit == _SPARK:
        more = f"; and {len(left_out) - 1:,} more" if len(left_out) > 1 else ""
        raise Kip33Error(
            "--emit spark: Spark refuses startingOffsets without every partition of a topic; "
            f"{left_out[0]}{more}"
        )
    said = newer.summary() if newer and newer.partitions else None
    return EmittedOffsets([*_lines(sorted(offsets), emit)], [*left_out, *warnings], said)


class _Offset(NamedTuple):
    """The offset to begin in a partition; `is_end`: the log's end, because no record was found."""

    topic: str
    partition: int
    offset: int
    is_end: bool


def _lines(offsets: Iterable[_Offset], emit: str) -> Iterator[str]:
    """Yield offsets in the form of `emit`.

    `reset-offsets`: CSV for `kafka-consumer-groups.sh --reset-offsets --from-file`; `spark`: the
    JSON of `startingOffsets`, -1 for a log's end; `delete-records`: the JSON of
    `kafka-delete-records.sh --offset-json-file`.
    """
    if emit == _RESET_OFFSETS:
        yield from (f"{one.topic},{one.partition},{one.offset}" for one in offsets)
    elif emit == _DELETE_RECORDS:
        yield json.dumps(delete_records_object(one[:3] for one in offsets))
    else:
        topics: dict[str, dict[str, int]] = {}
        for one in offsets:
            offset = _SPARK_LATEST if one.is_end else one.offset
            topics.setdefault(one.topic, {})[str(one.partition)] = offset
        yield json.dumps(topics)


class _NewerRecordCount:
    """Counts the records at or after each answer's time that are before its offset."""

    def __init__(
        self, rows: Mapping[ReplicaKey, Sequence[Mapping[str, Any]]], max_batch_bytes: int
    ) -> None:
        """Take the catalog's rows of each replica."""
        self._rows, self._max_batch_bytes = rows, max_batch_bytes
        self.partitions, self._total = 0, NewerRecords()  # counted so far

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
        self._total = self._total.plus(found._replace(note=None))
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
        bound = "" if self._total.is_exact else "at most "
        where = counted(self.partitions, "partition")
        return (
            f"Newer records before the offsets: {bound}{self._total.records:,}, in "
            f"{where}; {human_bytes(self._total.bytes_read)} read to count them"
        )


def _unsafe(answer: AnswerRow, end: Answer | None, emit: str) -> str | None:
    """Return why an offset could skip or delete wrong records, None if it cannot."""
    exactness = {answer["exactness"], end.exactness if end else Exactness.RECORD}
    if answer["passed_over"] or Exactness.UNSURE in exactness:
        notes = dict.fromkeys(filter(None, (answer["note"], end.note if end else None)))
        return f"unsure, {'; '.join(notes)}"
    if answer["result"] == SearchResult.NO_TIMESTAMPS and answer["target_ms"] != EARLIEST:
        return "no record has a timestamp, so the end of the partition would be used"
    if answer["result"] == SearchResult.NOT_IN_TIER:
        return "not_in_tier, so the end of the partition would be used"
    if emit == _DELETE_RECORDS and exactness != {Exactness.RECORD}:
        return f"exactness {answer['exactness']} found, expected {Exactness.RECORD}"
    return None
