"""`kip33 truncate`: cut a copied partition at an offset."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click

from kip33.cli.output import Column, Output, Row, RowList, Table, facts, human_bytes
from kip33.cli.runs import CommandRun, runs
from kip33.errors import counted

if TYPE_CHECKING:
    from kip33.restore.truncate_planner import TruncationPlan

MAX_OFFSET: Final = 2**63 - 1
_FIELDS: Final = (
    *("file", "in_log_dir", "action", "bytes_before", "bytes_after"),
    *("entries_before", "entries_after"),
)


@click.command(
    epilog="Example: kip33 truncate /restore/orders-0 --to 4711, then the same with --apply. "
    "kip33/restore/README.md has the order of the steps and what a broker finds after each."
)
@click.argument("partition_dir")
@click.option(
    "--to",
    "offset",
    type=click.IntRange(0, MAX_OFFSET),
    required=True,
    metavar="OFFSET",
    help="The first offset to cut off. Kafka cuts the complete batch that contains it.",
)
@click.option(
    "--apply",
    "is_applied",
    is_flag=True,
    help="Carry out the plan. Without this option, only show it.",
)
@click.option(
    "--plan-id",
    metavar="ID",
    help="With --apply: only if the plan is still this one, as an earlier run has shown it.",
)
@runs(work="local", summary=False)
def truncate(
    partition_dir: str, offset: int, is_applied: bool, plan_id: str | None, run: CommandRun
) -> Output:
    """Cut the log in PARTITION_DIR, a local copy such as orders-0, at an offset.

    Records at the offset and after it are removed as a broker removes them when it truncates a log:
    later segments are deleted, one segment and its .index, .timeindex and .txnindex are cut, and
    leader epochs, producer snapshots and the log directory's checkpoints are adjusted. Without
    --apply nothing is changed. --apply holds the log directory's .lock. If it is interrupted, the
    same command continues.
    """
    from kip33.restore.truncate_apply import planned_or_begun, read_journal
    from kip33.restore.truncate_apply import truncate as apply_truncation
    from kip33.stores.locations import Location

    if plan_id is not None and not is_applied:
        raise click.UsageError("--plan-id is for --apply")
    remarks: list[str] = []
    directory = Location.of(partition_dir)
    if is_applied:
        is_continued = directory.is_local and read_journal(directory) is not None
        plan = apply_truncation(directory, offset, plan_id)
        is_begun = False
        if is_continued:
            remarks = [
                f"a truncation to {plan.to} that was begun is continued, and is complete now"
            ]
    else:
        plan, is_begun = planned_or_begun(directory, offset)
    remarks += plan.notes
    if is_begun:
        remarks.append("this truncation was begun and is not complete; --apply continues it")
    elif plan.changes and not is_applied:
        remarks.append("nothing was changed; --apply carries this out")
    rows = [change.as_row() for change in plan.changes]
    ran = {"applied": is_applied, "plan_id": plan.plan_id, "was_begun": is_begun}
    return Output(
        page=_page(plan, rows, is_applied=is_applied),
        rows=[RowList("files", rows, "file", columns=_FIELDS)],
        summary=plan.summary() | ran,
        remarks=remarks,
    )


def _page(plan: "TruncationPlan", rows: Sequence[Row], *, is_applied: bool) -> Iterator[Table]:
    columns = (
        Column("file", _file, is_name=True),
        Column("action", "action", rank=0),
        Column("bytes", lambda row: _step(row["bytes_before"], row["bytes_after"])),
        Column("entries", lambda row: _step(row["entries_before"], row["entries_after"]), rank=2),
    )
    if rows:
        title = "changed" if is_applied else "to change"
        yield Table(columns, rows, title, "files")
    at_least = "" if plan.records_are_exact else "at least "
    yield facts(
        "truncate",
        ("partition", f"{plan.topic}-{plan.partition}"),
        ("case", plan.case),
        ("log end offset", f"{plan.log_end_offset} -> {plan.end_offset}"),
        ("segments deleted", f"{plan.segments_deleted:,}"),
        ("records cut", f"{at_least}{plan.records_cut:,} in {counted(plan.batches_cut, 'batch')}"),
        ("log bytes cut", human_bytes(plan.log_bytes_cut)),
        ("plan", plan.plan_id),
    )


def _file(row: Row) -> str:
    return f"../{row['file']}" if row["in_log_dir"] else str(row["file"])


def _step(before: int | None, after: int | None) -> str:
    """Return `300 -> 100`; a side that is not there is `-`."""
    if before is None and after is None:
        return ""
    return " -> ".join("-" if one is None else f"{one:,}" for one in (before, after))
