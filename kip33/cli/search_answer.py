"""The answer of `kip33 search`: from the options to the questions, the engine and the output.

A few questions are answered by threads of this process, many by worker processes or Spark. --until
adds the records and bytes of a range.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from kip33.archive.bins import EngineName
from kip33.archive.log_start_offsets import LogStartOffsets, log_start_offsets
from kip33.archive.log_window import Meter
from kip33.catalog.catalog import Snapshot
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.cli.catalog_places import CatalogPlaces
from kip33.cli.engine_option import (
    EngineChoice,
    engine_choice,
    open_engine,
    open_session,
    show_engine,
)
from kip33.cli.output import (
    Column,
    Output,
    Row,
    RowList,
    Table,
    counted,
    human_bytes,
    iso_time,
    partition_name,
    show,
)
from kip33.cli.progress import progress_line
from kip33.cli.search_emit import (
    DELETE_RECORDS,
    AnswerRow,
    NewerRecordCount,
    offset_lines,
    offsets_to_emit,
    replica_key,
)
from kip33.cli.times import current_ms, parse_target
from kip33.errors import CatalogError, LocationError
from kip33.formats.names import is_topic
from kip33.rules.policies import TopicGlobs, nearest_topics
from kip33.rules.search import (
    LATEST,
    TARGETS,
    SearchResult,
    require_tiers,
)
from kip33.search import answers as search_answers
from kip33.search.answers import SearchOptions, load_time_requests
from kip33.search.catalog_search import (
    partition_rows,
    rows_of,
    search_on_engine,
    search_rows,
)
from kip33.search.offset_lookup import first_without_timestamp
from kip33.search.range_size import RangeSize, range_size
from kip33.search.replica_search import ReplicaKey, TimeQuestion, replicas_of
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress, tell_nobody

if TYPE_CHECKING:
    import pyarrow as pa

    from kip33.cli.search import SearchCommand

ANSWER_COLUMNS: Final = (
    *("log_dir", "topic", "partition", "target_ms", "offset", "timestamp"),
    *("result", "exactness", "bytes_read", "note", "passed_over"),
)
_TARGET: Final = "target"  # in JSON and CSV: `earliest` and so on, null for a time
_RANGE: Final = ("until_ms", "until_offset", "records", "size_bytes")

_NAMES: Final = {target: name for name, target in TARGETS.items()}
_MOST_BY_THREADS: Final = 500  # questions; more are worth a Spark job


def search_catalog(command: "SearchCommand") -> None:
    """Print the answer to the options on standard output."""
    started = time.monotonic()
    source, warnings = _source_of(command)
    choice = engine_choice(command.engine._replace(verbose=False))
    questions = _questions_of(source, command)
    rows = rows_of(source, {question.topic for question in questions})
    starts = _log_start_offsets(source.local.snapshot, rows, command)
    choice = _engine_for(rows, questions, command, choice)
    if command.engine.verbose:
        show_engine(choice)
    search = _SearchedRows(source, rows, command, choice.name)
    how, version = command.how, command.broker_version
    if version is not None:
        how = how._replace(as_kafka=True, kafka_version=version)
    try:
        how.require_valid()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    with progress_line("search") as on_progress:
        answers = search.answers(questions, how, starts, on_progress)
        ends: dict[ReplicaKey, search_answers.Answer] = {}
        if command.emit or command.until:
            ends = search.log_ends(answers)
        if command.until:
            answers = search.ranges(answers, ends, command.until)
    newer, emitted = None, None
    if command.emit:
        if command.emit == DELETE_RECORDS:
            topics = {answer["topic"] for answer in answers}
            by_replica = partition_rows(source, topics)
            newer = NewerRecordCount(by_replica, how.max_batch_bytes)
        offsets = offsets_to_emit(answers, ends, command, newer, search.untimed)
        emitted = offset_lines(offsets, command.emit)
    summary = {
        "answers": len(answers),
        "bytes_read": sum(answer["bytes_read"] for answer in answers),
        "seconds": round(time.monotonic() - started, 3),
        "warnings": list(warnings),
        "engine": choice.name,
        "workers": search.workers(answers),
    }
    of_range = _RANGE if answers and _RANGE[0] in answers[0] else ()
    columns = [*ANSWER_COLUMNS, *of_range, _TARGET]
    printed = Output(
        page=_page(answers, summary, source.local.snapshot.source),
        rows=[RowList("answers", map(_printed, answers), columns=columns)],
        summary=summary,
        summary_key="summary",
        csv=emitted,
    )
    show(printed, "csv" if command.emit else command.output_format)
    if newer and newer.partitions:
        click.echo(newer.summary(), err=True)


def _source_of(command: "SearchCommand") -> tuple[CatalogSnapshot | Tiers, tuple[str, ...]]:
    """Return the snapshot of one catalog, or of both tiers, and the warnings about them."""
    places = CatalogPlaces(command.catalog_dir, command.remote_dir, command.snapshot)
    places.check()
    return places.chosen()


def _printed(answer: AnswerRow) -> AnswerRow:
    """Return an answer for programs: a target that is no time has a name in place of a number."""
    no_times = [name for name in ("target_ms", "until_ms") if answer.get(name) in _NAMES]
    return answer | dict.fromkeys(no_times) | {_TARGET: _NAMES.get(answer["target_ms"])}


def _page(answers: Sequence[Row], summary: Row, source: str) -> Iterator[Table | str]:
    """Yield a table, whose notes omit `source`, the archive's URI, and the sums."""
    columns = (
        Column("partition", partition_name, is_name=True),
        Column("time", "target_ms", _time_text, rank=0),
        Column("offset", "offset", rank=0),
        Column("record's time", "timestamp", iso_time, rank=2),
        Column("result", "result"),
        Column("exactness", _exactness, rank=3),
        *(_RANGE_COLUMNS if answers and _RANGE[0] in answers[0] else ()),
        Column("note", lambda row: (row["note"] or "").replace(f"{source}/", ""), is_remark=True),
    )
    yield Table(columns, answers, what="answers")
    found = sum(answer["offset"] is not None for answer in answers)
    read = f"{human_bytes(summary['bytes_read'])} read in {summary['seconds']:.1f} s"
    yield f"{counted(len(answers), 'answer')}, {found:,} found; {read}"


