"""`kip33 retention --apply`: carry out a plan and show the result for each partition."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kip33.cli.options import publish_summary
from kip33.cli.output import (
    Column,
    Output,
    Row,
    RowList,
    Table,
    counted,
    facts,
    human_bytes,
    partition_name,
    print_json,
    show,
    warn,
)
from kip33.cli.progress import progress_line
from kip33.cli.retention_question import RetentionCommand
from kip33.cli.retention_tables import sizes_text
from kip33.cli.standard_output import OutputError
from kip33.cli.times import current_ms
from kip33.errors import ExitCode, Kip33Error, exit_code_of
from kip33.retention.apply import Applied, apply_plan
from kip33.retention.apply_segment import PartitionOutcome, Record, RecordKind
from kip33.retention.plan import read_plan
from kip33.stores.locations import Location
from kip33.stores.progress import Phase, Progress


def apply_file(options: RetentionCommand) -> ExitCode:
    """Carry out the plan of --apply; return the exit code.

    With jsonl the journal's objects are printed immediately; a dry run shows them in any format.
    """
    started = time.monotonic()
    output_format, dry_run = options.output_format, options.dry_run
    plan = read_plan(Location.of(options.apply_file or ""))
    records: list[Record] = []  # for one JSON object, or the table of a dry run
    steps_done = 0
    unwritten: list[OutputError] = []
    with progress_line("retention") as on_progress:

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
            if record["kind"] == RecordKind.RESULT:
                steps_done += 1
                on_progress(Progress(Phase.DELETING, steps_done, plan.segments))
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
        untold = Kip33Error(
            f"{error}; {_what_was_done(applied)}"
            + (f", the journal is {applied.journal}" if not dry_run else "")
            + ("; apply the plan again to continue" if applied.stopped and not dry_run else "")
        )
        untold.exit_code = error.exit_code
        raise untold from error
    is_asked = PartitionOutcome.STOPPED in options.fail_on
    return exit_code_of(
        findings=bool(applied.stopped and is_asked),
        incomplete=applied.stopped > applied.refused,
        refused=bool(applied.refused),
    )


def _what_was_done(applied: Applied) -> str:
    done = "would be" if applied.dry_run else "were"
    what = "moved" if applied.trash else "deleted"
    return f"{counted(applied.segments_deleted, 'segment')} {done} {what}"


def _print(
    output_format: str, applied: Applied, summary: dict[str, Any], records: list[Record]
) -> None:
    partitions = [one._asdict() for one in applied.partitions]
    journal = [RowList("journal", records)] if output_format == "json" else []
    answer = Output(
        page=_page(applied, partitions, summary, records),
        rows=[*journal, RowList("partitions", partitions, "partition")],
        summary=summary,
        summary_key="summary",
    )
    show(answer, output_format)


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
        "log_bytes_deleted": applied.log_bytes_deleted,
        "journal": applied.journal,
        "trash": applied.trash,
        "continues": list(applied.continues),
        "findings": [str(PartitionOutcome.STOPPED)] if applied.stopped else [],
    }


def _page(
    applied: Applied, partitions: Sequence[Row], summary: Row, records: list[Record]
) -> Iterator[Table]:
    """Yield the effect of each step of a dry run, the partitions, and the sums."""
    dry_run = applied.dry_run
    if dry_run:
        yield Table(_JOURNAL, records, "steps that would be carried out", "objects")
    title = "would be deleted" if dry_run else "deleted"
    stopped_first = sorted(partitions, key=lambda one: one["outcome"] != PartitionOutcome.STOPPED)
    yield Table(_PARTITIONS, stopped_first, title, "partitions")
    done = "moved" if applied.trash else "deleted"
    continues = f"run {', '.join(applied.continues)}" if applied.continues else None
    segments = counted(applied.segments_deleted, "segment")
    size = sizes_text(applied.log_bytes_deleted, applied.bytes_deleted)
    yield facts(
        "retention --apply",
        ("plan", applied.plan_id),
        ("continues", continues),
        (f"would be {done}" if dry_run else done, f"{segments}: {size}"),
        ("trash", applied.trash or None),
        ("already deleted", counted(summary["segments_gone_already"], "segment")),
        ("stopped", f"{applied.stopped:,} of {counted(len(partitions), 'partition')}"),
        ("journal", "none (dry run)" if dry_run else applied.journal),
        ("seconds", f"{summary['seconds']:.1f}"),
    )


_JOURNAL: Final = (
    Column("partition", partition_name, is_name=True),
    Column("segment", "base_offset", str, is_name=True),
    Column("object", "kind", rank=0),
    Column("outcome", "outcome", none="", rank=0),
    Column("files", "files", len, rank=2),
    Column("size", lambda row: sum(file["size_bytes"] for file in row["files"]), human_bytes),
    Column("why", "why", none="", is_remark=True),
)
_PARTITIONS: Final = (
    Column("partition", partition_name, is_name=True),
    Column("planned", "segments_planned"),
    Column("deleted", "segments_deleted", rank=0),
    Column("already deleted", "segments_gone_already", rank=2),
    Column("freed", "bytes_deleted", human_bytes),
    Column("outcome", "outcome", rank=0),
    Column("why", "why", none="", is_remark=True),
)
