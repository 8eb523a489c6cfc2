"""`kip33 timestamps`: types, order, distance from clocks, and latency of an archive's batches."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Final

import click

from kip33.archive.common_options import PolicyFiles
from kip33.archive.moments import time_ms, time_or_now
from kip33.audits.timestamp_answers import (
    TIMESTAMP_FINDINGS,
    TimestampAnswer,
    TimestampRequest,
    count_in,
    profile_timestamps,
)
from kip33.audits.timestamp_plan import TIMESTAMPS, AuditClock, TimestampPlan
from kip33.cli.declared_options import options_of
from kip33.cli.option_groups import GroupedCommand
from kip33.cli.output import (
    Column,
    Output,
    OutputFinding,
    Row,
    RowList,
    Table,
    counted,
    human_bytes,
    human_duration,
    iso_time,
    partition_name,
    warn,
    warn_of_first,
)
from kip33.cli.runs import CommandRun, Findings, runs
from kip33.formats.times import Time
from kip33.options import Option
from kip33.retention.policy_files import load_policies
from kip33.rules.suspicious_timestamps import SUSPICIONS
from kip33.rules.timestamp_profile import DISTANCES

_HISTOGRAMS: Final = ("behind", "before_file", "after_file")
_MOST_WARNINGS: Final = 20


class _TimestampsAt(TimestampRequest):
    """A request, and its time; a program has another default for it."""

    now: Annotated[
        Time | None,
        Option(
            "The current time, for --clock now and for suspicious timestamps [default: the clock].",
            metavar="T",
            parse=time_ms,
        ),
    ]


@click.command(
    cls=GroupedCommand,
    epilog="Example: kip33 timestamps /archive/kafka-logs --kafka-configs described.txt "
    "--fail-on suspicious",
)
@click.argument("source", metavar="SOURCE|CATALOG")
@options_of(_TimestampsAt)
@options_of(PolicyFiles)
@runs(
    findings=Findings(
        TIMESTAMP_FINDINGS,
        "Exit 3 if there is such a batch, partition or log.",
    ),
)
def timestamps(asked: _TimestampsAt, files: PolicyFiles, run: CommandRun) -> Output:
    """Show how the timestamps of an archive were made, from the headers of its batches.

    Type: CreateTime, LogAppendTime, none or mixed. Out of order: batches behind the largest
    timestamp before them in the partition, and how far the furthest one is behind.

    Rejected: batches that message.timestamp.before.max.ms or after.max.ms refuses. A broker
    compares with its clock at the append, which an archive does not have. LogAppendTime batches of
    format v2 are compared with their own append time. CreateTime batches are compared with the time
    of their file. The append may have been earlier: a batch that is 8 days older than its file may
    have been 6 days old then. So `rejected_before` is an upper limit, and `rejected_after` a lower
    one. A copied archive keeps this only if it keeps the files' times. With --clock now they are
    compared with --now, as if the archive were produced again. A header has the largest and the
    first timestamp of a batch; other records are not looked at.

    Suspicious: seconds, microseconds or nanoseconds in place of milliseconds, before 1990, or
    later than --now by more than the limit.

    Latency, of LogAppendTime batches of format v2: the append time minus the first timestamp of
    the producer. The median and the 99th percentile are exact below 256 ms; from there on they
    are at most 0.8 % too large. Minimum and maximum are exact.

    The rows are described in kip33/api/RESULTS.md.
    """
    found = profile_timestamps(
        asked,
        load_policies(**files),
        time_or_now(asked["now"]),
        run.open_engine,
        warn,
        run.on_progress,
    )
    summary = found.summary()
    return Output(
        page=partial(_page, found.rows, found.plan),
        rows=[RowList("timestamps", found.rows, columns=TIMESTAMPS.names, in_csv=_in_csv)],
        summary=summary,
        summary_key="summary",
        findings={
            name: OutputFinding(count, _UNITS.get(name, "batch"), partial(_examples, found, name))
            for name, count in summary["findings"].items()
        },
        unread=found.unreadable,
        logs=found.plan.files.num_rows,
    )


_UNITS: Final = {"mixed": "partition", "unreadable": "log"}


def _examples(found: TimestampAnswer, finding: str) -> Iterator[str]:
    """Yield the partitions with a finding, of `unreadable` the lines on the logs."""
    for row in found.rows:
        if finding == "unreadable":
            yield from (f"{partition_name(row)}: {one}" for one in row["problems"])
        elif count := count_in(row, finding):
            what = counted(count, "batch") if finding != "mixed" else row["timestamp_type"]
            yield f"{partition_name(row)}: {what}"


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


def _page(rows: Sequence[Row], plan: TimestampPlan, summary: Row) -> Iterator[Table | str]:
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
