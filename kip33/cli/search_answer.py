"""The answer of `kip33 search`: its questions, threads or Spark, and the output."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click

from kip33.archive.engine_name import EngineName
from kip33.archive.log_start_offsets import LogStartOffsets, log_start_offsets
from kip33.catalog.catalog import Catalog
from kip33.catalog.snapshot import Snapshot
from kip33.cli.engine_option import EngineChoice, engine_choice, open_session, show_engine
from kip33.cli.output import warn
from kip33.cli.progress import progress_bar
from kip33.cli.search_emit import DELETE_RECORDS, Offset, offset_text
from kip33.cli.search_options import SearchRequest
from kip33.cli.search_tables import ANSWER_COLUMNS, RANGE, Answer, print_search_answers
from kip33.cli.snapshot_choice import choose_and_warn
from kip33.cli.targets import parse_target
from kip33.cli.times import current_ms
from kip33.errors import CatalogError, LocationError
from kip33.rules.search import EARLIEST, LATEST, NEWEST_KAFKA, Exactness, SearchResult
from kip33.rules.topic_globs import TopicGlobs
from kip33.search import answers as search_answers
from kip33.search.catalog_search import (
    TimeQuestion,
    partition_rows,
    rows_of,
    search_rows,
    topics_of,
)
from kip33.search.range_size import range_size
from kip33.search.replica_search import SearchOptions
from kip33.search.replicas import ReplicaKey
from kip33.search.request_files import load_time_requests
from kip33.stores.directory_checks import require_directory
from kip33.stores.locations import Location

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BY_THREADS: Final = 500  # questions; more are worth a Spark job


def search_catalog(options: SearchRequest) -> None:
    """Print the answer to the options on standard output."""
    started = time.monotonic()
    catalog = Catalog.at(options.catalog_dir)
    require_directory(catalog.location, "CATALOG")
    choice = choose_and_warn(catalog, options.snapshot)
    snapshot = choice.snapshot
    choice_of_engine = engine_choice(options.engine_options._replace(verbose=False))
    how = SearchOptions(
        options.as_whom is not None,
        options.index_only,
        options.all_replicas,
        options.max_batch_bytes,
        options.as_whom or NEWEST_KAFKA,
    )
    questions = questions_of(catalog, snapshot, options)
    starts = _log_start_offsets(catalog, snapshot, questions, options)
    rows = rows_of(catalog, snapshot, {question.topic for question in questions})
    engine = _engine_for(rows, questions, options, choice_of_engine)
    if options.verbose:
        show_engine(engine)
    with progress_bar("search"):
        answers = answers_to(catalog, snapshot, rows, questions, how, options, engine.name, starts)
        ends: dict[ReplicaKey, search_answers.Answer] = {}
        if options.emit or options.until:
            ends = _ends(catalog, snapshot, answers)
        if options.until:
            answers = _ranges(
                catalog, snapshot, rows, answers, ends, options, engine.name, options.until
            )
    if options.emit:
        offsets = _offsets(answers, ends, options.emit, allow_unsafe=options.allow_unsafe)
        click.echo(offset_text(offsets, options.emit), nl=False)
    else:
        print_search_answers(
            answers,
            options.output_format,
            source=snapshot.source,
            seconds=time.monotonic() - started,
            warnings=choice.warnings,
            engine=engine.name,
            workers=_workers(engine.name, options),
        )


def questions_of(
    catalog: Catalog, snapshot: Snapshot, options: SearchRequest
) -> list[TimeQuestion]:
    """Return the questions of --requests or --time; UsageError or LocationError, one line."""
    now_ms = current_ms() if options.now is None else options.now
    if bool(options.requests) == bool(options.times):
        raise click.UsageError("give --time T or --requests FILE", click.get_current_context())
    if options.until and (options.requests or options.emit or options.index_only):
        raise click.UsageError(
            "--until requires --time and cannot be combined with --requests, --emit or "
            "--index-only",
            click.get_current_context(),
        )
    if options.requests:
        return _of_file(options.requests, now_ms)
    try:
        targets = [parse_target(text, now_ms) for text in options.times]
    except ValueError as error:
        raise click.BadParameter(f"--time: {error}") from error
    topics = _matching(topics_of(catalog, snapshot), options.topics)
    partition = options.partition
    return [TimeQuestion(topic, partition, target) for topic in topics for target in targets]


def _of_file(file: str, now_ms: int) -> list[TimeQuestion]:
    questions = []
    for request in load_time_requests(file):
        try:
            target_ms = parse_target(request.time, now_ms)
        except ValueError as error:
            raise LocationError(f"{file}: line {request.line}: {error}") from error
        questions.append(TimeQuestion(request.topic, request.partition, target_ms, request.log_dir))
    return questions


def _matching(topics: Sequence[str], globs: Sequence[str]) -> list[str]:
    """Return the topics that match; a missing topic that is named without a glob is included."""
    if not globs:
        return list(topics)
    asked = TopicGlobs.of(globs)
    found = [topic for topic in topics if asked.matches(topic)]
    named = [glob for glob in asked.included if not set(glob) & set("*?[") and asked.matches(glob)]
    named = [glob for glob in named if glob not in found]
    if not found and not named:
        raise CatalogError(
            f"no topic matches {' or '.join(globs)}; the catalog has {', '.join(topics[:10])}"
            + (", ..." if len(topics) > 10 else "")
        )
    return [*found, *dict.fromkeys(named)]


def _engine_for(
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


def _workers(engine: EngineName, options: SearchRequest) -> int:
    """Return how many searches run at once on other processes, 1 in this process."""
    if engine == EngineName.LOCAL:
        return 1
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
        for found in search_rows(rows, questions, how, starts)
    ]


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


def _key(answer: Answer) -> ReplicaKey:
    return answer["log_dir"], answer["topic"], answer["partition"]


def _ends(
    catalog: Catalog, snapshot: Snapshot, answers: Sequence[Answer]
) -> dict[ReplicaKey, search_answers.Answer]:
    """Return the log ends of partitions without an answer, from the catalog alone."""
    asked = [
        TimeQuestion(answer["topic"], answer["partition"], LATEST, answer["log_dir"])
        for answer in answers
        if answer["offset"] is None and answer["result"] != SearchResult.NO_SUCH_PARTITION
    ]
    rows = rows_of(catalog, snapshot, {question.topic for question in asked})
    found = search_rows(rows, asked, SearchOptions())
    return {(one.located.log_dir, one.topic, one.partition): one.located.answer for one in found}


def _ranges(
    catalog: Catalog,
    snapshot: Snapshot,
    rows: "pa.Table",
    answers: Sequence[Answer],
    ends: Mapping[ReplicaKey, search_answers.Answer],
    options: SearchRequest,
    engine: EngineName,
    until_text: str,
) -> list[Answer]:
    """Return the answers with the offset at --until, and the records and bytes in between."""
    now_ms = current_ms() if options.now is None else options.now
    try:
        until_ms = parse_target(until_text, now_ms)
    except ValueError as error:
        raise click.BadParameter(f"--until: {error}") from error
    there = [answer for answer in answers if answer["result"] != SearchResult.NO_SUCH_PARTITION]
    asked = [TimeQuestion(a["topic"], a["partition"], until_ms, a["log_dir"]) for a in there]
    untils = answers_to(
        catalog,
        snapshot,
        rows,
        asked,
        SearchOptions(max_batch_bytes=options.max_batch_bytes),
        options,
        engine,
    )
    until_ends = _ends(catalog, snapshot, untils)
    by_replica = partition_rows(catalog, snapshot, {answer["topic"] for answer in there})
    for answer, until in zip(there, untils, strict=True):
        key = _key(answer)
        start = ends[key].offset if answer["offset"] is None else answer["offset"]
        end = until_ends[key].offset if until["offset"] is None else until["offset"]
        answer["passed_over"] |= until["passed_over"]
        size = (
            None
            if start is None or end is None
            else range_size(by_replica.get(key, ()), start, end)
        )
        answer |= {"until_ms": until_ms, "until_offset": end}
        answer |= {
            "records": size.records if size and not answer["passed_over"] else None,
            "size_bytes": size.size_bytes if size else None,
        }
        answer["bytes_read"] += until["bytes_read"] + (size.bytes_read if size else 0)
        notes = (answer["note"], until["note"], size.note if size else None)
        answer["note"] = "; ".join(dict.fromkeys(filter(None, notes))) or None
    return [dict.fromkeys(RANGE) | answer for answer in answers]


def _log_start_offsets(
    catalog: Catalog,
    snapshot: Snapshot,
    questions: Sequence[TimeQuestion],
    options: SearchRequest,
) -> LogStartOffsets | None:
    """Return the log start offsets of brokers, which do not search records before them."""
    if options.as_whom is None:
        if options.log_start_offsets:
            raise click.UsageError(
                "--log-start-offsets requires --as kafka", click.get_current_context()
            )
        return None
    rows = rows_of(catalog, snapshot, {question.topic for question in questions})
    log_dirs = [log_dir for log_dir in rows["log_dir"].unique().to_pylist() if log_dir is not None]
    source = Location.of(snapshot.source)
    return log_start_offsets(source, log_dirs, options.log_start_offsets)


def _offsets(
    answers: Sequence[Answer],
    ends: Mapping[ReplicaKey, search_answers.Answer],
    emit: str,
    *,
    allow_unsafe: bool,
) -> Iterator[Offset]:
    """Yield one offset per partition; without a record the log's end, as Kafka's own tool does.

    A partition with an unsafe answer is left out and named, unless it is allowed.
    """
    seen = set()
    for answer in answers:
        key = answer["topic"], answer["partition"]
        if key in seen:
            raise click.UsageError(
                f"--emit prints one offset per partition, but {key[0]}-{key[1]} has "
                "several answers: give one --time, and no --all-replicas",
                click.get_current_context(),
            )
        seen.add(key)
        end = ends.get(_key(answer)) if answer["offset"] is None else None
        offset = end.offset if end else answer["offset"]
        unsafe = _unsafe(answer, end, emit)
        if offset is None:
            warn(f"{key[0]}-{key[1]}: {unsafe or answer['result']}; the output leaves it out")
            continue
        if unsafe and not allow_unsafe:
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


def _unsafe(answer: Answer, end: search_answers.Answer | None, emit: str) -> str | None:
    """Return why an offset could skip or delete wrong records, None if it cannot."""
    exactness = {answer["exactness"], end.exactness if end else Exactness.RECORD}
    if answer["passed_over"] or Exactness.UNSURE in exactness:
        notes = dict.fromkeys(filter(None, (answer["note"], end.note if end else None)))
        return f"unsure, {'; '.join(notes)}"
    if answer["result"] == SearchResult.NO_TIMESTAMPS and answer["target_ms"] != EARLIEST:
        return "no record has a timestamp, so the end of the partition would be used"
    if emit == DELETE_RECORDS and exactness != {Exactness.RECORD}:
        return f"exactness {answer['exactness']} found, expected {Exactness.RECORD}"
    return None
