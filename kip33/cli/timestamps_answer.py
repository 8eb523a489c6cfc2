"""The answer of `kip33 timestamps`: its plan, the engine, the output and the exit code."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
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
    is_catalog,
    plan_timestamps,
    timestamp_row,
    topic_profiles,
)
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.cli.engine_option import EngineOptions, engine_choice, open_engine
from kip33.cli.options import PolicyOptions, publish_summary
from kip33.cli.output import (
    MOST_TABLE_ROWS,
    RESULT,
    choose_and_warn,
    human_bytes,
    human_duration,
    iso_time,
    print_json,
    print_rows,
    print_table,
    warn,
    warn_of_unreadable,
)
from kip33.cli.search_tables import partition_name
from kip33.cli.standard_output import ProgressBar, progress_bar
from kip33.cli.times import current_ms
from kip33.errors import ExitCode
from kip33.rules.suspicious_timestamps import SUSPICIONS
from kip33.rules.timestamp_profile import DISTANCES, LimitChoice
from kip33.rules.timestamp_profile import MIXED as MIXED_TYPE
from kip33.rules.timestamp_profile import NONE as NO_TYPE
from kip33.stores.locations import Location

Row = dict[str, Any]
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
    if is_catalog(place):
        choice = choose_and_warn(Catalog(place), request.snapshot)
        snapshot, warnings = choice.snapshot, choice.warnings
    elif request.catalog_only or request.snapshot:
        option = "--catalog-only" if request.catalog_only else "--snapshot"
        raise click.UsageError(
            f"{option} requires a CATALOG, and {place.uri} has none; give the catalog of a build"
        )
    if request.catalog_only and request.by != "partition":
        raise click.UsageError("--catalog-only shows partitions: leave out --by topic")
    with progress_bar("timestamps") as bar:
        engine_choice(request.engine)
        plan = plan_timestamps(
            request.source,
            question,
            topics=request.topics,
            layout=request.layout,
            snapshot=snapshot,
            on_listed=bar.listed if bar else None,
        )
        if request.catalog_only:
            rows, ran = catalog_rows(Catalog(place), plan), (EngineName.LOCAL, 1)
            unreadable: list[str] = []
        else:
            rows, unreadable, ran = _profiled(request, plan, bar)
    summary = _summary(rows)
    summary |= {"warnings": list(warnings), "engine": ran[0], "workers": ran[1]}
    summary["seconds"] = round(time.monotonic() - started, 3)
    publish_summary(request.summary_file, summary)
    _print(request, rows, summary, plan)
    if warn_of_unreadable(unreadable, of=plan.files.num_rows):
        sys.exit(ExitCode.INCOMPLETE)
    if any(summary["findings"][name] for name in request.fail_on):
        sys.exit(ExitCode.FINDINGS)


def _question(request: TimestampsCommand) -> TimestampQuestion:
    limits = request.limits._replace(policies=request.policy.load())
    now_ms = current_ms() if request.now is None else request.now
    return TimestampQuestion(limits, AuditClock(request.clock), now_ms)


def _profiled(
    request: TimestampsCommand, plan: TimestampPlan, bar: ProgressBar | None
) -> tuple[list[Row], list[str], tuple[EngineName, int]]:
    """Return the rows, a line for each log that could not be read, and what engine ran."""
    engine = open_engine(request.engine._replace(verbose=False), bar)
    found = execute_timestamps(plan, engine)
    profiles = list(topic_profiles(found)) if request.by == "topic" else found
    rows = [timestamp_row(one, plan.question) for one in profiles]
    unreadable = [line for one in found for line in one.unreadable]
    return rows, unreadable, (engine.name, engine.workers)


def _summary(rows: Sequence[Row]) -> Row:
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


def _is_mixed(row: Mapping[str, Any]) -> bool:
    """Return whether batches have several types, or another one than the topic's policy says."""
    found, policy = row["timestamp_type"], row["policy_timestamp_type"]
    return found == MIXED_TYPE or (policy is not None and found not in (NO_TYPE, policy))


def _print(request: TimestampsCommand, rows: list[Row], summary: Row, plan: TimestampPlan) -> None:
    if request.output_format == "table":
        _print_timestamps(rows, summary, plan)
        return
    if request.output_format == "json":
        print_json({"timestamps": rows, "summary": summary})
    elif request.output_format == "csv":
        print_rows([_csv_row(row) for row in rows], TIMESTAMPS.names, "csv")
    else:
        print_rows(rows, TIMESTAMPS.names, "jsonl")
    click.echo(RESULT + json.dumps(summary), err=True)


def _csv_row(row: Row) -> Row:
    """Return a row whose histograms are texts such as `0:970 1000:30`, the furthest class `:1`."""
    cells = dict(row)
    for name in ("behind", "before_file", "after_file"):
        classes = row[name] or ()
        cells[name] = " ".join(
            f"{'' if one['up_to_ms'] is None else one['up_to_ms']}:{one['batches']}"
            for one in classes
        )
    cells["problems"] = "; ".join(row["problems"])
    return cells


_ShownRow = Mapping[str, Any]


