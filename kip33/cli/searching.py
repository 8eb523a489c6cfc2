"""Answering `kip33 search`: which questions, by threads or by Spark, and how answers look."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from kip33.cli.moments import current_ms
from kip33.cli.offset_lines import Offset, offset_text
from kip33.cli.output import warn
from kip33.cli.progress import progress_bar
from kip33.cli.search_tables import COLUMNS, RANGE, Answer, print_answers
from kip33.cli.snapshot_choice import choose_and_warn
from kip33.cli.targets import parse_target
from kip33.errors import CatalogError, LocationError
from kip33.rules.search import LATEST, NO_SUCH_PARTITION
from kip33.rules.topic_globs import TopicGlobs
from kip33.storage.catalog import Catalog
from kip33.storage.catalog_search import (
    Question,
    Replica,
    partition_rows,
    rows_of,
    search_rows,
    topics_of,
)
from kip33.storage.files import require_directory
from kip33.storage.offset_files import load_time_requests
from kip33.storage.partition_answers import How
from kip33.storage.range_size import range_size
from kip33.storage.snapshots import Snapshot

MOST_BY_THREADS: Final = 500  # questions; more are worth a Spark job


def search(options: Mapping[str, Any]) -> None:
    """Answer on standard output what the options ask."""
    started = time.monotonic()
    catalog = Catalog.at(options["catalog_dir"])
    require_directory(catalog.location, "CATALOG")
    choice = choose_and_warn(catalog, options["snapshot"])
    snapshot = choice.snapshot
    how = How(
        options["as_whom"] == "kafka",
        options["index_only"],
        options["all_replicas"],
        options["max_batch_bytes"],
    )
    questions = questions_of(catalog, snapshot, options)
    with progress_bar("search"):
        answers = answers_to(catalog, snapshot, questions, how, options)
        ends: dict[Replica, int | None] = {}
        if options["emit"] or options["until"]:
            ends = _ends(catalog, snapshot, answers)
        if options["until"]:
            answers = _ranges(catalog, snapshot, answers, ends, options)
    if options["emit"]:
        click.echo(offset_text(_offsets(answers, ends), options["emit"]), nl=False)
    else:
        print_answers(
            answers,
            options["output_format"],
            source=snapshot.source,
            seconds=time.monotonic() - started,
            warnings=choice.warnings,
        )


def questions_of(
    catalog: Catalog, snapshot: Snapshot, options: Mapping[str, Any]
) -> list[Question]:
    """Return what --requests or --time ask; UsageError or LocationError, one line, if nothing."""
    now_ms = current_ms() if options["now"] is None else options["now"]
    if bool(options["requests"]) == bool(options["times"]):
        raise click.UsageError("give --time T or --requests FILE", click.get_current_context())
    if options["until"] and (options["requests"] or options["emit"] or options["index_only"]):
        raise click.UsageError(
            "--until goes with --time alone, not with --requests, --emit or --index-only",
            click.get_current_context(),
        )
    if options["requests"]:
        return _of_file(options["requests"], now_ms)
    try:
        targets = [parse_target(text, now_ms) for text in options["times"]]
    except ValueError as error:
        raise click.BadParameter(f"--time: {error}") from error
    topics = _matching(topics_of(catalog, snapshot), options["topics"])
    partition = options["partition"]
    return [Question(topic, partition, target) for topic in topics for target in targets]


def _of_file(file: str, now_ms: int) -> list[Question]:
    questions = []
    for request in load_time_requests(file):
        try:
            target_ms = parse_target(request.time, now_ms)
        except ValueError as error:
            raise LocationError(f"{file}: line {request.line}: {error}") from error
        questions.append(Question(request.topic, request.partition, target_ms, request.log_dir))
    return questions


def _matching(topics: Sequence[str], globs: Sequence[str]) -> list[str]:
    """Return the topics that match; one that is named and not there is asked for all the same."""
    if not globs:
        return list(topics)
    asked = TopicGlobs.of(globs)
    found = [topic for topic in topics if asked.matches(topic)]
    named = [glob for glob in asked.included if not set(glob) & set("*?[") and asked.matches(glob)]
    named = [glob for glob in named if glob not in found]
    if not found and not named:
        raise CatalogError(
            f"no topic matches {' or '.join(globs)}; there are {', '.join(topics[:10])}"
            + (", ..." if len(topics) > 10 else "")
        )
    return [*found, *dict.fromkeys(named)]


def answers_to(
    catalog: Catalog,
    snapshot: Snapshot,
    questions: Sequence[Question],
    how: How,
    options: Mapping[str, Any],
) -> list[Answer]:
    """Return the answers in the order of the questions, then by partition and replica."""
    topics = {question.topic for question in questions}
    rows = rows_of(catalog, snapshot, topics)
    of_topics = rows.group_by(["topic", "partition"]).aggregate([])["topic"].to_pylist()
    partitions = Counter(of_topics)
    most = sum(1 if q.partition is not None else partitions[q.topic] for q in questions)
    if most > MOST_BY_THREADS or options["master"]:
        return _by_spark(catalog, snapshot, questions, how, options)
    return [
        dict(
            zip(
                COLUMNS,
                (found.located.log_dir, found.topic, found.partition, *found.located.answer),
                strict=True,
            )
        )
        for found in search_rows(rows, questions, how)
    ]


def _by_spark(
    catalog: Catalog,
    snapshot: Snapshot,
    questions: Sequence[Question],
    how: How,
    options: Mapping[str, Any],
) -> list[Answer]:
    from kip33.spark import session
    from kip33.spark.catalog import load_catalog
    from kip33.spark.search import offsets_for_times

    spark = session.create_session(master=options["master"], conf=options["conf"])
    schema = "topic string, partition int, target_ms bigint, log_dir string, request int"
    requests = spark.createDataFrame(
        [(*question, number) for number, question in enumerate(questions)], schema
    )
    answered = offsets_for_times(
        load_catalog(spark, catalog.location.uri, snapshot.name), requests, **how._asdict()
    )
    rows = answered.orderBy("request", "partition", "log_dir").select(*COLUMNS).collect()
    return [row.asDict() for row in rows]


def _key(answer: Answer) -> Replica:
    return answer["log_dir"], answer["topic"], answer["partition"]


def _ends(
    catalog: Catalog, snapshot: Snapshot, answers: Sequence[Answer]
) -> dict[Replica, int | None]:
    """Return the log end offset of partitions without an answer, from the catalog alone."""
    asked = [
        Question(answer["topic"], answer["partition"], LATEST, answer["log_dir"])
        for answer in answers
        if answer["offset"] is None and answer["result"] != NO_SUCH_PARTITION
    ]
    rows = rows_of(catalog, snapshot, {question.topic for question in asked})
    found = search_rows(rows, asked, How())
    return {
        (one.located.log_dir, one.topic, one.partition): one.located.answer.offset for one in found
    }


def _ranges(
    catalog: Catalog,
    snapshot: Snapshot,
    answers: Sequence[Answer],
    ends: Mapping[Replica, int | None],
    options: Mapping[str, Any],
) -> list[Answer]:
    """Return the answers with the offset at --until, and what lies between."""
    now_ms = current_ms() if options["now"] is None else options["now"]
    try:
        until_ms = parse_target(options["until"], now_ms)
    except ValueError as error:
        raise click.BadParameter(f"--until: {error}") from error
    there = [answer for answer in answers if answer["result"] != NO_SUCH_PARTITION]
    asked = [Question(a["topic"], a["partition"], until_ms, a["log_dir"]) for a in there]
    untils = answers_to(
        catalog, snapshot, asked, How(max_batch_bytes=options["max_batch_bytes"]), options
    )
    until_ends = _ends(catalog, snapshot, untils)
    rows = partition_rows(catalog, snapshot, {answer["topic"] for answer in there})
    for answer, until in zip(there, untils, strict=True):
        key = _key(answer)
        start = ends.get(key) if answer["offset"] is None else answer["offset"]
        end = until_ends.get(key) if until["offset"] is None else until["offset"]
        size = None if start is None or end is None else range_size(rows.get(key, ()), start, end)
        answer |= {"until_ms": until_ms, "until_offset": end}
        answer |= {
            "records": size.records if size else None,
            "size_bytes": size.size_bytes if size else None,
        }
        answer["bytes_read"] += until["bytes_read"] + (size.bytes_read if size else 0)
        notes = (answer["note"], until["note"], size.note if size else None)
        answer["note"] = "; ".join(dict.fromkeys(filter(None, notes))) or None
    return [dict.fromkeys(RANGE) | answer for answer in answers]


def _offsets(answers: Sequence[Answer], ends: Mapping[Replica, int | None]) -> Iterator[Offset]:
    """Yield one offset a partition; without a record the log's end, as Kafka's own tool does."""
    seen = set()
    for answer in answers:
        key = answer["topic"], answer["partition"]
        if key in seen:
            raise click.UsageError(
                f"--emit takes one offset a partition, {key[0]}-{key[1]} has several answers: "
                "give one --time, without --all-replicas",
                click.get_current_context(),
            )
        seen.add(key)
        found = answer["offset"] is not None
        offset = answer["offset"] if found else ends.get(_key(answer))
        if offset is None:
            warn(f"{key[0]}-{key[1]}: {answer['result']}; it is left out")
        else:
            if not found:
                warn(f"{key[0]}-{key[1]}: {answer['result']}; its end is taken, offset {offset}")
            yield Offset(*key, offset, is_end=not found)
