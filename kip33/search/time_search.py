"""A search of a catalog, or of two tiers, for times: its options, its answers and what is between.

`TimeSearch` answers questions, and adds to answers what is between two times. How answers become
the input of other programs is in `emitted_offsets`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Final, Protocol, TypeAlias, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.common_options import MaxBatchBytes
from kip33.archive.log_start_offsets import LogStartOffsets, log_start_offsets
from kip33.archive.log_window import Meter
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.formats.times import Time
from kip33.options import Option, Path
from kip33.rules.policies import nearest_topics, size_bytes
from kip33.rules.search import (
    LATEST,
    NEWEST_KAFKA,
    SearchResult,
    parse_kafka_version,
    require_tiers,
)
from kip33.search.answers import Answer, SearchOptions, joined_notes
from kip33.search.catalog_search import TimeAnswer, log_rows, rows_of, search_rows
from kip33.search.offset_lookup import first_without_timestamp
from kip33.search.range_size import RangeSize, range_size
from kip33.search.replica_search import ReplicaKey, TimeQuestion, searched_log
from kip33.stores.locations import Location

AnswerRow: TypeAlias = dict[str, Any]
"""A row of an answer: the columns of ANSWERS, with a range also those of RANGE."""

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("log_dir", pa.string()),  # null: no such partition
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32()),  # null: no such topic
    pa.field("target_ms", pa.int64(), nullable=False),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.int64()),
    pa.field("result", pa.string(), nullable=False),
    pa.field("exactness", pa.string(), nullable=False),
    pa.field("bytes_read", pa.int64(), nullable=False),
    pa.field("note", pa.string()),
    pa.field("passed_over", pa.bool_(), nullable=False),
]
_RANGE_FIELDS: list["pa.Field[Any]"] = [
    pa.field("until_ms", pa.int64()),
    pa.field("until_offset", pa.int64()),
    pa.field("records", pa.int64()),
    pa.field("size_bytes", pa.int64()),
]
REPLICA: Final = "replica"  # whose log is searched; None: of all replicas together
ANSWERS: Final = pa.schema(_FIELDS)
RANGE: Final = pa.schema(_RANGE_FIELDS)


def _broker_version(asked: Any) -> tuple[int, int] | None:
    """Return the version of Kafka that is asked; None: the answer is kip33's own.

    >>> _broker_version("kafka:3.7"), _broker_version("3.7"), _broker_version("kip33")
    ((3, 7), (3, 7), None)
    """
    if isinstance(asked, str) and asked != "kip33":
        name, _, version = asked.rpartition(":")
        if asked == "kafka":
            return NEWEST_KAFKA
        if name in ("", "kafka"):
            return parse_kafka_version(version)
        raise ValueError(f"{asked!r} found, expected kip33, kafka or a version such as kafka:3.7")
    return NEWEST_KAFKA if asked is True else None


class OffsetsForTimesOptions(TypedDict, total=False):
    """Whose answers are given, and what is read for them."""

    as_kafka: Annotated[
        bool | str,
        Option(
            "kafka: answer as a broker of the newest Kafka would, and report what hides a "
            "record from it. kafka:3.7: as a broker of that version. Up to 3.7, max-timestamp "
            "gives the offset of the index entry, usually the last offset of its batch. "
            "[default: kip33]",
            default=False,
            flag="--as",
            metavar="WHOM",
            parse=_broker_version,
            python="Answer as a broker of the newest Kafka; `3.7`: of that version. With tiers "
            "look where a broker looks, for `max-timestamp` in the local one only.",
        ),
    ]
    max_decompressed_message_bytes: Annotated[
        int | None,
        Option(
            "With --as kafka, from 4.4 on: the topics' setting of this name. Where a broker meets "
            "a larger record in a compressed batch, it returns an error.",
            metavar="1MiB",
            parse=size_bytes,
        ),
    ]
    index_only: Annotated[
        bool,
        "Do not open logs. The answer is an offset before which no record is at or after T.",
    ]
    all_replicas: Annotated[bool, "Answer for each log directory, with what it has of the log."]
    max_batch_bytes: MaxBatchBytes


class LogStartOption(TypedDict, total=False):
    """Where a broker's log begins. On Spark it is a mapping: a DataFrame names no archive."""

    log_start_offsets: Annotated[
        Path | None,
        Option(
            "With --as kafka: CSV topic,partition,offset[,log_dir]. Overrides the archive's "
            "log-start-offset-checkpoint.",
            metavar="FILE",
        ),
    ]


