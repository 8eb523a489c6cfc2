"""Answer `kip33 roll`: from the options to the rows, their output and the findings."""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TextIO

import click
import pyarrow as pa

from kip33.audits.roll_audit import FIGURES, RollAudit, audit_columns, roll_partitions, roll_tables
from kip33.audits.roll_logs import logs_below, logs_of, read_first_batches, read_source
from kip33.audits.roll_what_if import (
    ReplayedPartition,
    WhatIfRequest,
    replay_partitions,
    replay_sums,
    segment_rows,
)
from kip33.catalog.catalog import Catalog
from kip33.catalog.catalog_columns import CatalogColumns, read_columns
from kip33.cli.engine_option import engine_choice, open_engine
from kip33.cli.output import RESULT, print_rows, warn, warn_of_unreadable
from kip33.cli.progress import ProgressBar, progress_bar
from kip33.cli.retention_local import csv_lines, json_lines
from kip33.cli.roll_options import RollRequest
from kip33.cli.roll_report import MOST_SENTENCES, print_audit, print_replays
from kip33.cli.snapshot_choice import choose_and_warn
from kip33.cli.standard_output import exact_output
from kip33.cli.summary_file import publish_summary
from kip33.cli.times import current_ms
from kip33.errors import ExitCode
from kip33.retention.policy_files import load_policies
from kip33.rules.policies import Policies
from kip33.rules.retention import NO_LIMIT
from kip33.rules.rolling import RollReading, TopicRollSettings
from kip33.stores.locations import Location


class Archive(NamedTuple):
    """What is audited: a snapshot's columns, or the logs below a SOURCE."""

    columns: CatalogColumns | None
    logs: pa.Table | None
    about: dict[str, Any]  # for the summary

    @classmethod
    def of(cls, source: str, request: RollRequest, bar: ProgressBar | None) -> "Archive":
        """Return the archive at a path or URI; UsageError for options that do not go with it."""
        place = Location.of(source)
        catalog = Catalog(place)
        if not catalog.commit_names():
            _require_no_catalog_option(request)
            logs = logs_below(
                source,
                topics=request.topics,
                layout=request.layout,
                on_listed=bar.listed if bar else None,
            )
            return cls(None, logs, {"source": place.uri})
        snapshot, warnings = choose_and_warn(catalog, request.snapshot)
        columns = read_columns(catalog, snapshot, request.topics, more=FIGURES)
        about = {
            "catalog": catalog.location.uri,
            "snapshot": snapshot.name,
            "source": snapshot.source,
            "warnings": list(warnings),
        }
        return cls(columns, None, about)


def answer_roll(source: str, request: RollRequest) -> set[str]:
    """Print and write the answer; return the findings."""
    started = time.monotonic()
    policies = load_policies(request.policy, request.kafka_configs)
    settings = TopicRollSettings(policies, request.given)
    settings.require_valid()
    if request.what_if:
        return _what_if(source, request, policies, settings, started)
    with progress_bar("roll") as bar:
        archive = Archive.of(source, request, bar)
        audit, read, is_unread = _audit(archive, request, settings, bar)
    now_ms = current_ms() if request.now is None else request.now
    summary = {
        **archive.about,
        "reading": request.reading,
        "now_ms": now_ms,
        **audit.totals(),
        "active_past_limit_segments": audit.active_past_limit(now_ms),
        **read,
        "seconds": round(time.monotonic() - started, 3),
    }
    found = {one.name for one in audit.findings if one.rows.any()}
    summary["findings"] = sorted(found)
    publish_summary(request.summary_file, summary)
    _print_audit(audit, request, summary)
    if is_unread:
        sys.exit(ExitCode.INCOMPLETE)
    return found


def _audit(
    archive: Archive, request: RollRequest, settings: TopicRollSettings, bar: ProgressBar | None
) -> tuple[RollAudit, dict[str, Any], bool]:
    """Return the audit, for the summary what was read by which engine, and whether no log was."""
    reading = RollReading(request.reading)
    if archive.columns is not None and not request.read_headers:
        engine_choice(request.engine)  # refuses options that contradict each other
        audit = audit_columns(archive.columns, settings.of, reading=reading)
        return audit, {"bytes_read": 0, "engine": "local", "workers": 1}, False
    engine = open_engine(request.engine)
    progress = bar.advance if bar else None
    how: dict[str, Any] = {"parallelism": request.parallelism, "on_progress": progress}
    if archive.logs is not None:
        logs = archive.logs.num_rows
        columns, facts, bytes_read, errors = read_source(archive.logs, settings.of, engine, **how)
    else:
        assert archive.columns is not None
        columns = archive.columns
        logs = int(columns.int64("base_offset").known.sum())
        facts, bytes_read, errors = read_first_batches(columns, engine, **how)
        for error in errors[:MOST_SENTENCES]:
            warn(f"{error}; what its header would tell is unknown")
    audit = audit_columns(columns, settings.of, reading=reading, facts=facts)
    read = {"bytes_read": bytes_read, "engine": engine.name, "workers": engine.workers}
    return audit, read, warn_of_unreadable(errors, of=logs)


