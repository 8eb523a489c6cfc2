"""Answer a few questions from a catalog directly, without Spark, in threads for slow stores."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.bins import Engine, Work, first_seen
from kip33.archive.log_start_offsets import LogStartOffsets
from kip33.catalog.segment_order import PARTITION
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.catalog.topics_by_name import with_older_topics
from kip33.search.answers import SearchOptions
from kip33.search.replica_search import (
    SEARCH_THREADS,
    PartitionKey,
    ReplicaAnswer,
    ReplicaKey,
    TimeQuestion,
    answers_of,
)
from kip33.search.searched_segment import SEARCHED
from kip33.stores.progress import OnProgress, Phase, tell_nobody, telling

SEARCH_COST_BYTES: Final = 1 << 20  # a search takes about as long as reading this
QUESTIONS_AT_ONCE: Final = 500  # of one partition, in one row of the work
COUNTED: Final = (
    *("log_uri", "base_offset", "last_offset", "valid_bytes"),
    *("record_count", "status", "max_timestamp"),
)


class TimeAnswer(NamedTuple):
    """The answer to a question, with the question's number and the partition."""

    question: int
    topic: str
    partition: int | None
    located: ReplicaAnswer


def rows_of(source: CatalogSnapshot | Tiers, topics: Iterable[str]) -> "pa.Table":
    """Return the rows of all copies of some topics for a search; CatalogError if damaged.

    The columns are SEARCHED, those that tell the copies apart, IS_OLDER and IS_AGE_UNSURE.
    """
    return with_older_topics(source.copies(SEARCHED, set(topics)))


def log_rows(
    source: CatalogSnapshot | Tiers, topics: Iterable[str], replicas: Iterable[str | None]
) -> dict[ReplicaKey, list[dict[str, Any]]]:
    """Return the rows that make up logs for `range_size`, by replica, topic, partition.

    The replica None is the log, others what they have of it.
    """
    found: dict[ReplicaKey, list[dict[str, Any]]] = {}
    for replica in replicas:
        rows = source.logs(COUNTED, set(topics), replica).rows
        for partition, of_one in _grouped(rows, PARTITION[1:]).items():
            found[replica, *partition] = of_one
    return found


def by_partition(rows: "pa.Table") -> dict[PartitionKey, list[dict[str, Any]]]:
    """Return the rows of segments by topic and partition, all replicas together."""
    return _grouped(rows, PARTITION[1:])


def _grouped(rows: "pa.Table", names: Sequence[str]) -> dict[Any, list[dict[str, Any]]]:
    """Return the rows of segments by the values of some columns."""
    found: dict[Any, list[dict[str, Any]]] = {}
    for row in rows.to_pylist():
        if row["base_offset"] is not None:
            found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def partitions_of(
    source: CatalogSnapshot | Tiers, topics: Iterable[str]
) -> dict[PartitionKey, list[dict[str, Any]]]:
    """Return the rows of some topics for a search, by topic and partition."""
    return by_partition(rows_of(source, topics))


def search_rows(
    rows: "pa.Table",
    questions: Sequence[TimeQuestion],
    how: SearchOptions,
    starts: LogStartOffsets | None = None,
    on_progress: OnProgress = tell_nobody,
) -> list[TimeAnswer]:
    """Return the answers to each question, in their order, then by partition and replica.

    Records below the log start offset in `starts` are ignored.
    """
    by_topic_partition: dict[PartitionKey, dict[str, int]] = {}
    for (log_dir, topic, number), offset in (starts or {}).items():
        by_topic_partition.setdefault((topic, number), {})[log_dir] = offset
    partitions = by_partition(_asked_for(rows, questions))
    questions_of = _questions_by_partition(questions, partitions)

    def answered(partition: PartitionKey) -> Iterator[TimeAnswer]:
        numbers, asked = zip(*questions_of[partition], strict=True)
        for located in answers_of(
            partitions.get(partition, []), asked, how, by_topic_partition.get(partition)
        ):
            yield TimeAnswer(numbers[located.question], *partition, located)

    with ThreadPoolExecutor(SEARCH_THREADS) as pool:
        by_key = pool.map(lambda partition: list(answered(partition)), questions_of)
        told = telling(by_key, Phase.SEARCHING, len(questions_of), "partition", on_progress)
        return sorted(chain.from_iterable(told), key=_place)


