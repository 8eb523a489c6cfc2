"""The answer of `kip33 timestamps`: its plan, the engine, the output and the exit code."""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from kip33.archive.bins import EngineName
from kip33.audits.timestamp_plan import (
    TIMESTAMPS,
    AuditClock,
    TimestampPlan,
    TimestampQuestion,
    catalog_rows,
    execute_timestamps,
    plan_timestamps,
    timestamp_row,
    topic_profiles,
)
from kip33.catalog.catalog import Snapshot, catalog_unless_source
from kip33.cli.engine_option import EngineOptions, engine_choice, open_engine
from kip33.cli.options import PolicyOptions, publish_summary
from kip33.cli.output import (
    Column,
    Output,
    Row,
    RowList,
    Table,
    choose_and_warn,
    counted,
    csv_rows,
    human_bytes,
    human_duration,
    iso_time,
    partition_name,
    show,
    warn,
    warn_of_first,
    warn_of_unreadable,
)
from kip33.cli.progress import progress_line
from kip33.cli.times import current_ms
from kip33.errors import ExitCode
from kip33.rules.suspicious_timestamps import SUSPICIONS
from kip33.rules.timestamp_profile import DISTANCES, LimitChoice
from kip33.rules.timestamp_profile import MIXED as MIXED_TYPE
from kip33.rules.timestamp_profile import NONE as NO_TYPE
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress

_MIXED, _OUT_OF_ORDER, _REJECTED = "mixed", "out-of-order", "rejected"
_SUSPICIOUS, _UNREADABLE = "suspicious", "unreadable"
TIMESTAMP_FINDINGS: Final = (_MIXED, _OUT_OF_ORDER, _REJECTED, _SUSPICIOUS, _UNREADABLE)
_HISTOGRAMS: Final = ("behind", "before_file", "after_file")
_MOST_WARNINGS: Final = 20


@dataclass(frozen=True, kw_only=True)
class TimestampsCommand:
    """The options of `kip33 timestamps`; None if not given."""

    source: str
    by: str
    limits: LimitChoice
    policy: PolicyOptions
    clock: str
    now: int | None  # ms
    catalog_only: bool
    snapshot: str | None
    fail_on: tuple[str, ...]
    layout: str
    summary_file: Location | None
    topics: tuple[str, ...]
    engine: EngineOptions
    output_format: str


def show_timestamps(request: TimestampsCommand) -> None:
    """Print the answer to the options; exit 3 for findings that --fail-on names."""
    started = time.monotonic()
    question = _question(request)
    place = Location.of(request.source)
    snapshot: Snapshot | None = None
    warnings: tuple[str, ...] = ()
    catalog = catalog_unless_source(place, warn)
    if catalog:
        choice = choose_and_warn(catalog, request.snapshot)
        snapshot, warnings = choice.snapshot, choice.warnings
    elif request.catalog_only or request.snapshot:
        option = "--catalog-only" if request.catalog_only else "--snapshot"
        raise click.UsageError(
            f"{option} requires a CATALOG, and {place.uri} has none; give the catalog of a build"
        )
    if request.catalog_only and request.by != "partition":
        raise click.UsageError("--catalog-only shows partitions: leave out --by topic")
    with progress_line("timestamps") as on_progress:
        engine_choice(request.engine)
        plan = plan_timestamps(
            catalog.location.uri if catalog else request.source,
            question,
            topics=request.topics,
            layout=request.layout,
            snapshot=snapshot,
            on_progress=on_progress,
        )
        if request.catalog_only and catalog:
            rows, ran = catalog_rows(catalog, plan), (EngineName.LOCAL, 1)
            unreadable: list[str] = []
        else:
            rows, unreadable, ran = _profiled(request, plan, on_progress)
    summary = _summary(rows)
    summary |= {"warnings": list(warnings), "engine": ran[0], "workers": ran[1]}
    summary["seconds"] = round(time.monotonic() - started, 3)
    publish_summary(request.summary_file, summary)
    answer = Output(
        page=_page(rows, summary, plan),
        rows=[RowList("timestamps", rows)],
        summary=summary,
        summary_key="summary",
        csv=csv_rows(map(_in_csv, rows), TIMESTAMPS.names),
    )
    show(answer, request.output_format)
    if warn_of_unreadable(unreadable, of=plan.files.num_rows):
        sys.exit(ExitCode.INCOMPLETE)
    if any(summary["findings"][name] for name in request.fail_on):
        sys.exit(ExitCode.FINDINGS)