def _what_if(
    source: str,
    request: RollRequest,
    policies: Policies,
    settings: TopicRollSettings,
    started: float,
) -> set[str]:
    if request.fail_on:
        raise click.UsageError(
            "--fail-on cannot be combined with --what-if, which finds nothing",
            click.get_current_context(),
        )
    with progress_bar("roll") as bar:
        archive = Archive.of(source, request, bar)
        engine = open_engine(request.engine)
        logs = logs_of(archive.columns) if archive.columns is not None else archive.logs
        assert logs is not None
        found = replay_partitions(
            logs,
            WhatIfRequest(settings.of),
            engine,
            parallelism=request.parallelism,
            on_progress=bar.advance if bar else None,
        )
    retention = {
        one.topic: _retention_ms(one.topic, request.retention_ms, policies) for one in found
    }
    sums = [
        replay_sums(one, replay, retention[one.topic]) for one in found for replay in one.replays
    ]
    summary = {
        **archive.about,
        "partitions": len(found),
        "archived_segments": sum(one.archived_segments for one in found),
        "archived_bytes": sum(one.archived_bytes for one in found),
        "batches": sum(one.batches for one in found),
        "readings": {reading.value: _totals(sums, reading) for reading in RollReading},
        "doubts": sum(len(one.doubts) for one in found),
        "bytes_read": sum(one.bytes_read for one in found),
        "engine": engine.name,
        "workers": engine.workers,
        "seconds": round(time.monotonic() - started, 3),
    }
    publish_summary(request.summary_file, summary)
    _print_replays(found, retention, sums, request, summary)
    unreadable = [line for one in found for line in one.unreadable]
    if warn_of_unreadable(unreadable, of=logs.num_rows):
        sys.exit(ExitCode.INCOMPLETE)
    return set()


def _retention_ms(topic: str | None, given: int | None, policies: Policies) -> int:
    if given is not None:
        return given
    return policies.of(topic).retention_ms if topic else NO_LIMIT


def _totals(sums: list[dict[str, Any]], reading: RollReading) -> dict[str, int]:
    some = [one for one in sums if one["reading"] == reading]
    names = ("segments", "offset_index_bytes", "time_index_bytes")
    return {name: sum(one[name] for one in some) for name in names}


def _require_no_catalog_option(request: RollRequest) -> None:
    for option, is_given in (
        ("--snapshot", request.snapshot is not None),
        ("--read-headers", request.read_headers),
    ):
        if is_given:
            raise click.UsageError(
                f"{option} goes with a CATALOG; of a SOURCE, all headers are read",
                click.get_current_context(),
            )


def _print_audit(audit: RollAudit, request: RollRequest, summary: dict[str, Any]) -> None:
    partitions = roll_partitions(audit)
    if request.output_format == "table":
        print_audit(audit, partitions, summary)
    elif request.output_format == "csv":
        _print_each(csv_lines(roll_tables(audit)), exact_output())
        _say_apart(summary)
    elif request.output_format == "jsonl":
        for table in roll_tables(audit):
            _print_each(json_lines(table, "segment"))
        _print_each(json_lines(partitions, "partition"))
        click.echo(json.dumps({"kind": "summary", **summary}))
    else:
        click.echo('{"segments": [', nl=False)
        _print_joined(line for table in roll_tables(audit) for line in json_lines(table, None))
        click.echo('], "partitions": [', nl=False)
        _print_joined(json_lines(partitions, None))
        click.echo(f'], "summary": {json.dumps(summary)}}}')


def _print_replays(
    found: list[ReplayedPartition],
    retention: dict[str | None, int],
    sums: list[dict[str, Any]],
    request: RollRequest,
    summary: dict[str, Any],
) -> None:
    if request.output_format == "table":
        print_replays(sums, summary)
        return
    rows = [
        row
        for one in found
        for replay in one.replays
        for row in segment_rows(one, replay, retention[one.topic])
    ]
    if request.output_format == "csv":
        print_rows(rows, list(rows[0]) if rows else [], "csv")
        _say_apart(summary)
    elif request.output_format == "jsonl":
        _print_each(json.dumps({"kind": "segment", **row}) for row in rows)
        _print_each(json.dumps({"kind": "partition", **row}) for row in sums)
        click.echo(json.dumps({"kind": "summary", **summary}))
    else:
        click.echo(json.dumps({"segments": rows, "partitions": sums, "summary": summary}))


def _print_each(lines: Iterable[str], stream: TextIO | None = None) -> None:
    for line in lines:
        click.echo(line, stream, color=True)


def _print_joined(lines: Iterator[str]) -> None:
    for number, line in enumerate(lines):
        click.echo((", " if number else "") + line, nl=False)


def _say_apart(summary: dict[str, Any]) -> None:
    """Print the machine-readable line apart from the data: spark-submit joins both streams."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        click.echo(RESULT + json.dumps(summary), err=True)