def search_on_engine(
    engine: Engine,
    source: CatalogSnapshot | Tiers,
    rows: "pa.Table",
    questions: Sequence[TimeQuestion],
    how: SearchOptions,
    starts: LogStartOffsets | None = None,
) -> list[TimeAnswer]:
    """Return the answers of `search_rows`; a bin is consecutive partitions of the source.

    Each bin reads the rows of its own topics. The rows here say which partitions there are.
    """
    if isinstance(source, Tiers):
        source = replace(source, warn=_was_told_here)
    run = partial(_search_bin, source, how, starts)
    marks = first_seen(rows["log_uri"].to_pylist())
    searching = Work(Phase.SEARCHING, "partition", has_bytes=False, marks=marks, command="search")
    shares = _shares(questions, dict.fromkeys(_keys_of(rows)))
    work = pa.Table.from_pylist([*shares], _SHARE)
    return sorted(engine.run_on_bins(work, run, work=searching), key=_place)


def _was_told_here(_: str) -> None:
    """Tell nothing: the rows were read before, where the user is."""


_SHARE_FIELDS: list["pa.Field[Any]"] = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("number", pa.list_(pa.int64())),  # of each question
    pa.field("target_ms", pa.list_(pa.int64())),
    pa.field("log_dir", pa.list_(pa.string())),
    pa.field("size_bytes", pa.int64()),
    pa.field("path", pa.string()),
]
_SHARE: Final = pa.schema(_SHARE_FIELDS)


def _shares(
    questions: Sequence[TimeQuestion], partitions: Mapping[PartitionKey, object]
) -> Iterator[dict[str, Any]]:
    """Yield the partitions in order, each with some questions, which are near in time.

    A partition that is asked for often is several rows.
    """
    questions_of = _questions_by_partition(questions, partitions)
    for topic, partition in sorted(questions_of, key=_order):
        asked = sorted(questions_of[topic, partition], key=lambda one: one[1].target_ms)
        for first in range(0, len(asked), QUESTIONS_AT_ONCE):
            numbers, some = zip(*asked[first : first + QUESTIONS_AT_ONCE], strict=True)
            yield {
                "topic": topic,
                "partition": partition,
                "number": numbers,
                "target_ms": [question.target_ms for question in some],
                "log_dir": [question.log_dir for question in some],
                "size_bytes": SEARCH_COST_BYTES * len(some),
                "path": f"{topic}-{partition}",
            }


def _search_bin(
    source: CatalogSnapshot | Tiers,
    how: SearchOptions,
    starts: LogStartOffsets | None,
    bin_number: int,
    work: "pa.Table",
) -> list[TimeAnswer]:
    """Return the answers of some partitions, with the numbers of their questions."""
    numbers, questions = [], []
    for row in work.to_pylist():
        numbers += row["number"]
        for target_ms, log_dir in zip(row["target_ms"], row["log_dir"], strict=True):
            questions.append(TimeQuestion(row["topic"], row["partition"], target_ms, log_dir))
    rows = rows_of(source, {question.topic for question in questions})
    answers = search_rows(rows, questions, how, starts)
    return [answer._replace(question=numbers[answer.question]) for answer in answers]


def _keys_of(rows: "pa.Table") -> list[PartitionKey]:
    """Return the partitions of segments whose base offset is known."""
    known = rows.filter(pc.is_valid(rows["base_offset"]))
    keys = known.group_by(["topic", "partition"]).aggregate([])
    return [(row["topic"], row["partition"]) for row in keys.to_pylist()]


def _questions_by_partition(
    questions: Sequence[TimeQuestion], partitions: Mapping[PartitionKey, object]
) -> dict[PartitionKey, list[tuple[int, TimeQuestion]]]:
    """Return the questions about each partition, with their numbers."""
    questions_of: dict[PartitionKey, list[tuple[int, TimeQuestion]]] = {}
    for number, question in enumerate(questions):
        for partition in _partitions_of(question, partitions):
            questions_of.setdefault(partition, []).append((number, question))
    return questions_of


def _asked_for(rows: "pa.Table", questions: Sequence[TimeQuestion]) -> "pa.Table":
    """Return the rows of the partitions that questions name; all rows if one names no partition."""
    numbers = [question.partition for question in questions]
    if None in numbers:
        return rows
    return rows.filter(pc.is_in(rows["partition"], pa.array(numbers, pa.int32())))


def _partitions_of(
    question: TimeQuestion, partitions: Mapping[PartitionKey, object]
) -> list[PartitionKey]:
    if question.partition is not None:
        return [(question.topic, question.partition)]
    there = sorted(key for key in partitions if key[0] == question.topic)
    return there or [(question.topic, None)]


def _order(partition: PartitionKey) -> tuple[str, int]:
    topic, number = partition
    return topic, -1 if number is None else number


def _place(found: TimeAnswer) -> tuple[int, int, str]:
    _, number = _order((found.topic, found.partition))
    return found.question, number, found.located.log_dir or ""
