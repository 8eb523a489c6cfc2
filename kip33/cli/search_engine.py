"""The engine of a search: threads of this process, worker processes, or Spark."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kip33.archive.bins import EngineName
from kip33.archive.log_start_offsets import LogStartOffsets
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.cli.engine_option import EngineChoice, open_session
from kip33.cli.output import warn
from kip33.cli.search_options import SearchRequest
from kip33.cli.search_tables import ANSWER_COLUMNS, Answer
from kip33.search.catalog_search import Found, TimeQuestion, search_on_engine, search_rows
from kip33.search.replica_search import SearchOptions

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BY_THREADS: Final = 500  # questions; more are worth a Spark job


def engine_for(
    rows: "pa.Table",
    questions: Sequence[TimeQuestion],
    options: SearchRequest,
    choice: EngineChoice,
) -> EngineChoice:
    """Return the engine of these questions: a few need no Spark, unless it is asked for."""
    if choice.name == EngineName.LOCAL or options.master or choice.is_asked_for:
        return choice
    of_topics = rows.group_by(["topic", "partition"]).aggregate([])["topic"].to_pylist()
    partitions = Counter(of_topics)
    most = sum(1 if q.partition is not None else partitions[q.topic] for q in questions)
    if most > MOST_BY_THREADS:
        return choice
    why = f"up to {MOST_BY_THREADS} searches need no Spark, and this has {most}"
    return EngineChoice(EngineName.LOCAL, why, False)


def workers_of(engine: EngineName, options: SearchRequest, answers: Sequence[Answer]) -> int:
    """Return how many processes searched: of this machine at most one for each partition."""
    if engine == EngineName.LOCAL:
        partitions = {(answer["topic"], answer["partition"]) for answer in answers}
        return max(1, min(options.workers or 1, len(partitions)))
    from kip33.spark.tasks import cores

    return cores(open_session(options.engine_options))


def answers_to(
    catalog: Catalog,
    snapshot: Snapshot,
    rows: "pa.Table",
    questions: Sequence[TimeQuestion],
    how: SearchOptions,
    options: SearchRequest,
    engine: EngineName,
    starts: LogStartOffsets | None = None,
) -> list[Answer]:
    """Return the answers in the order of the questions, then by partition and replica."""
    if engine == EngineName.SPARK:
        return _by_spark(catalog, snapshot, questions, how, options, starts)
    return [
        dict(
            zip(
                ANSWER_COLUMNS,
                (found.located.log_dir, found.topic, found.partition, *found.located.answer),
                strict=True,
            )
        )
        for found in _found_here(rows, questions, how, options, starts)
    ]


def _found_here(
    rows: "pa.Table",
    questions: Sequence[TimeQuestion],
    how: SearchOptions,
    options: SearchRequest,
    starts: LogStartOffsets | None,
) -> list[Found]:
    """Return what threads of this process find, or worker processes if --workers asks for them.

    Starting workers takes as long as thousands of small searches.
    """
    if options.workers is None or options.workers == 1:
        return search_rows(rows, questions, how, starts)
    from kip33.local.local_engine import LocalEngine

    return search_on_engine(LocalEngine(options.workers, tell=warn), rows, questions, how, starts)


def _by_spark(
    catalog: Catalog,
    snapshot: Snapshot,
    questions: Sequence[TimeQuestion],
    how: SearchOptions,
    options: SearchRequest,
    starts: LogStartOffsets | None,
) -> list[Answer]:
    from kip33.spark.catalog import load_catalog
    from kip33.spark.search import offsets_for_times

    spark = open_session(options.engine_options)
    schema = "topic string, partition int, target_ms bigint, log_dir string, request int"
    requests = spark.createDataFrame(
        [(*question, number) for number, question in enumerate(questions)], schema
    )
    answered = offsets_for_times(
        load_catalog(spark, catalog.location.uri, snapshot.name),
        requests,
        **how._asdict(),
        log_start_offsets=starts,
    )
    rows = answered.orderBy("request", "partition", "log_dir").select(*ANSWER_COLUMNS).collect()
    return [row.asDict() for row in rows]
