"""`kip33 retention --apply`: carry out a plan and show the result for each partition."""

import json
import sys
import time
from typing import Any, Final

import click

from kip33.cli.options import publish_summary
from kip33.cli.output import RESULT, human_bytes, print_json, print_table, warn
from kip33.cli.retention_question import RetentionCommand
from kip33.cli.retention_tables import MOST_PARTITIONS
from kip33.cli.standard_output import OutputError, progress_bar
from kip33.cli.times import current_ms
from kip33.errors import ExitCode, Kip33Error, exit_code_of
from kip33.retention.apply import Applied, apply_plan
from kip33.retention.apply_segment import PartitionOutcome, Record, RecordKind
from kip33.retention.plan import read_plan
from kip33.stores.locations import Location

MOST_RECORDS: Final = 1_000


def apply_file(options: RetentionCommand) -> ExitCode:
    """Carry out the plan of --apply; return the exit code.

    With jsonl the journal's objects are printed immediately; a dry run shows them in any format.
    """
    started = time.monotonic()
    output_format, dry_run = options.output_format, options.dry_run
    if output_format == "csv":
        raise click.UsageError("--apply has no CSV output: give --format table, json or jsonl")
    plan = read_plan(Location.of(options.apply_file or ""))
    records: list[Record] = []  # for one JSON object, or the table of a dry run
    steps_done = 0
    unwritten: list[OutputError] = []
    with progress_bar("retention: segments") as bar:

        def on_record(record: Record) -> bool:
            nonlocal steps_done
            if output_format == "jsonl":
                try:
                    print_json(record)
                except OutputError as error:
                    unwritten.append(error)
                    return False
            elif output_format == "json" or dry_run:
                records.append(record)
            if bar and record["kind"] == RecordKind.RESULT:
                steps_done += 1
                bar.advance(steps_done, plan.segments)
            return True

        applied = apply_plan(
            plan,
            clock=current_ms,
            max_age_ms=options.max_age,
            limit_bytes=options.limit,
            trash=Location.of(options.trash) if options.trash else None,
            dry_run=dry_run,
            on_record=on_record,
            warn=warn,
        )
    summary = _summary(applied) | {"seconds": round(time.monotonic() - started, 3)}
    publish_summary(options.summary_file, summary)
    try:
        if unwritten:
            raise unwritten[0]
        _print(output_format, applied, summary, records)
        sys.stdout.flush()
    except OutputError as error:
        raise _UntoldError(
            f"{error}; {_what_was_done(applied)}"
            + (f", the journal is {applied.journal}" if not dry_run else "")
            + ("; apply the plan again to continue" if applied.stopped and not dry_run else "")
        ) from error
    is_asked = PartitionOutcome.STOPPED in options.fail_on
    return exit_code_of(
        findings=bool(applied.stopped and is_asked),
        incomplete=applied.stopped > applied.refused,
        refused=bool(applied.refused),
    )


class _UntoldError(Kip33Error):
    """The result of an apply cannot be printed."""

    exit_code = ExitCode.INCOMPLETE


def _what_was_done(applied: Applied) -> str:
    done = "would be" if applied.dry_run else "were"
    what = "moved" if applied.trash else "deleted"
    return f"{applied.segments_deleted:,} segments {done} {what}"


def _print(
    output_format: str, applied: Applied, summary: dict[str, Any], records: list[Record]
) -> None:
    partitions = [one._asdict() for one in applied.partitions]
    if output_format == "json":
        print_json({"journal": records, "partitions": partitions, "summary": summary})
    elif output_format == "jsonl":
        for partition in partitions:
            print_json({"kind": "partition", **partition})
        print_json({"kind": "summary", **summary})
    else:
        if applied.dry_run:
            _print_journal(records)
        _print_tables(applied, summary)


def _summary(applied: Applied) -> dict[str, Any]:
    gone_already = sum(one.segments_gone_already for one in applied.partitions)
    return {
        "plan_id": applied.plan_id,
        "run_id": applied.run_id,
        "dry_run": applied.dry_run,
        "partitions": len(applied.partitions),
        "stopped_partitions": applied.stopped,
        "refused_partitions": applied.refused,
        "segments_deleted": applied.segments_deleted,
        "segments_gone_already": gone_already,
        "bytes_deleted": applied.bytes_deleted,
        "journal": applied.journal,
        "trash": applied.trash,
        "continues": list(applied.continues),
        "findings": [str(PartitionOutcome.STOPPED)] if applied.stopped else [],
    }


def _print_journal(records: list[Record]) -> None:
    """Print the effect of each step, in the order of the steps."""
    rows = [
        (
            f"{record['log_dir']}/{record['topic']}-{record['partition']}".lstrip("/"),
            str(record["base_offset"]),
            record["kind"],
            record["outcome"] or "",
            len(record["files"]),
            human_bytes(sum(file["size_bytes"] for file in record["files"])),
            record["why"],
        )
        for record in records[:MOST_RECORDS]
    ]
    columns = ("partition", "segment", "object", "outcome", "files", "size", "why")
    print_table(columns, rows, title="the journal, as it would be")
    if len(records) > MOST_RECORDS:
        more = len(records) - MOST_RECORDS
        click.echo(f"and {more:,} more objects; --format jsonl shows all of them")


def _print_tables(applied: Applied, summary: dict[str, Any]) -> None:
    stopped_first = sorted(
        applied.partitions, key=lambda one: one.outcome != PartitionOutcome.STOPPED
    )
    rows = [
        (
            f"{one.log_dir}/{one.topic}-{one.partition}".lstrip("/"),
            one.segments_planned,
            one.segments_deleted,
            one.segments_gone_already,
            human_bytes(one.bytes_deleted),
            one.outcome,
            one.why,
        )
        for one in stopped_first[:MOST_PARTITIONS]
    ]
    columns = ("partition", "planned", "deleted", "already deleted", "freed", "outcome", "why")
    title = "would be deleted" if applied.dry_run else "deleted"
    print_table(columns, rows, title=title)
    if len(applied.partitions) > len(rows):
        more = len(applied.partitions) - len(rows)
        click.echo(f"and {more:,} more partitions; --format jsonl shows all of them")
    size = human_bytes(applied.bytes_deleted)
    what = "would be moved" if applied.trash else "would be deleted"
    done = "moved" if applied.trash else "deleted"
    table = [
        ("plan", applied.plan_id),
        (what if applied.dry_run else done, f"{applied.segments_deleted:,} segments, {size}"),
        ("already deleted", f"{summary['segments_gone_already']:,} segments"),
        ("stopped", f"{applied.stopped:,} of {len(applied.partitions):,} partitions"),
        ("journal", applied.journal if not applied.dry_run else "none (dry run)"),
        ("seconds", f"{summary['seconds']:.1f}"),
    ]
    if applied.trash:
        table.insert(2, ("trash", applied.trash))
    if applied.continues:
        table.insert(1, ("continues", f"run {', '.join(applied.continues)}"))
    print_table(("retention --apply", ""), table)
    click.echo(RESULT + json.dumps(summary))
