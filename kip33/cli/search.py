"""`kip33 search`: offsets for times, one or thousands.

A few questions are answered by threads of this process, many by worker processes or Spark.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, TypedDict

import click

from kip33.archive.bins import EngineName
from kip33.archive.common_options import TopicGlobList
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.cli.catalog_places import CatalogPlaces, snapshot_option
from kip33.cli.declared_options import options_of
from kip33.cli.engine_option import (
    EngineChoice,
    EngineOptions,
    engine_choice,
    open_engine,
    open_session,
    show_engine,
)
from kip33.cli.option_groups import GroupedCommand
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
    warn,
)
from kip33.cli.runs import CommandRun, runs
from kip33.cli.times import moment_or_now, parse_target
from kip33.errors import CatalogError, LocationError
from kip33.formats.batch import MAX_INT32
from kip33.formats.names import is_topic
from kip33.formats.times import Time
from kip33.options import Option
from kip33.rules.policies import TopicGlobs, nearest_topics
from kip33.rules.search import TARGETS
from kip33.search.answers import load_time_requests
from kip33.search.catalog_search import search_on_engine, search_rows
from kip33.search.emitted_offsets import EmitOptions, emitted_offsets
from kip33.search.replica_search import TimeQuestion
from kip33.search.time_search import (
    ANSWERS,
    RANGE,
    REPLICA,
    AnswerRow,
    RangeOptions,
    SearchQuestion,
    TimeSearch,
)

if TYPE_CHECKING:
    import pyarrow as pa

_TARGET: Final = "target"  # in JSON and CSV: `earliest` and so on, null for a time
_NAMES: Final = {target: name for name, target in TARGETS.items()}
_MOST_BY_THREADS: Final = 500  # questions; more are worth a Spark job


class TimesToSearch(TypedDict):
    """The times of a search, and the partitions; in Python they are tuples."""

    times: Annotated[
        Sequence[str],
        Option(
            "Time to search: ISO 8601, milliseconds, -3h (before now), earliest, latest or "
            "max-timestamp; of two tiers also earliest-local and latest-tiered. May be repeated.",
            default=(),
            flag="--time",
            metavar="T",
        ),
    ]
    requests: Annotated[
        str | None,
        Option(
            "File of searches, CSV with a header or Parquet: topic,partition,time[,log_dir]. "
            "An empty partition means all partitions.",
            metavar="FILE",
        ),
    ]
    topics: TopicGlobList
    partition: Annotated[
        int | None, Option("Only this partition.", metavar="N", least=0, most=MAX_INT32)
    ]
    now: Annotated[
        Time | None, Option("Time to which -3h is relative [default: the clock].", metavar="T")
    ]


class SearchRequest(TimesToSearch, RangeOptions, EmitOptions, SearchQuestion):
    """What `kip33 search` is asked of its catalogs."""


@click.command(
    cls=GroupedCommand,
    epilog="Example: kip33 search /archive/indexes/_catalog --time 2024-05-01T12:00Z --topic orders"
    " (of two tiers: kip33 search local/_catalog remote/_catalog --time earliest-local)",
)
@click.argument("catalog_dir", metavar="CATALOG")
@click.argument("remote_dir", metavar="[REMOTE]", required=False)
@options_of(TimesToSearch)
@snapshot_option
@options_of(RangeOptions, until=click.STRING)
@options_of(EmitOptions)
@options_of(SearchQuestion)
@runs(work="session", summary=False)
def search(places: CatalogPlaces, asked: SearchRequest, run: CommandRun) -> Output:
    """Find the first record at or after a time in each partition of CATALOG, exact to the record.

    If there is no such record, the result says why: after_end, no_timestamps or
    no_such_partition. before_start means that the time is before the partition's first record. An
    answer is unsure if records that cannot be read could change it. On Spark, up to 500
    searches run without a session, unless --engine or --master asks for one.

    With tiered storage, give the catalog of the log directories and that of the remote tier, in
    any order: each partition is searched in both, and a record that both have is found once.
    """
    source, warnings = places.chosen()
    now_ms = moment_or_now(asked["now"])
    questions = _questions(source, asked, now_ms)
    found = TimeSearch(source, {question.topic for question in questions}, asked)
    is_local = _find_on_engine(found, questions, run)
    answers = found.answers(questions)
    if asked["until"] is not None:
        answers = found.ranges(answers, _target(str(asked["until"]), now_ms, "--until"))
    if is_local:
        partitions = {(answer["topic"], answer["partition"]) for answer in answers}
        run.ran_on("local", max(1, min(run.engine_options.workers or 1, len(partitions))))
    emitted = emitted_offsets(found, answers, asked) if asked["emit"] else None
    if emitted:
        warn(*emitted.warnings)
        if emitted.counted_newer:
            click.echo(emitted.counted_newer, err=True)
    of_range = RANGE.names if asked["until"] is not None else []
    return Output(
        page=partial(_page, answers, bool(of_range), source.local.snapshot.source),
        rows=[
            RowList("answers", map(_printed, answers), columns=[*ANSWERS.names, *of_range, _TARGET])
        ],
        summary={
            "answers": len(answers),
            "bytes_read": sum(answer["bytes_read"] for answer in answers),
            "warnings": list(warnings),
        },
        summary_key="summary",
        emitted=emitted.lines if emitted else None,
    )


def _find_on_engine(search: TimeSearch, questions: Sequence[TimeQuestion], run: CommandRun) -> bool:
    """Choose what searches; return whether it is this machine.

    Threads of this process do, or an engine's tasks: on Spark, and if --workers asks for
    processes. Starting workers takes as long as thousands of small searches.
    """
    options = run.engine_options
    choice = _choice(search.rows, questions, options)
    if options.verbose:
        show_engine(choice)
    is_local = choice.name == EngineName.LOCAL
    if is_local and (options.workers is None or options.workers == 1):
        search.find = partial(search_rows, on_progress=run.on_progress)
    else:
        engine = open_engine(options._replace(verbose=False), run.on_progress)
        search.find = partial(search_on_engine, engine, search.source)
    if not is_local:
        from kip33.spark.jobs import cores

        run.ran_on("spark", cores(open_session(options)))
    return is_local


def _choice(
    rows: "pa.Table", questions: Sequence[TimeQuestion], options: EngineOptions
) -> EngineChoice:
    """Return the engine of these questions: a few need no Spark, unless it is asked for."""
    choice = engine_choice(options._replace(verbose=False))
    if choice.name == EngineName.LOCAL or options.master or choice.is_asked_for:
        return choice
    of_topics = rows.group_by(["topic", "partition"]).aggregate([])["topic"].to_pylist()
    partitions = Counter(of_topics)
    most = sum(1 if q.partition is not None else partitions[q.topic] for q in questions)
    if most > _MOST_BY_THREADS:
        return choice
    why = f"up to {_MOST_BY_THREADS} searches need no Spark, and this has {most}"
    return EngineChoice(EngineName.LOCAL, why, False)


def _questions(
    source: CatalogSnapshot | Tiers, asked: SearchRequest, now_ms: int
) -> list[TimeQuestion]:
    """Return the questions of --requests or --time; UsageError or LocationError, one line."""
    if bool(asked["requests"]) == bool(asked["times"]):
        raise click.UsageError("give --time T or --requests FILE")
    if asked["until"] and (asked["requests"] or asked["emit"] or asked["index_only"]):
        raise click.UsageError(
            "--until requires --time and cannot be combined with --requests, --emit or --index-only"
        )
    if asked["requests"]:
        return [*_of_file(asked["requests"], now_ms)]
    targets = [_target(text, now_ms, "--time") for text in asked["times"]]
    topics = _matching(source.topics(), asked["topics"])
    return [TimeQuestion(topic, asked["partition"], ms) for topic in topics for ms in targets]


def _target(text: str, now_ms: int, option: str) -> int:
    try:
        return parse_target(text, now_ms)
    except ValueError as error:
        raise click.BadParameter(f"{option}: {error}") from error


def _of_file(file: str, now_ms: int) -> Iterator[TimeQuestion]:
    for request in load_time_requests(file):
        try:
            target_ms = parse_target(request.time, now_ms)
        except ValueError as error:
            raise LocationError(f"{file}: line {request.line}: {error}") from error
        yield TimeQuestion(request.topic, request.partition, target_ms, request.log_dir)


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


def _printed(answer: AnswerRow) -> AnswerRow:
    """Return an answer for programs: a target that is no time has a name in place of a number."""
    no_times = [name for name in ("target_ms", "until_ms") if answer.get(name) in _NAMES]
    shown = {name: value for name, value in answer.items() if name != REPLICA}
    return shown | dict.fromkeys(no_times) | {_TARGET: _NAMES.get(answer["target_ms"])}


def _page(
    answers: Sequence[Row], has_range: bool, source: str, summary: Row
) -> Iterator[Table | str]:
    """Yield a table, whose notes omit `source`, the archive's URI, and the sums."""
    columns = (
        Column("partition", partition_name, is_name=True),
        Column("time", "target_ms", lambda ms: _NAMES.get(ms) or iso_time(ms), rank=0),
        Column("offset", "offset", rank=0),
        Column("record's time", "timestamp", iso_time, rank=2),
        Column("result", "result"),
        Column("exactness", lambda row: "" if row["offset"] is None else row["exactness"], rank=3),
        *(_RANGE_COLUMNS if has_range else ()),
        Column("note", lambda row: (row["note"] or "").replace(f"{source}/", ""), is_remark=True),
    )
    yield Table(columns, answers, what="answers")
    found = sum(answer["offset"] is not None for answer in answers)
    read = f"{human_bytes(summary['bytes_read'])} read in {summary['seconds']:.1f} s"
    yield f"{counted(len(answers), 'answer')}, {found:,} found; {read}"


_RANGE_COLUMNS: Final = (
    Column("until", "until_ms", iso_time, rank=0),
    Column("record's offset", "until_offset", none="", rank=3),
    Column("records", "records", none=""),
    Column("log", "size_bytes", human_bytes, none="", rank=2),
)
