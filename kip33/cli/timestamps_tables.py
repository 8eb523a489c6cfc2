"""The tables of `kip33 timestamps`."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from kip33.audits.timestamp_plan import AuditClock, TimestampPlan
from kip33.cli.output import (
    MOST_TABLE_ROWS,
    human_bytes,
    human_duration,
    iso_time,
    print_table,
    warn,
)
from kip33.cli.search_tables import partition_name
from kip33.rules.suspicious_timestamps import SUSPICIONS
from kip33.rules.timestamp_profile import DISTANCES

_HISTOGRAMS: Final = ("behind", "before_file", "after_file")
_MOST_WARNINGS: Final = 20

Row = Mapping[str, Any]


def print_timestamps(rows: Sequence[Row], summary: Row, plan: TimestampPlan) -> None:
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


def _heading(rows: Sequence[Row]) -> str:
    return "topic" if all(row["partition"] is None for row in rows) else "partition"


def _cells(row: Row) -> tuple[Any, ...]:
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


def _print_histograms(rows: Sequence[Row]) -> None:
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


def _print_comparison(rows: Sequence[Row], plan: TimestampPlan) -> None:
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
            "broker's clock at the append is not known. The append was not later: rejected before "
            "is at most this number, rejected after at least."
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


def _rejected(row: Row, side: str) -> Any:
    number = row[f"rejected_{side}"]
    return "-" if number is None or row[f"{side}_max_ms"] is None else number


def _limit(limit_ms: int | None, side: str) -> str:
    if limit_ms is None:
        return f"no limit {side} the clock"
    return f"more than {human_duration(limit_ms)} {side} the clock"
