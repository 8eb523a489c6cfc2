"""`kip33 verify`: index files compared with their logs; `verify quick`: with CRCs of a catalog."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain, groupby
from typing import Any, Final, TypeAlias, cast

import click

from kip33.archive.segment_paths import index_path
from kip33.builds.build_options import load_topic_settings
from kip33.builds.verify_options import VerifyOptions, VerifyRequest, plan_request
from kip33.cli.declared_options import options_of
from kip33.cli.metrics_file import verify_gauges
from kip33.cli.modes import CommandWithModes, Earlier, FirstArgument, Mode, with_modes
from kip33.cli.output import (
    Column,
    Output,
    OutputFinding,
    Row,
    RowList,
    Table,
    counted,
    human_bytes,
    warn,
)
from kip33.cli.runs import CommandRun, Findings, runs
from kip33.cli.tables import is_terminal
from kip33.errors import without_secrets
from kip33.formats.index_kinds import IndexKind
from kip33.indexing.by_path import topic_of, verify_segment
from kip33.indexing.folded_verdicts import VerifiedSegment
from kip33.indexing.quick_verification import (
    CheckedIndexFile,
    QuickOptions,
    QuickRequest,
    QuickVerdict,
    verify_quick,
)
from kip33.indexing.tree_verdicts import TreeVerdicts, blocks_of
from kip33.indexing.verification import NO_TIME_INDEX, SegmentVerdict
from kip33.rules.index_builder import IndexSettings
from kip33.rules.index_entries import DialectName
from kip33.rules.index_verdict import GOOD, IndexVerdict
from kip33.rules.segment_summary import DAMAGED_STATUSES, UNDAMAGED_STATUSES, SegmentStatus
from kip33.stores.locations import Location

FILES = (".log", ".timeindex", ".index", ".txnindex")
Counts: TypeAlias = Mapping[IndexKind, Counter[Any]]
"""Index files of each kind by their verdict, None for those that are not there."""
_DAMAGED, _PROBLEMS = "damaged", "problems"  # findings beside the verdicts
_FINDINGS: Final = Findings(
    [*(verdict.value for verdict in IndexVerdict), _DAMAGED, _PROBLEMS],
    "Exit 3 if any index file has this verdict, one of those above. damaged: a log is truncated, "
    "invalid or unreadable. problems: an index file is not identical or consistent, or a log is "
    "not sound.",
    "VERDICT,...",
)
_MOST_AT_TERMINAL: Final = 40  # rows of segments with a problem
_NEARLY_ALL: Final = 0.9


@dataclass(frozen=True, kw_only=True)
class VerifyCommand:
    """The options of `kip33 verify`."""

    verify: VerifyRequest

    @property
    def is_of_file(self) -> bool:
        """Return whether SOURCE is one log or index file."""
        return self.verify["source"].endswith(FILES)

    def check(self) -> None:
        """Raise UsageError for options that do not belong together."""
        if self.verify["as_of"] is not None and not self.verify["share"]:
            raise click.UsageError("--as-of requires --share")
        if self.is_of_file and self.verify["share"]:
            raise click.UsageError("--share is for the logs of a tree")
        if self.is_of_file and self.verify["untimestamped"] != "none":
            raise click.UsageError(
                "--untimestamped needs the next segment: give the directory of the logs as SOURCE"
            )


_index_dir_option: Final = click.option(
    "--index-dir", metavar="DIR", help="Folder of the index files [default: beside the logs]."
)


@click.command(
    cls=CommandWithModes,
    epilog="Example: kip33 verify /archive/kafka-logs --fail-on wrong --fail-on missing",
)
@click.argument("source", cls=FirstArgument)
@_index_dir_option
@options_of(VerifyOptions)
@runs(metrics=True, findings=_FINDINGS)
def verify(command: VerifyCommand, run: CommandRun) -> Output:
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

    --share chooses by the path of each log, so a segment is verified once in each round of days,
    and a run that is repeated for the same day verifies the same segments. If a segment before a
    .txnindex is not in the share, its verdict may be unknown.

    A log with a wrong CRC is truncated there, as by a broker; if whole batches are behind it, the
    problem of the log says how many.

    If no log at all can be read, the exit code is 1.
    """
    asked = command.verify
    share: dict[str, Any] = {}
    below = source = ""  # what every URI of an index or a log begins with, left out of tables
    if command.is_of_file:
        verdicts = TreeVerdicts.of(blocks_of([VerifiedSegment(_verify_one(asked))]))
    else:
        from kip33.indexing.verify_tree import execute_verify

        engine = run.open_engine()
        plan = plan_request(asked, now_ms=run.started_ms, on_progress=run.on_progress)
        below, source = (f"{one.uri}/" for one in (plan.verify.index_dir, plan.verify.source))
        verdicts = execute_verify(plan, engine)
        if asked["share"]:
            share = {"share": asked["share"], "segments_listed": plan.listed}
    counts: dict[IndexKind, Counter[Any]] = {kind: Counter() for kind in IndexKind}
    by_log_status: Counter[str] = Counter()
    problems = 0
    gaps: dict[str, int | None] = {kind.gap_field: None for kind in IndexKind if kind.gap_field}
    unread: list[str] = []
    for verdict in verdicts:
        for kind in IndexKind:
            counts[kind][verdict.on(kind)] += 1
            if kind.gap_field and (gap := verdict.largest_gap(kind)) is not None:
                gaps[kind.gap_field] = max(gap, gaps[kind.gap_field] or 0)
        by_log_status[verdict.log_status.value] += 1
        problems += verdict.has_problem
        if verdict.log_status == SegmentStatus.UNREADABLE:
            why = verdict.log_error or "; ".join(verdict.problems)
            unread.append(f"{verdict.log_uri}: {why}")
    title = counted(len(verdicts), "segment")
    damaged = sum(by_log_status[one] for one in DAMAGED_STATUSES)
    rows = (verdict.as_row() for verdict in verdicts)
    by_topic = ((topic_of(one.log_uri), not one.is_good) for one in verdicts)
    return Output(
        page=lambda _: chain(
            [_sums(IndexVerdict, counts, title, by_log_status)],
            _bad_files(verdicts, below),
            _advice([_PROBLEMS] if problems else [], run),
        ),
        rows=[RowList("verdicts", rows, columns=[one.name for one in fields(SegmentVerdict)])],
        summary={"segments": len(verdicts)}
        | _by_verdict(IndexVerdict, counts)
        | {"by_log_status": _in_order(SegmentStatus, by_log_status)}
        | gaps
        | share,
        findings={
            **_found(counts, partial(_examples, verdicts, below)),
            _DAMAGED: OutputFinding(damaged, "log", partial(_damaged, verdicts, source)),
            _PROBLEMS: OutputFinding(problems, "segment", partial(_with_problems, verdicts, below)),
        },
        remarks=[]
        if command.is_of_file
        else _remarks(asked, counts[IndexKind.TIME], len(verdicts)),
        unread=unread,
        logs=len(verdicts),
        gauges=lambda summary, metrics: verify_gauges(summary, by_topic, metrics),
        labels={"source": without_secrets(Location.of(asked["source"]).uri)},
    )