def _time_text(target_ms: int) -> str:
    return _NAMES.get(target_ms) or iso_time(target_ms)


def _exactness(row: Row) -> str:
    return "" if row["offset"] is None else str(row["exactness"])


_RANGE_COLUMNS: Final = (
    Column("until", "until_ms", iso_time, rank=0),
    Column("record's offset", "until_offset", none="", rank=3),
    Column("records", "records", none=""),
    Column("log", "size_bytes", human_bytes, none="", rank=2),
)


def _log_start_offsets(
    snapshot: Snapshot, rows: "pa.Table", command: "SearchCommand"
) -> LogStartOffsets | None:
    """Return the log start offsets of brokers, which do not search records before them."""
    file = command.log_start_offsets
    if command.broker_version is None:
        if file:
            raise click.UsageError("--log-start-offsets requires --as kafka")
        return None
    log_dirs = [log_dir for log_dir in rows["log_dir"].unique().to_pylist() if log_dir is not None]
    return log_start_offsets(Location.of(snapshot.source), log_dirs, file)


def _engine_for(
    rows: "pa.Table",
    questions: Sequence[TimeQuestion],
    command: "SearchCommand",
    choice: EngineChoice,
) -> EngineChoice:
    """Return the engine of these questions: a few need no Spark, unless it is asked for."""
    if choice.name == EngineName.LOCAL or command.engine.master or choice.is_asked_for:
        return choice
    of_topics = rows.group_by(["topic", "partition"]).aggregate([])["topic"].to_pylist()
    partitions = Counter(of_topics)
    most = sum(1 if q.partition is not None else partitions[q.topic] for q in questions)
    if most > _MOST_BY_THREADS:
        return choice
    why = f"up to {_MOST_BY_THREADS} searches need no Spark, and this has {most}"
    return EngineChoice(EngineName.LOCAL, why, False)