class SearchQuestion(OffsetsForTimesOptions, LogStartOption, total=False):
    """How a catalog is searched."""


class RangeOptions(TypedDict, total=False):
    """What is counted behind each answer."""

    until: Annotated[
        Time | str | None,
        Option(
            "With --time: also show the number of records and bytes up to this time.",
            metavar="T",
            python="Add the records and bytes from each answer up to this time.",
        ),
    ]


def search_options(asked: OffsetsForTimesOptions) -> SearchOptions:
    """Return how a search is done; ValueError for options that contradict each other."""
    version: Any = asked["as_kafka"]
    how = SearchOptions(
        bool(version),
        asked["index_only"],
        asked["all_replicas"],
        asked["max_batch_bytes"],
        version or NEWEST_KAFKA,
        asked["max_decompressed_message_bytes"],
    )
    how.require_valid()
    return how


class FindAnswers(Protocol):
    """Finds answers: `catalog_search.search_rows`, or an engine's tasks."""

    def __call__(
        self,
        rows: pa.Table,
        questions: Sequence[TimeQuestion],
        how: SearchOptions,
        starts: LogStartOffsets | None,
    ) -> list[TimeAnswer]:
        """Return the answers in the order of the questions, then by partition and replica."""


class TimeSearch:
    """A search of some topics; `rows` are those of the source."""

    def __init__(
        self,
        source: CatalogSnapshot | Tiers,
        topics: Collection[str],
        asked: SearchQuestion,
        find: FindAnswers = search_rows,
    ) -> None:
        """Read the rows, and with `as_kafka` the log start offsets of brokers."""
        self.source, self.how = source, search_options(asked)
        file = asked["log_start_offsets"]
        if file is not None and not self.how.as_kafka:
            raise ValueError("--log-start-offsets requires --as kafka (as_kafka in Python)")
        self.rows, self.find = rows_of(source, topics), find
        self._starts: LogStartOffsets | None = None
        if self.how.as_kafka:  # a broker does not search records before them
            log_dirs: list[Any] = self.rows["log_dir"].unique().drop_null().to_pylist()
            archive = Location.of(source.local.snapshot.source)
            self._starts = log_start_offsets(archive, log_dirs, None if file is None else str(file))

    def answers(self, questions: Sequence[TimeQuestion]) -> list[AnswerRow]:
        """Return the answers; ValueError for a target that needs two tiers, of one catalog.

        If there is no such topic, the note has those that may have been meant.
        """
        if not isinstance(self.source, Tiers):
            require_tiers(question.target_ms for question in questions)
        answers = self._found(self.find, questions, self.how, self._starts)
        there: list[Any] = self.rows["topic"].unique().to_pylist()
        unknown = {answer["topic"] for answer in answers}.difference(there)
        known = self.source.topics() if unknown else ()
        near = {topic: nearest_topics([topic], known) for topic in unknown}
        for answer in answers:
            if answer["topic"] in near:
                answer["note"] = f"no such topic{near[answer['topic']]}"
        return answers

    def _found(self, find: FindAnswers, *asked: Any) -> list[AnswerRow]:
        questions, how, _ = asked
        answers = []
        for one in find(self.rows, *asked):
            place = one.located.log_dir, one.topic, one.partition
            replica = questions[one.question].log_dir
            if how.all_replicas:
                replica = one.located.log_dir
            answer = dict(zip(ANSWERS.names, (*place, *one.located.answer), strict=True))
            answers.append(answer | {REPLICA: replica})
        return answers

    def log_ends(self, answers: Sequence[AnswerRow]) -> dict[ReplicaKey, Answer]:
        """Return the log ends of partitions without an answer, from the catalog alone."""
        questions = [
            TimeQuestion(answer["topic"], answer["partition"], LATEST, answer[REPLICA])
            for answer in answers
            if answer["offset"] is None and answer["result"] != SearchResult.NO_SUCH_PARTITION
        ]
        ends = search_rows(self.rows, questions, SearchOptions())
        return {
            (questions[end.question].log_dir, end.topic, end.partition): end.located.answer
            for end in ends
        }

    def untimed(self, answer: AnswerRow) -> str | None:
        """Return why an offset may skip records without timestamps, None if it does not.

        It is the answer's, or without a record the end of the partition.
        """
        is_asked = [pc.equal(self.rows[name], answer[name]) for name in ("topic", "partition")]
        of_one = self.rows.filter(pc.and_(*is_asked)).to_pylist()
        segments = searched_log(of_one, answer[REPLICA]).segments
        found = first_without_timestamp(segments, answer["offset"], Meter())
        if found.offset is None:
            return found.note
        what = "the end of the partition" if answer["offset"] is None else answer["offset"]
        return (
            f"the record at offset {found.offset} has no timestamp, so {what} could be behind "
            "records at or after the time"
        )

    def ranges(self, answers: Sequence[AnswerRow], until_ms: int) -> list[AnswerRow]:
        """Return the answers with the offset at a later time, and what is in between, as RANGE."""
        ends = self.log_ends(answers)
        there = [answer for answer in answers if answer["result"] != SearchResult.NO_SUCH_PARTITION]
        questions = [TimeQuestion(a["topic"], a["partition"], until_ms, a[REPLICA]) for a in there]
        exact = SearchOptions(max_batch_bytes=self.how.max_batch_bytes)
        untils = self._found(self.find, questions, exact, None)
        until_ends = self.log_ends(untils)
        by_replica = self.log_rows(there)
        for answer, at_until in zip(there, untils, strict=True):
            key = replica_key(answer)
            start = ends[key].offset if answer["offset"] is None else answer["offset"]
            end = until_ends[key].offset if at_until["offset"] is None else at_until["offset"]
            size = None
            if start is not None and end is not None:
                size = range_size(by_replica.get(key, ()), start, end)
            _add_range(answer, at_until, end, size)
        return [dict.fromkeys(RANGE.names) | answer for answer in answers]

    def log_rows(
        self, answers: Sequence[AnswerRow]
    ) -> Mapping[ReplicaKey, Sequence[Mapping[str, Any]]]:
        """Return the catalog's rows of each log of the answers' topics."""
        topics = {answer["topic"] for answer in answers}
        return log_rows(self.source, topics, {answer[REPLICA] for answer in answers})


def _add_range(
    answer: AnswerRow, until: AnswerRow, end: int | None, size: RangeSize | None
) -> None:
    """Add what is between an answer and the one at a later time."""
    answer["passed_over"] |= until["passed_over"]
    answer |= {
        "until_ms": until["target_ms"],
        "until_offset": end,
        "records": size.records if size and not answer["passed_over"] else None,
        "size_bytes": size.size_bytes if size else None,
    }
    answer["bytes_read"] += until["bytes_read"] + (size.bytes_read if size else 0)
    notes = (answer["note"], until["note"], size.note if size else None)
    answer["note"] = joined_notes(*notes)


def replica_key(answer: AnswerRow) -> ReplicaKey:
    """Return what an answer is about: the log of a partition, or what a replica has of it."""
    return answer[REPLICA], answer["topic"], answer["partition"]


def answer_table(answers: Sequence[AnswerRow], *, has_range: bool) -> pa.Table:
    """Return answers as a table of ANSWERS, with a range also of RANGE."""
    schema = pa.schema([*ANSWERS, *RANGE]) if has_range else ANSWERS
    return pa.Table.from_pylist(list(answers), schema)