def _by_verdict(verdicts: Iterable[str], counts: Counts) -> dict[str, Any]:
    """Return the part of a summary with the number of files of each kind by verdict."""
    return {kind.count_field: _in_order(verdicts, found) for kind, found in counts.items()}


def _in_order(names: Iterable[str], counts: Counter[Any]) -> dict[str, int]:
    return {name: counts[name] for name in names if counts[name]}


def _found(counts: Counts, examples: Callable[[str], Iterator[str]]) -> dict[str, OutputFinding]:
    """Return the verdicts that there are."""
    total: Counter[Any] = sum(counts.values(), Counter())
    return {
        str(name): OutputFinding(
            *(count, "index file", partial(examples, str(name))), is_wrong=name not in GOOD
        )
        for name, count in total.items()
        if name
    }


def _examples(verdicts: TreeVerdicts, below: str, name: str) -> Iterator[str]:
    """Yield a line for each index file with a verdict."""
    for one in verdicts:
        for kind in IndexKind:
            if one.on(kind) == name:
                file = one.index_uri.removeprefix(below).removesuffix(IndexKind.TIME.suffix)
                problems = "; ".join(_problems_of(one, kind)) or name
                yield f"{file}{kind.suffix}: {problems}"


def _problems_of(verdict: SegmentVerdict, kind: IndexKind) -> Iterator[str]:
    """Yield the problems of one index file; those of a `.timeindex` do not begin with its name."""
    others = tuple(f"{one.suffix}: " for one in IndexKind if one != IndexKind.TIME)
    own = f"{kind.suffix}: "
    for problem in verdict.problems:
        if kind == IndexKind.TIME and not problem.startswith(others):
            yield problem
        elif problem.startswith(own):
            yield problem.removeprefix(own)


