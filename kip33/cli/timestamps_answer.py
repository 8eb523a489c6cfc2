"""The answer of `kip33 timestamps`: its plan, the engine, the output and the exit code."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

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
from kip33.cli.engine_option import engine_choice, open_engine
from kip33.cli.output import RESULT, print_json, print_rows, warn_of_unreadable
from kip33.cli.progress import progress_bar
from kip33.cli.snapshot_choice import choose_and_warn
from kip33.cli.summary_file import publish_summary
from kip33.cli.times import current_ms
from kip33.cli.timestamps_options import (
    MIXED,
    OUT_OF_ORDER,
    REJECTED,
    SUSPICIOUS,
    UNREADABLE,
    TimestampsRequest,
)
from kip33.cli.timestamps_tables import print_timestamps
from kip33.errors import ExitCode
from kip33.retention.policy_files import load_policies
from kip33.rules.suspicious_timestamps import SUSPICIONS
from kip33.rules.timestamp_profile import MIXED as MIXED_TYPE
from kip33.rules.timestamp_profile import NONE as NO_TYPE
from kip33.rules.timestamp_profile import LimitChoice
from kip33.stores.locations import Location

Row = dict[str, Any]


def show_timestamps(request: TimestampsRequest) -> None:
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
            f"{option} requires a CATALOG, and {place.uri} has none; give the catalog of a build",
            click.get_current_context(),
        )
    if request.catalog_only and request.by != "partition":
        raise click.UsageError(
            "--catalog-only shows partitions: leave out --by topic", click.get_current_context()
        )
    with progress_bar("timestamps") as bar:
        engine_choice(request.engine_options)
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
            rows, unreadable, ran = _profiled(request, plan, bar.advance if bar else None)
    summary = _summary(rows)
    summary |= {"warnings": list(warnings), "engine": ran[0], "workers": ran[1]}
    summary["seconds"] = round(time.monotonic() - started, 3)
    publish_summary(request.summary_file, summary)
    _print(request, rows, summary, plan)
    if warn_of_unreadable(unreadable, of=plan.files.num_rows):
        sys.exit(ExitCode.INCOMPLETE)
    if any(summary["findings"][name] for name in request.fail_on):
        sys.exit(ExitCode.FINDINGS)


def _question(request: TimestampsRequest) -> TimestampQuestion:
    policies = None
    if request.policy or request.kafka_configs:
        policies = load_policies(request.policy, request.kafka_configs)
    limits = LimitChoice(
        request.before_max_ms, request.after_max_ms, request.difference_max_ms, policies
    )
    now_ms = current_ms() if request.now is None else request.now
    return TimestampQuestion(limits, AuditClock(request.clock), now_ms)


def _profiled(
    request: TimestampsRequest, plan: TimestampPlan, on_progress: Any
) -> tuple[list[Row], list[str], tuple[EngineName, int]]:
    """Return the rows, a line for each log that could not be read, and what engine ran."""
    engine = open_engine(request.engine_options._replace(verbose=False))
    found = execute_timestamps(
        plan, engine, parallelism=request.parallelism, on_progress=on_progress
    )
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
            MIXED: sum(map(_is_mixed, rows)),
            OUT_OF_ORDER: total("out_of_order_batches"),
            REJECTED: total("rejected_before", "rejected_after"),
            SUSPICIOUS: suspicious,
            UNREADABLE: sum(len(row["problems"]) for row in rows),
        },
    }


def _is_mixed(row: Mapping[str, Any]) -> bool:
    """Return whether batches have several types, or another one than the topic's policy says."""
    found, policy = row["timestamp_type"], row["policy_timestamp_type"]
    return found == MIXED_TYPE or (policy is not None and found not in (NO_TYPE, policy))


def _print(request: TimestampsRequest, rows: list[Row], summary: Row, plan: TimestampPlan) -> None:
    if request.output_format == "table":
        print_timestamps(rows, summary, plan)
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
