"""`kip33 verify`: index files compared with their logs, or with CRCs of a catalog (--quick)."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, Final, TypeAlias, cast

import click

from kip33.archive.bins import EngineName
from kip33.archive.segment_paths import index_path
from kip33.builds.build_options import load_topic_settings
from kip33.builds.verify_options import VerifyOptions, VerifyRequest, plan_request
from kip33.catalog.catalog import catalog_at
from kip33.catalog.topic_totals import topics_of
from kip33.cli.declared_options import options_of
from kip33.cli.engine_option import (
    EngineOptions,
    engine_choice,
    is_typed,
    open_engine,
)
from kip33.cli.metrics_file import MetricsRequest, metrics_options, publish_metrics
from kip33.cli.options import (
    engine_options,
    format_option,
    makes_request,
    publish_summary,
    spark_options,
    summary_option,
)
from kip33.cli.output import (
    Column,
    Output,
    Row,
    RowList,
    Table,
    choose_and_warn,
    counted,
    human_bytes,
    show,
    warn,
    warn_of_unreadable,
)
from kip33.cli.progress import progress_line
from kip33.cli.times import current_ms
from kip33.errors import ExitCode, without_secrets
from kip33.formats.index_kinds import IndexKind
from kip33.indexing.by_path import topic_of, verify_segment
from kip33.indexing.folded_verdicts import VerifiedSegment
from kip33.indexing.quick_verification import (
    CheckedIndexFile,
    QuickVerdict,
    execute_quick,
    plan_quick,
)
from kip33.indexing.tree_verdicts import TreeVerdicts, blocks_of
from kip33.indexing.verification import NO_TIME_INDEX, SegmentVerdict
from kip33.rules.index_builder import IndexSettings
from kip33.rules.index_entries import DialectName
from kip33.rules.index_verdict import IndexVerdict
from kip33.rules.policies import require_topics
from kip33.rules.segment_summary import SegmentStatus
from kip33.stores.locations import Location

FILES = (".log", ".timeindex", ".index", ".txnindex")
Counts: TypeAlias = dict[IndexKind, Counter[IndexVerdict | None]]
"""Index files of each kind by their verdict, None for those that are not there."""
_ONLY_WITH_QUICK: Final = (QuickVerdict.CHANGED.value,)  # a verification of logs never gives it
_OF_LOGS: Final = {
    "dialect": "--dialect",
    "layout": "--layout",
    "index_interval_bytes": "--index-interval-bytes",
    "segment_index_bytes": "--segment-index-bytes",
    "kafka_configs": "--kafka-configs",
    "check_crc": "--no-check-crc",
    "untimestamped": "--untimestamped",
}


@dataclass(frozen=True, kw_only=True)
class VerifyCommand:
    """The options of `kip33 verify`."""

    verify: VerifyRequest
    catalog: str | None
    quick: bool
    fail_on: tuple[str, ...]
    summary_file: Location | None
    metrics: MetricsRequest
    engine: EngineOptions
    output_format: str

    @property
    def is_of_file(self) -> bool:
        """Return whether SOURCE is one log or index file."""
        return self.verify["source"].endswith(FILES)

    def check(self) -> None:
        """Raise UsageError for options that do not belong together.

        A configuration file may have options for verifications of both kinds.
        """
        if self.quick:
            _require_quick_options(self.fail_on)
        elif is_typed("catalog"):
            raise click.UsageError("--catalog requires --quick")
        elif is_typed("fail_on") and set(self.fail_on).intersection(_ONLY_WITH_QUICK):
            raise click.UsageError("--fail-on changed requires --quick")
        if self.verify["as_of"] is not None and not self.verify["share"]:
            raise click.UsageError("--as-of requires --share")
        if self.verify["share"] and (self.quick or self.is_of_file):
            raise click.UsageError("--share is for the logs of a tree, without --quick")


@click.command(epilog="Example: kip33 verify /archive/kafka-logs --fail-on wrong --fail-on missing")
@click.argument("source")
@click.option(
    "--index-dir", metavar="DIR", help="Folder of the index files [default: beside the logs]."
)
@click.option(
    "--catalog",
    metavar="DIR",
    help="With --quick: folder of the catalog [default: <index-dir>/_catalog].",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Compare the index files with their sizes and CRCs in the catalog; read no log.",
)
@options_of(VerifyOptions)
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice([*(verdict.value for verdict in IndexVerdict), *_ONLY_WITH_QUICK]),
    metavar="VERDICT",
    help="Exit 3 if any index file has this verdict, one of those above. May be repeated.",
)
@summary_option
@metrics_options
@engine_options
@spark_options
@format_option
@makes_request(VerifyCommand)
def verify(request: VerifyCommand) -> None:
    """Check every .timeindex, .index and .txnindex below SOURCE against its log.

    There is one verdict for each file.

    identical: the bytes that a broker, or --dialect, writes. consistent: every entry is correct,
    at another density. sparse: every entry is correct, but entries are missing, so that lookups
    read more than two intervals of the log (see --index-interval-bytes). incomplete: the closing
    entry is missing. padded: correct entries, then zeros or stale entries, as a crash leaves them,
    or before Kafka 4.4 a machine that fails after a clean stop (KAFKA-20979). wrong: an entry does
    not match the log. malformed: the size is not a multiple of the entry size. missing.
    unreadable. archived: the log is in S3 Glacier.

    A log without a .index is reported only if another log has one, in the same tree or, if SOURCE
    is one file, in the same directory: an archive may have been built without --offset-index. A
    .txnindex is missing if there is a .index and a transaction was aborted. unknown: the .txnindex
    depends on transactions of earlier segments, which are not there; a .snapshot beside the log
    would tell. SOURCE may be one .log or index file: that needs no Spark.

    --quick compares the index files that the catalog of SOURCE names with their sizes and CRCs of
    the build that wrote them. identical. changed: another size or CRC. missing. unknown: the
    catalog has no CRC, because the build did not read the file or was older; build --full adds it.
    unreadable. Damage of logs is not found. Segments of a build with --no-index-files have none
    to compare: they are counted in one line.

    --share chooses by the path of each log, so a segment is verified once in each round of days,
    and a run that is repeated for the same day verifies the same segments. If a segment before a
    .txnindex is not in the share, its verdict may be unknown.

    If no log at all can be read, the exit code is 1.
    """
    if request.quick:
        found_by_crc = _verify_quick(request)
        sys.exit(ExitCode.FINDINGS if found_by_crc.intersection(request.fail_on) else ExitCode.DONE)
    asked = request.verify
    ran: dict[str, Any] = {"engine": EngineName.LOCAL, "workers": 1}
    below = ""  # what every index's URI begins with, left out of tables
    if request.is_of_file:
        if asked["untimestamped"] != "none":
            raise click.UsageError(
                "--untimestamped needs the next segment: give the directory of the logs as SOURCE"
            )
        engine_choice(request.engine._replace(verbose=False))  # refuses contradicting options
        settings = load_topic_settings(IndexSettings.of(asked), asked["kafka_configs"])
        of_topic = settings.of(topic_of(asked["source"]))
        verdict = _verify_one(asked["source"], asked["index_dir"], of_topic)
        verdicts = TreeVerdicts.of(blocks_of([VerifiedSegment(verdict)]))
    else:
        from kip33.indexing.verify_tree import execute_verify

        with progress_line("verify") as on_progress:
            engine = open_engine(request.engine, on_progress)
            plan = plan_request(asked, now_ms=current_ms(), on_progress=on_progress)
            below = plan.verify.index_dir.uri + "/"
            verdicts = execute_verify(plan, engine)
        ran = {"engine": engine.name, "workers": engine.workers}
        if asked["share"]:
            ran |= {"share": asked["share"], "segments_listed": plan.listed}
    counts: Counts = {kind: Counter() for kind in IndexKind}
    gaps: dict[str, int | None] = {kind.gap_field: None for kind in IndexKind if kind.gap_field}
    unread: list[str] = []
    for verdict in verdicts:
        for kind in IndexKind:
            counts[kind][verdict.on(kind)] += 1
            if kind.gap_field and (gap := verdict.largest_gap(kind)) is not None:
                gaps[kind.gap_field] = max(gap, gaps[kind.gap_field] or 0)
        if verdict.log_status == SegmentStatus.UNREADABLE:
            why = verdict.log_error or "; ".join(verdict.problems)
            unread.append(f"{verdict.log_uri}: {why}")
    summary: dict[str, Any] = {"segments": len(verdicts)}
    for kind, found in counts.items():
        summary[kind.count_field] = {name: found[name] for name in IndexVerdict if found[name]}
    summary |= gaps | ran
    publish_summary(request.summary_file, summary)
    if request.metrics.metrics_file:
        by_topic = ((topic_of(one.log_uri), not one.is_good) for one in verdicts)
        source = without_secrets(Location.of(asked["source"]).uri)
        _publish_metrics(request.metrics, source, summary, by_topic)
    title = counted(len(verdicts), "segment")
    page = chain([_sums(IndexVerdict, counts, title)], _bad_files(verdicts, below))
    columns = [one.name for one in fields(SegmentVerdict)]
    rows = RowList("verdicts", (verdict.as_row() for verdict in verdicts), columns=columns)
    show(Output(page=page, rows=[rows], summary=summary), request.output_format)
    if warn_of_unreadable(unread, of=len(verdicts)):
        sys.exit(ExitCode.INCOMPLETE)
    if any(found[IndexVerdict(name)] for found in counts.values() for name in request.fail_on):
        sys.exit(ExitCode.FINDINGS)


def _publish_metrics(
    metrics: MetricsRequest,
    source: str,
    summary: dict[str, Any],
    by_topic: Iterable[tuple[str | None, bool]],
) -> None:
    from kip33.cli.metrics_file import verify_gauges

    gauges = verify_gauges(summary, by_topic, metrics)
    publish_metrics(metrics, "verify", {"source": source}, gauges)


def _verify_one(path: str, index_dir: str | None, settings: IndexSettings) -> SegmentVerdict:
    suffix = next(suffix for suffix in FILES if path.endswith(suffix))
    stem = path.removesuffix(suffix)
    index = None if suffix == ".log" else f"{stem}.timeindex"
    if index_dir:
        name = index_path(Location.of(f"{stem}.log").name, "timeindex")
        index = Location.of(index_dir).child(name).uri
    verdict = verify_segment(
        f"{stem}.log",
        index,
        dialect=cast(DialectName, settings.dialect),
        index_interval_bytes=settings.index_interval_bytes,
        segment_index_bytes=settings.segment_index_bytes,
        check_crc=settings.check_crc,
    )
    return verdict.with_missing_offset_index() if suffix == ".index" else verdict


def _sums(verdicts: Iterable[str], counts: Mapping[IndexKind, Counter[Any]], title: str) -> Table:
    """Return the number of index files of each kind by verdict."""
    columns = (
        Column("verdict", 0, rank=0),
        *(Column(kind.suffix, number, rank=0) for number, kind in enumerate(counts, 1)),
    )
    rows = [(name, *(found[name] for found in counts.values())) for name in verdicts]
    return Table(columns, [row for row in rows if any(row[1:])], title)


def _bad_files(verdicts: TreeVerdicts, below: str) -> Iterator[Table]:
    """Yield a table of the segments with a problem, if there are any."""
    columns = (
        *(
            Column(one.suffix, one.verdict_field, rank=2 * rank)
            for rank, one in enumerate(IndexKind)
        ),
        Column("log", "log_status"),
        Column("file", lambda row: row["index_uri"].removeprefix(below), is_name=True),
        Column("problems", _problems, is_remark=True),
    )
    if bad := [verdict.as_row() for verdict in verdicts.with_problems()]:
        yield Table(columns, bad, most=None)


def _problems(row: Row) -> tuple[str, ...]:
    """Return the problems of a segment, which have a line each; the verdict says "missing"."""
    problems = [problem for problem in row["problems"] if problem != NO_TIME_INDEX]
    return (*problems, *((f"log: {row['log_error']}",) if row["log_error"] else ()))


def _require_quick_options(fail_on: Sequence[str]) -> None:
    """Raise UsageError for options on the command line that --quick does not use."""
    for name, option in _OF_LOGS.items():
        if is_typed(name):
            raise click.UsageError(f"--quick reads no log: leave out {option}")
    others = [verdict for verdict in fail_on if verdict not in list(QuickVerdict)]
    if others and is_typed("fail_on"):
        raise click.UsageError(
            f"--quick never gives the verdict {others[0]}: --fail-on takes "
            f"{', '.join(QuickVerdict)}"
        )


def _verify_quick(request: VerifyCommand) -> set[str]:
    """Compare index files with the newest snapshot; print the result and return its verdicts."""
    catalog, index_dir = request.catalog, request.verify["index_dir"]
    if not catalog and not index_dir:
        raise click.UsageError("--quick requires the catalog: give --catalog or --index-dir")
    place = Location.of(catalog) if catalog else Location.of(index_dir or "").child("_catalog")
    opened = catalog_at(place, warn=warn)
    opened.require_source(Location.of(request.verify["source"]))
    snapshot = choose_and_warn(opened, None).snapshot
    with progress_line("verify") as on_progress:
        engine = open_engine(request.engine, on_progress)
        files, without = plan_quick(opened, snapshot, request.verify["topics"])
        if not files.num_rows and not without:
            require_topics(request.verify["topics"], topics_of(opened, snapshot))
        compared = execute_quick(files, engine)
    if without:
        warn(
            f"{counted(without, 'segment')} without index files: built with --no-index-files; a "
            "build with --index-dir writes them"
        )
    summary: dict[str, Any] = {
        "catalog": opened.location.uri,
        "snapshot": snapshot.name,
        "segments": files.num_rows,
        "without_index_files": without,
    }
    for kind in IndexKind:
        found = compared.by_verdict[kind]
        summary[kind.count_field] = {name: found[name] for name in QuickVerdict if found[name]}
    summary |= {
        "bytes_read": compared.bytes_read,
        "engine": engine.name,
        "workers": engine.workers,
    }
    publish_summary(request.summary_file, summary)
    if request.metrics.metrics_file:
        by_topic = ((topic_of(one.uri), True) for one in compared.not_identical)
        _publish_metrics(request.metrics, snapshot.source, summary, by_topic)
    read = human_bytes(compared.bytes_read)
    title = f"{counted(files.num_rows, 'segment')}; {read} of index files read, no log"
    rows = [file._asdict() for file in compared.not_identical]
    below = f"{snapshot.settings.get('index_dir')}/"
    columns = (
        Column("verdict", "verdict", rank=0),
        Column("file", lambda row: row["uri"].removeprefix(below), is_name=True),
        Column("problem", "problem", none="", is_remark=True),
    )
    page = [
        _sums(QuickVerdict, compared.by_verdict, title),
        *([Table(columns, rows, most=None)] if rows else []),
    ]
    show(
        Output(
            page=page,
            rows=[RowList("not_identical", rows, columns=CheckedIndexFile._fields)],
            summary=summary,
        ),
        request.output_format,
    )
    return {name for found in compared.by_verdict.values() for name in found if found[name]}