def _damaged(verdicts: TreeVerdicts, source: str) -> Iterator[str]:
    for one in verdicts.with_problems():
        if one.log_status in DAMAGED_STATUSES:
            log = one.log_uri.removeprefix(source)
            yield f"{log}: {one.log_status}: {one.log_error or '; '.join(one.problems)}"


def _with_problems(verdicts: TreeVerdicts, below: str) -> Iterator[str]:
    for one in verdicts.with_problems():
        problems = _problems(one.as_row()) or (NO_TIME_INDEX,)
        yield f"{one.index_uri.removeprefix(below)}: {'; '.join(problems)}"


def _remarks(asked: VerifyRequest, counts: Counter[Any], segments: int) -> list[str]:
    if asked["index_dir"] or counts[IndexVerdict.MISSING] < max(1, _NEARLY_ALL * segments):
        return []
    return ["no index files beside the logs; if they are elsewhere, give --index-dir"]


def _verify_one(asked: VerifyRequest) -> SegmentVerdict:
    """Return the verdict on one log, or on the log of an index file."""
    path, index_dir = asked["source"], asked["index_dir"]
    of_topics = load_topic_settings(IndexSettings.of(asked), asked["kafka_configs"])
    settings = of_topics.of(topic_of(path))
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


def _sums(
    verdicts: Iterable[str],
    counts: Mapping[IndexKind, Counter[Any]],
    title: str,
    by_log_status: Counter[str] | None = None,
) -> Table:
    """Return the number of index files of each kind by verdict, and of logs by status."""
    every = {kind.suffix: found for kind, found in counts.items()}
    if by_log_status is not None:
        every[".log"] = by_log_status
    columns = (
        Column("verdict", 0, rank=0),
        *(Column(suffix, number, rank=0) for number, suffix in enumerate(every, 1)),
    )
    names = dict.fromkeys([*map(str, verdicts), *(by_log_status or ())])
    rows = [(name, *(found[name] for found in every.values())) for name in names]
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
    if bad := [*_with_missing_together(verdicts.with_problems())]:
        yield Table(columns, bad, what="segments", most=None, most_at_terminal=_MOST_AT_TERMINAL)


def _advice(findings: Sequence[str], run: CommandRun) -> Iterator[str]:
    """Yield how such a run fails, for who sees that it did not."""
    if findings and not run.options.fail_on and is_terminal():
        yield f"exit 0; with --fail-on {','.join(findings)} it is 3"