class _SearchedRows(NamedTuple):
    """What is searched; `rows` are those of the topics that are asked for."""

    source: CatalogSnapshot | Tiers
    rows: "pa.Table"
    command: "SearchCommand"
    engine: EngineName

    def workers(self, answers: Sequence[AnswerRow]) -> int:
        """Return how many processes searched: of this machine at most one for each partition."""
        if self.engine == EngineName.LOCAL:
            partitions = {(answer["topic"], answer["partition"]) for answer in answers}
            return max(1, min(self.command.engine.workers or 1, len(partitions)))
        from kip33.spark.jobs import cores

        return cores(open_session(self.command.engine))

    def answers(
        self,
        questions: Sequence[TimeQuestion],
        how: SearchOptions,
        starts: LogStartOffsets | None = None,
        on_progress: OnProgress = tell_nobody,
    ) -> list[AnswerRow]:
        """Return the answers in the order of the questions, then by partition and replica.

        Threads of this process find them, or an engine's tasks: on Spark, and if --workers asks for
        processes. Starting workers takes as long as thousands of small searches.
        """
        workers = self.command.engine.workers
        if self.engine == EngineName.LOCAL and (workers is None or workers == 1):
            found = search_rows(self.rows, questions, how, starts, on_progress)
        else:
            engine = open_engine(self.command.engine._replace(verbose=False), on_progress)
            found = search_on_engine(engine, self.source, self.rows, questions, how, starts)
        places = ((one.located.log_dir, one.topic, one.partition) for one in found)
        return [
            dict(zip(ANSWER_COLUMNS, (*place, *one.located.answer), strict=True))
            for place, one in zip(places, found, strict=True)
        ]

    def log_ends(self, answers: Sequence[AnswerRow]) -> dict[ReplicaKey, search_answers.Answer]:
        """Return the log ends of partitions without an answer, from the catalog alone."""
        questions = [
            TimeQuestion(answer["topic"], answer["partition"], LATEST, answer["log_dir"])
            for answer in answers
            if answer["offset"] is None and answer["result"] != SearchResult.NO_SUCH_PARTITION
        ]
        ends = search_rows(self.rows, questions, SearchOptions())
        return {(end.located.log_dir, end.topic, end.partition): end.located.answer for end in ends}

    def untimed(self, answer: AnswerRow) -> str | None:
        """Return why an offset may skip records without timestamps, None if it does not.

        It is the answer's, or without a record the end of the partition.
        """
        import pyarrow.compute as pc

        names = ("log_dir", "topic", "partition")
        is_asked = [pc.equal(self.rows[name], answer[name]) for name in names]
        of_one = self.rows.filter(reduce(pc.and_, is_asked)).to_pylist()
        segments = replicas_of(of_one)[answer["log_dir"]]
        found = first_without_timestamp(segments, answer["offset"], Meter())
        if found.offset is None:
            return found.note
        what = "the end of the partition" if answer["offset"] is None else answer["offset"]
        return (
            f"the record at offset {found.offset} has no timestamp, so {what} could be behind "
            "records at or after the time"
        )

    def ranges(
        self,
        answers: Sequence[AnswerRow],
        ends: Mapping[ReplicaKey, search_answers.Answer],
        until: str,
    ) -> list[AnswerRow]:
        """Return the answers with the offset at --until, and the records and bytes in between."""
        now_ms = current_ms() if self.command.now is None else self.command.now
        try:
            until_ms = parse_target(until, now_ms)
        except ValueError as error:
            raise click.BadParameter(f"--until: {error}") from error
        there = [answer for answer in answers if answer["result"] != SearchResult.NO_SUCH_PARTITION]
        questions = [
            TimeQuestion(a["topic"], a["partition"], until_ms, a["log_dir"]) for a in there
        ]
        most = self.command.how.max_batch_bytes
        untils = self.answers(questions, SearchOptions(max_batch_bytes=most))
        until_ends = self.log_ends(untils)
        by_replica = partition_rows(self.source, {a["topic"] for a in there})
        for answer, at_until in zip(there, untils, strict=True):
            key = replica_key(answer)
            start = ends[key].offset if answer["offset"] is None else answer["offset"]
            end = until_ends[key].offset if at_until["offset"] is None else at_until["offset"]
            size = None
            if start is not None and end is not None:
                size = range_size(by_replica.get(key, ()), start, end)
            _add_range(answer, at_until, end, size)
        return [dict.fromkeys(_RANGE) | answer for answer in answers]


def _add_range(
    answer: AnswerRow, until: AnswerRow, end: int | None, size: RangeSize | None
) -> None:
    """Add what is between an answer and the one at --until."""
    answer["passed_over"] |= until["passed_over"]
    answer |= {
        "until_ms": until["target_ms"],
        "until_offset": end,
        "records": size.records if size and not answer["passed_over"] else None,
        "size_bytes": size.size_bytes if size else None,
    }
    answer["bytes_read"] += until["bytes_read"] + (size.bytes_read if size else 0)
    notes = (answer["note"], until["note"], size.note if size else None)
    answer["note"] = search_answers.joined_notes(*notes)


def _questions_of(source: CatalogSnapshot | Tiers, options: "SearchCommand") -> list[TimeQuestion]:
    """Return the questions of --requests or --time; UsageError or LocationError, one line."""
    questions = _asked(source, options)
    if not isinstance(source, Tiers):
        try:
            require_tiers(question.target_ms for question in questions)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    return questions


def _asked(source: CatalogSnapshot | Tiers, options: "SearchCommand") -> list[TimeQuestion]:
    now_ms = current_ms() if options.now is None else options.now
    if bool(options.requests) == bool(options.times):
        raise click.UsageError("give --time T or --requests FILE")
    if options.until and (options.requests or options.emit or options.how.index_only):
        raise click.UsageError(
            "--until requires --time and cannot be combined with --requests, --emit or --index-only"
        )
    if options.requests:
        return _of_file(options.requests, now_ms)
    try:
        targets = [parse_target(text, now_ms) for text in options.times]
    except ValueError as error:
        raise click.BadParameter(f"--time: {error}") from error
    topics = _matching(source.topics(), options.topics)
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
    """Return the topics that match; CatalogError if a topic that is named is not there."""
    if not globs:
        return list(topics)
    patterns = TopicGlobs.of(globs)
    matching = [topic for topic in topics if patterns.matches(topic)]
    named = [
        glob for glob in patterns.included if not set(glob) & set("*?[") and patterns.matches(glob)
    ]
    named = [glob for glob in named if glob not in matching]
    illegal = next((name for name in named if not is_topic(name)), None)
    if illegal is not None:
        raise CatalogError(
            f"--topic {illegal!r}: Kafka allows no such name; give a topic or a glob"
        )
    if named or not matching:
        wanted = named or globs
        near = nearest_topics(wanted, topics)
        raise CatalogError(f"no topic matches {' or '.join(wanted)}{near}")
    return matching
