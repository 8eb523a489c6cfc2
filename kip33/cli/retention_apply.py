"""`kip33 retention apply`: carry out a plan and show the result for each partition."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import click

from kip33.cli.declared_options import options_of
from kip33.cli.modes import Mode
from kip33.cli.output import (
    TIMES,
    Column,
    Output,
    OutputFinding,
    Row,
    RowList,
    Table,
    counted,
    facts,
    human_bytes,
    partition_name,
    print_json,
    warn,
)
from kip33.cli.runs import CommandRun, Findings, runs
from kip33.cli.standard_output import OutputError
from kip33.cli.times import current_ms
from kip33.formats.times import with_iso_times
from kip33.retention.apply import Applied, apply_plan
from kip33.retention.apply_segment import PartitionOutcome, Record, RecordKind
from kip33.retention.partition_texts import sizes_text
from kip33.retention.plan import read_plan
from kip33.retention.retention_options import ApplyOptions
from kip33.rules.policies import duration_ms, size_bytes
from kip33.stores.locations import Location
from kip33.stores.progress import Phase, Progress


class ApplyCommand(ApplyOptions):
    """What `kip33 retention apply` is asked."""

    plan_file: str


_STOPPED: Final = PartitionOutcome.STOPPED.value


@click.command(
    "apply",
    cls=Mode,
    epilog="Example: kip33 retention apply plan.jsonl --trash /archive/trash",
)
@click.argument("plan_file", metavar="PLAN")
@options_of(ApplyOptions)
@runs(
    ApplyCommand,
    work="here",
    findings=Findings(
        [_STOPPED],
        "Exit 3. stopped: if a partition was stopped (without this option: exit 4, or 1 after an "
        "error).",
    ),
)
def retention_apply(asked: ApplyCommand, run: CommandRun) -> Output:
    """Delete the segments of PLAN, a file of kip33 retention --plan, and no others.

    Each file is looked at again before it is deleted. A partition with a file that is not as
    planned is stopped there. A plan that was interrupted is applied again, and continues.

    With jsonl the journal's objects are printed immediately; a dry run shows them in any format.
    """
    output_format, dry_run = run.options.output_format, asked["dry_run"]
    is_iso = run.options.time_format != TIMES[0]
    plan = read_plan(Location.of(asked["plan_file"]))
    records: list[Record] = []  # for one JSON object, or the table of a dry run
    steps_done = 0
    unwritten: list[OutputError] = []

    def on_record(record: Record) -> bool:
        nonlocal steps_done
        if output_format == "jsonl":
            try:
                print_json(with_iso_times(record) if is_iso else record)
            except OutputError as error:
                unwritten.append(error)
                return False
        elif output_format == "json" or dry_run:
            records.append(record)
        if record["kind"] == RecordKind.RESULT:
            steps_done += 1
            run.on_progress(Progress(Phase.DELETING, steps_done, plan.segments))
        return True

    applied = apply_plan(
        plan,
        clock=current_ms,
        max_age_ms=duration_ms(asked["max_age"]),
        limit_bytes=size_bytes(asked["limit"]),
        trash=Location.of(asked["trash"]) if asked["trash"] else None,
        dry_run=dry_run,
        on_record=on_record,
        warn=warn,
    )
    partitions = [one._asdict() for one in applied.partitions]
    stopped = [
        f"{partition_name(one)}: {one['why']}"
        for one in partitions
        if one["outcome"] == PartitionOutcome.STOPPED
    ]
    journal = [RowList("journal", records)] if output_format == "json" else []
    return Output(
        page=lambda summary: _unless(unwritten, _page(applied, partitions, summary, records)),
        rows=[*journal, RowList("partitions", _unless(unwritten, partitions), "partition")],
        summary=applied.as_record(),
        summary_key="summary",
        if_unwritten=_what_was_done(applied),
        findings={_STOPPED: OutputFinding(applied.stopped, "partition", lambda: stopped)},
        incomplete=[_STOPPED] if applied.stopped > applied.refused else [],
        refused=[_STOPPED],
    )


def _unless(unwritten: Sequence[OutputError], parts: Iterable[Any]) -> Iterator[Any]:
    """Yield parts of the output; raise the error of what could not be written before."""
    if unwritten:
        raise unwritten[0]
    yield from parts


def _what_was_done(applied: Applied) -> str:
    done = "would be" if applied.dry_run else "were"
    what = "moved" if applied.trash else "deleted"
    text = f"{counted(applied.segments_deleted, 'segment')} {done} {what}"
    if applied.dry_run:
        return text
    again = "; apply the plan again to continue" if applied.stopped else ""
    return f"{text}, the journal is {applied.journal}{again}"


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
        "retention apply",
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