def _with_missing_together(verdicts: Iterable[SegmentVerdict]) -> Iterator[Row]:
    """Yield rows; segments of a directory that only lack their index files are one."""
    for directory, some in groupby(verdicts, key=lambda one: one.index_uri.rpartition("/")[0]):
        others: list[Row] = []
        lacking: list[Row] = []
        for one in some:
            (lacking if _only_lacks_files(one) else others).append(one.as_row())
        if len(lacking) > 1:
            what = f"{counted(len(lacking), 'segment')} without index files"
            lacking = [{**lacking[0], "index_uri": f"{directory}/", "problems": [what]}]
        yield from (*lacking, *others)


def _only_lacks_files(verdict: SegmentVerdict) -> bool:
    found = {verdict.on(kind) for kind in IndexKind}
    return found <= {IndexVerdict.MISSING, None} and verdict.log_status in UNDAMAGED_STATUSES


def _problems(row: Row) -> tuple[str, ...]:
    """Return the problems of a segment, which have a line each; the verdict says "missing"."""
    problems = [problem for problem in row["problems"] if problem != NO_TIME_INDEX]
    return (*problems, *((f"log: {row['log_error']}",) if row["log_error"] else ()))


_QUICK_FINDINGS: Final = Findings(
    [verdict.value for verdict in QuickVerdict],
    "Exit 3 if any index file has this verdict.",
)


@click.command(
    "quick",
    cls=Mode,
    epilog="Example: kip33 verify quick /archive/kafka-logs --index-dir /archive/indexes "
    "--fail-on changed",
)
@click.argument("source")
@_index_dir_option
@options_of(QuickOptions)
@runs(metrics=True, findings=_QUICK_FINDINGS)
def verify_by_crc(request: QuickRequest, run: CommandRun) -> Output:
    """Compare index files with their sizes and CRCs in the catalog; no log is read.

    The index files are those that the newest snapshot of SOURCE names; the CRCs are those of the
    build that wrote them. identical. changed: another size or CRC. missing. unknown: the catalog
    has no CRC, because the build did not read the file or was older; build --full adds it.
    unreadable. Damage of logs is not found. Segments of a build with --no-index-files have none to
    compare: they are counted in one line.
    """
    found = verify_quick(request, run.open_engine(), warn)
    if without := found.without_index_files:
        warn(
            f"{counted(without, 'segment')} without index files: built with --no-index-files; a "
            "build with --index-dir writes them"
        )
    rows = [file._asdict() for file in found.not_identical]
    by_topic = [(topic_of(file.uri), True) for file in found.not_identical]
    summary = {
        "catalog": found.catalog.location.uri,
        "snapshot": found.snapshot.name,
        "segments": found.segments,
        "without_index_files": without,
        **_by_verdict(QuickVerdict, found.by_verdict),
        "bytes_read": found.bytes_read,
    }
    lines: defaultdict[str, list[str]] = defaultdict(list)
    for file in found.not_identical:
        lines[file.verdict].append(f"{file.uri}: {file.problem or file.verdict}")
    title = (
        f"{counted(found.segments, 'segment')}; {human_bytes(found.bytes_read)} of index files "
        "read, no log"
    )
    below = f"{found.snapshot.settings.get('index_dir')}/"
    columns = (
        Column("verdict", "verdict", rank=0),
        Column("file", lambda row: row["uri"].removeprefix(below), is_name=True),
        Column("problem", "problem", none="", is_remark=True),
    )
    return Output(
        page=lambda _: [
            _sums(QuickVerdict, found.by_verdict, title),
            *([Table(columns, rows, most=None)] if rows else []),
            *_advice([*lines], run),
        ],
        rows=[RowList("not_identical", rows, columns=CheckedIndexFile._fields)],
        summary=summary,
        findings=_found(found.by_verdict, lambda name: iter(lines[name])),
        gauges=lambda summary, metrics: verify_gauges(summary, by_topic, metrics),
        labels={"source": found.snapshot.source},
    )


with_modes(verify, verify_by_crc, earlier={"--quick": Earlier("quick")})