def _question(request: TimestampsCommand) -> TimestampQuestion:
    limits = request.limits._replace(policies=request.policy.load())
    now_ms = current_ms() if request.now is None else request.now
    return TimestampQuestion(limits, AuditClock(request.clock), now_ms)


def _profiled(
    request: TimestampsCommand, plan: TimestampPlan, on_progress: OnProgress
) -> tuple[list[dict[str, Any]], list[str], tuple[EngineName, int]]:
    """Return the rows, a line for each log that could not be read, and what engine ran."""
    engine = open_engine(request.engine._replace(verbose=False), on_progress)
    found = execute_timestamps(plan, engine)
    profiles = list(topic_profiles(found)) if request.by == "topic" else found
    rows = [timestamp_row(one, plan.question) for one in profiles]
    unreadable = [line for one in found for line in one.unreadable]
    return rows, unreadable, (engine.name, engine.workers)


def _summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the sums of the rows, and how many findings of each kind there are."""

    def total(*names: str) -> int:
        return sum(row[name] or 0 for row in rows for name in names)

    suspicious = total(*(kind.value for kind in SUSPICIONS[:-1]))
    behind = [row["furthest_behind_ms"] or 0 for row in rows]
    latencies = [row["latency_max_ms"] for row in rows if row["latency_max_ms"] is not None]
    return {
        "rows": len(rows),
        "segments": total("segments"),
        "batches": total("batches"),
        "out_of_order_batches": total("out_of_order_batches"),
        "furthest_behind_ms": max(behind, default=0),
        "rejected_before": total("rejected_before"),
        "rejected_after": total("rejected_after"),
        "suspicious": suspicious,
        "latency_max_ms": max(latencies, default=None),
        "bytes_read": total("bytes_read"),
        "findings": {
            _MIXED: sum(map(_is_mixed, rows)),
            _OUT_OF_ORDER: total("out_of_order_batches"),
            _REJECTED: total("rejected_before", "rejected_after"),
            _SUSPICIOUS: suspicious,
            _UNREADABLE: sum(len(row["problems"]) for row in rows),
        },
    }


def _is_mixed(row: Row) -> bool:
    """Return whether batches have several types, or another one than the topic's policy says."""
    found, policy = row["timestamp_type"], row["policy_timestamp_type"]
    return found == MIXED_TYPE or (policy is not None and found not in (NO_TYPE, policy))


def _in_csv(row: Row) -> Row:
    """Return a row whose histograms are texts such as `0:970 1000:30`, the furthest class `:1`."""
    cells = dict(row)
    for name in _HISTOGRAMS:
        classes = row[name] or ()
        cells[name] = " ".join(
            f"{'' if one['up_to_ms'] is None else one['up_to_ms']}:{one['batches']}"
            for one in classes
        )
    cells["problems"] = "; ".join(row["problems"])
    return cells


def _page(rows: Sequence[Row], summary: Row, plan: TimestampPlan) -> Iterator[Table | str]:
    """Yield a row for each partition or topic, the histograms of all, and what was compared."""
    of_topics = all(row["partition"] is None for row in rows)
    has_latency = any(row["latency_max_ms"] is not None for row in rows)
    columns = (
        Column("topic" if of_topics else "partition", _name, is_name=True),
        *_COLUMNS,
        *(_LATENCIES if has_latency else ()),
    )
    yield Table(columns, rows)
    yield from _histograms(rows)
    incomplete = [
        f"{problem}; not all of its batches are counted"
        for row in rows
        for problem in row["problems"]
    ]
    warn_of_first(incomplete, _MOST_WARNINGS, "and {:,} more logs are not read to their end")
    yield from _comparison(rows, plan)
    logs = f"{counted(summary['segments'], 'segment')} of {human_bytes(plan.size_bytes)}"
    read = f"{human_bytes(summary['bytes_read'])} read in {summary['seconds']:.1f} s"
    yield f"{counted(summary['batches'], 'batch')} in {logs}; {read}"


def _name(row: Row) -> str:
    is_topic = row["partition"] is None and row["topic"]
    return str(row["topic"]) if is_topic else partition_name(row)