def _print_timestamps(rows: Sequence[_ShownRow], summary: _ShownRow, plan: TimestampPlan) -> None:
    """Print a row for each partition or topic, the histograms of all, and what was compared."""
    has_latency = any(row["latency_max_ms"] is not None for row in rows)
    columns = (
        *(_heading(rows), "type", "batches"),
        *("out of order", "furthest behind", "rejected before", "rejected after", "suspicious"),
        *(("latency min", "median", "99 %", "max") if has_latency else ()),
    )
    shown = [_cells(row)[: len(columns)] for row in rows[:MOST_TABLE_ROWS]]
    print_table(columns, shown)
    if len(rows) > MOST_TABLE_ROWS:
        click.echo(f"and {len(rows) - MOST_TABLE_ROWS:,} more; --format jsonl shows all of them")
    _print_histograms(rows)
    problems = [problem for row in rows for problem in row["problems"]]
    for problem in problems[:_MOST_WARNINGS]:
        warn(f"{problem}; not all of its batches are counted")
    if len(problems) > _MOST_WARNINGS:
        warn(f"and {len(problems) - _MOST_WARNINGS:,} more logs are not read to their end")
    _print_comparison(rows, plan)
    logs = f"{summary['segments']:,} segments of {human_bytes(plan.size_bytes)}"
    read = f"{human_bytes(summary['bytes_read'])} read in {summary['seconds']:.1f} s"
    click.echo(f"{summary['batches']:,} batches in {logs}; {read}")


def _heading(rows: Sequence[_ShownRow]) -> str:
    return "topic" if all(row["partition"] is None for row in rows) else "partition"


def _cells(row: _ShownRow) -> tuple[Any, ...]:
    name = row["topic"] if row["partition"] is None and row["topic"] else partition_name(dict(row))
    kinds = [f"{row[kind]:,} {kind}" for kind in SUSPICIONS[:-1] if row[kind]]
    policy = row["policy_timestamp_type"]
    differs = policy is not None and policy != row["timestamp_type"]
    return (
        name,
        row["timestamp_type"] + (f" (policy: {policy})" if differs else ""),
        row["batches"],
        row["out_of_order_batches"],
        _duration(row["furthest_behind_ms"]),
        _rejected(row, "before"),
        _rejected(row, "after"),
        ", ".join(kinds) or "-",
        *(_duration(row[f"latency_{name}_ms"]) for name in ("min", "median", "p99", "max")),
    )


def _print_histograms(rows: Sequence[_ShownRow]) -> None:
    """Print how many batches of all rows are in each class of distances."""
    if any(row["behind"] is None for row in rows):
        return
    totals: dict[str, dict[int | None, int]] = {name: {} for name in _HISTOGRAMS}
    for row in rows:
        for name, counts in totals.items():
            for one in row[name]:
                counts[one["up_to_ms"]] = counts.get(one["up_to_ms"], 0) + one["batches"]
    cells = []
    for up_to_ms in (*DISTANCES, None):
        counted = [totals[name].get(up_to_ms, 0) for name in _HISTOGRAMS]
        if any(counted):
            cells.append((_class_name(up_to_ms), *counted))
    if cells:
        headings = ("distance", "behind the largest", "older than the file", "later than the file")
        print_table(headings, cells, title="batches by distance")


def _print_comparison(rows: Sequence[_ShownRow], plan: TimestampPlan) -> None:
    """Print the limits, and which clock each number of rejected batches depends on."""
    by_clock = sum(row["judged_by_clock"] or 0 for row in rows)
    by_append = sum(row["judged_by_append_time"] or 0 for row in rows)
    if all(row["judged_by_clock"] is None for row in rows):
        click.echo("From the catalog alone: out of order and suspicious are lower limits.")
    if by_append + by_clock == 0:
        return
    limits = {(row["before_max_ms"], row["after_max_ms"]) for row in rows}
    if len(limits) == 1:
        [(before, after)] = limits
        what = f"{_limit(before, 'before')}, {_limit(after, 'after')}"
    else:
        what = "by the limits of each topic's policy"
    click.echo(f"Rejected: {what}.")
    if by_append:
        click.echo(f"{by_append:,} LogAppendTime batches are compared with their own append time.")
    if by_clock and plan.question.clock == AuditClock.FILE_TIME:
        click.echo(
            f"{by_clock:,} CreateTime batches are compared with the time of their file, as the "
            "broker's clock at the append is not known. The append may have been earlier: a batch "
            "that is 8 days older than its file may have been 6 days old then. So `rejected "
            "before` is an upper limit, and `rejected after` a lower one."
        )
    elif by_clock:
        now = iso_time(plan.question.now_ms)
        click.echo(f"{by_clock:,} CreateTime batches are compared with --now, {now}.")


def _class_name(up_to_ms: int | None) -> str:
    if up_to_ms is None:
        return f"more than {human_duration(DISTANCES[-1])}"
    return f"up to {human_duration(up_to_ms)}" if up_to_ms else "none"


def _duration(duration_ms: int | None) -> str:
    return "-" if duration_ms is None else human_duration(duration_ms)


def _rejected(row: _ShownRow, side: str) -> Any:
    number = row[f"rejected_{side}"]
    return "-" if number is None or row[f"{side}_max_ms"] is None else number


def _limit(limit_ms: int | None, side: str) -> str:
    if limit_ms is None:
        return f"no limit {side} the clock"
    return f"more than {human_duration(limit_ms)} {side} the clock"