def _type(row: Row) -> str:
    policy = row["policy_timestamp_type"]
    differs = policy is not None and policy != row["timestamp_type"]
    return f"{row['timestamp_type']} (policy: {policy})" if differs else str(row["timestamp_type"])


def _rejected(row: Row, side: str) -> int | None:
    return None if row[f"{side}_max_ms"] is None else row[f"rejected_{side}"]


def _suspicious(row: Row) -> str:
    return ", ".join(f"{row[kind]:,} {kind}" for kind in SUSPICIONS[:-1] if row[kind]) or "-"


_COLUMNS: Final = (
    Column("type", _type, rank=0),
    Column("batches", "batches", rank=3),
    Column("out of order", "out_of_order_batches", rank=0),
    Column("furthest behind", "furthest_behind_ms", human_duration, rank=2),
    Column("rejected before", lambda row: _rejected(row, "before")),
    Column("rejected after", lambda row: _rejected(row, "after")),
    Column("suspicious", _suspicious, is_remark=True),
)
_LATENCIES: Final = (
    Column("latency min", "latency_min_ms", human_duration, rank=5),
    Column("median", "latency_median_ms", human_duration, rank=4),
    Column("99 %", "latency_p99_ms", human_duration, rank=4),
    Column("max", "latency_max_ms", human_duration, rank=2),
)


def _histograms(rows: Sequence[Row]) -> Iterator[Table]:
    """Yield how many batches of all rows are in each class of distances."""
    if any(row["behind"] is None for row in rows):
        return
    totals: dict[int | None, Counter[str]] = {
        up_to_ms: Counter() for up_to_ms in (*DISTANCES, None)
    }
    for row in rows:
        for name in _HISTOGRAMS:
            for one in row[name]:
                totals[one["up_to_ms"]][name] += one["batches"]
    classes = [{"up_to_ms": up_to_ms, **counts} for up_to_ms, counts in totals.items()]
    classes = [one for one in classes if any(map(one.get, _HISTOGRAMS))]
    if classes:
        yield Table(_CLASSES, classes, "batches by distance")


def _class_name(one: Row) -> str:
    up_to_ms = one["up_to_ms"]
    if up_to_ms is None:
        return f"more than {human_duration(DISTANCES[-1])}"
    return f"up to {human_duration(up_to_ms)}" if up_to_ms else "none"


_CLASSES: Final = (
    Column("distance", _class_name, rank=0),
    Column("behind the largest", lambda one: one.get("behind", 0)),
    Column("older than the file", lambda one: one.get("before_file", 0)),
    Column("later than the file", lambda one: one.get("after_file", 0)),
)


def _comparison(rows: Sequence[Row], plan: TimestampPlan) -> Iterator[str]:
    """Yield the limits, and which clock each number of rejected batches depends on."""
    by_clock = sum(row["judged_by_clock"] or 0 for row in rows)
    by_append = sum(row["judged_by_append_time"] or 0 for row in rows)
    if all(row["judged_by_clock"] is None for row in rows):
        yield "From the catalog alone: out of order and suspicious are lower limits."
    if by_append + by_clock == 0:
        return
    limits = {(row["before_max_ms"], row["after_max_ms"]) for row in rows}
    if len(limits) == 1:
        [(before, after)] = limits
        what = f"{_limit(before, 'before')}, {_limit(after, 'after')}"
    else:
        what = "by the limits of each topic's policy"
    yield f"Rejected: {what}."
    if by_append:
        yield f"{by_append:,} LogAppendTime batches are compared with their own append time."
    if by_clock and plan.question.clock == AuditClock.FILE_TIME:
        yield (
            f"{by_clock:,} CreateTime batches are compared with the time of their file, as the "
            "broker's clock at the append is not known. The append may have been earlier: a batch "
            "that is 8 days older than its file may have been 6 days old then. So `rejected "
            "before` is an upper limit, and `rejected after` a lower one."
        )
    elif by_clock:
        now = iso_time(plan.question.now_ms)
        yield f"{by_clock:,} CreateTime batches are compared with --now, {now}."


def _limit(limit_ms: int | None, side: str) -> str:
    if limit_ms is None:
        return f"no limit {side} the clock"
    return f"more than {human_duration(limit_ms)} {side} the clock"
