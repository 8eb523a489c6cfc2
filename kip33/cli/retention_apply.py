"""`kip33 retention apply` and `undo`: carry out a plan, and put back what it moved to a trash."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import click

from kip33.archive.moments import current_ms
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
from kip33.formats.times import with_iso_times
from kip33.retention.apply import Applied, apply_plan
from kip33.retention.apply_segment import (
    KEPT_PLAN,
    PartitionOutcome,
    Record,
    RecordKind,
    StepOutcome,
)
from kip33.retention.partition_texts import sizes_text
from kip33.retention.plan import PARTITION_KEY, RetentionPlan, read_plan
from kip33.retention.retention_options import ApplyOptions, UndoOptions
from kip33.retention.undo import Undone, undo_plan
from kip33.rules.policies import duration_ms, size_bytes
from kip33.stores.locations import Location
from kip33.stores.progress import Phase, Progress


class ApplyCommand(ApplyOptions):
    """What `kip33 retention apply` is asked."""

    plan_file: str


_STOPPED: Final = PartitionOutcome.STOPPED.value
_NOT_PUT_BACK: Final = StepOutcome.NOT_PUT_BACK.value


class _Steps:
    """The objects of a journal: printed at once as lines of JSON, else kept for the output."""

    def __init__(
        self, run: CommandRun, plan: RetentionPlan, phase: Phase, *, dry_run: bool
    ) -> None:
        self.kept: list[Record] = []
        self._run, self._plan, self._phase, self._dry_run = run, plan, phase, dry_run
        self._is_iso = run.options.time_format != TIMES[0]
        self._done = 0
        self._unwritten: list[OutputError] = []

    def __call__(self, record: Record) -> bool:
        """Take an object; return False if standard output cannot be written."""
        output_format = self._run.options.output_format
        if output_format == "jsonl":
            try:
                print_json(with_iso_times(record) if self._is_iso else record)
            except OutputError as error:
                self._unwritten.append(error)
                return False
        elif output_format == "json" or self._dry_run:
            self.kept.append(record)
        if record["kind"] == RecordKind.RESULT:
            self._done += 1
            self._run.on_progress(Progress(self._phase, self._done, self._plan.segments))
        return True

    def as_list(self) -> list[RowList]:
        """Return the objects for one JSON object."""
        is_json = self._run.options.output_format == "json"
        return [RowList("journal", self.kept)] if is_json else []

    def unless(self, parts: Iterable[Any]) -> Iterator[Any]:
        """Yield parts of the output; raise the error of what could not be written before."""
        if self._unwritten:
            raise self._unwritten[0]
        yield from parts

    def of_segments(self) -> Table:
        """Return a dry run's table: a row for each segment, in the order of the log."""
        results = (one for one in self.kept if one["kind"] == RecordKind.RESULT)
        by_place = sorted(results, key=lambda one: (*(one[name] for name in _PLACE),))
        return Table(_SEGMENTS, by_place, "what would be done", "segments")


@click.command(
    "apply",
    cls=Mode,
    epilog="Example: kip33 retention apply plan.jsonl --trash /archive/trash",
)
@click.argument("plan_file", metavar="PLAN")
@options_of(ApplyOptions)
@runs(
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

    With jsonl the journal's objects are printed immediately; a dry run shows a row for each
    segment.
    """
    plan = read_plan(Location.of(asked["plan_file"]))
    steps = _Steps(run, plan, Phase.DELETING, dry_run=asked["dry_run"])
    applied = apply_plan(
        plan,
        clock=current_ms,
        max_age_ms=duration_ms(asked["max_age"]),
        limit_bytes=size_bytes(asked["limit"]),
        trash=Location.of(asked["trash"]) if asked["trash"] else None,
        dry_run=asked["dry_run"],
        on_record=steps,
        warn=warn,
    )
    partitions = [one._asdict() for one in applied.partitions]
    stopped = [
        f"{partition_name(one)}: {one['why']}"
        for one in partitions
        if one["outcome"] == PartitionOutcome.STOPPED
    ]
    return Output(
        page=lambda summary: steps.unless(_page(applied, asked, partitions, summary, steps)),
        rows=[*steps.as_list(), RowList("partitions", steps.unless(partitions), "partition")],
        summary=applied.as_record(),
        summary_key="summary",
        if_unwritten=_what_was_done(applied),
        findings={_STOPPED: OutputFinding(applied.stopped, "partition", lambda: stopped)},
        incomplete=[_STOPPED] if applied.stopped > applied.refused else [],
        refused=[_STOPPED],
    )


def _what_was_done(applied: Applied) -> str:
    done = "would be" if applied.dry_run else "were"
    what = "moved" if applied.trash else "deleted"
    text = f"{counted(applied.segments_deleted, 'segment')} {done} {what}"
    if applied.dry_run:
        return text
    again = "; apply the plan again to continue" if applied.stopped else ""
    return f"{text}, the journal is {applied.journal}{again}"


def _page(
    applied: Applied, asked: ApplyCommand, partitions: Sequence[Row], summary: Row, steps: _Steps
) -> Iterator[Table]:
    """Yield the segments of a dry run, the partitions, and the sums."""
    dry_run, trash = applied.dry_run, asked["trash"]
    if dry_run:
        yield steps.of_segments()
    done = "moved" if trash else "deleted"
    title = f"would be {done}" if dry_run else done
    stopped_first = sorted(partitions, key=lambda one: one["outcome"] != PartitionOutcome.STOPPED)
    yield Table(_partition_columns(done), stopped_first, title, "partitions")
    continues = f"run {', '.join(applied.continues)}" if applied.continues else None
    segments = counted(applied.segments_deleted, "segment")
    size = sizes_text(applied.log_bytes_deleted, applied.bytes_deleted)
    is_moved = bool(trash) and (applied.is_plan_in_trash or applied.bytes_deleted > 0)
    undo = ["kip33", "retention", "undo", _plan_to_undo(applied, asked), "--trash", str(trash)]
    yield facts(
        "retention apply",
        ("plan", applied.plan_id),
        ("continues", continues),
        (title, f"{segments}: {size}"),
        ("freed", "nothing until the trash is removed" if is_moved else None),
        ("trash", applied.trash if is_moved else None),
        ("undo", shlex.join(undo) if is_moved and not dry_run else None),
        (f"already {done}", counted(summary["segments_gone_already"], "segment")),
        ("stopped", f"{applied.stopped:,} of {counted(len(partitions), 'partition')}"),
        ("journal", "none (dry run)" if dry_run else applied.journal),
        ("seconds", f"{summary['seconds']:.1f}"),
    )


def _plan_to_undo(applied: Applied, asked: ApplyCommand) -> str:
    """Return the plan's copy in the trash: another plan may take the name of this one."""
    if not applied.is_plan_in_trash:
        return asked["plan_file"]
    folder = str(asked["trash"]).rstrip("/")
    is_of_plan = Location.of(folder).name == applied.plan_id
    return f"{folder}/{KEPT_PLAN}" if is_of_plan else f"{folder}/{applied.plan_id}/{KEPT_PLAN}"


@click.command(
    "undo",
    cls=Mode,
    epilog="Example: kip33 retention undo plan.jsonl --trash /archive/trash",
)
@click.argument("plan_file", metavar="PLAN")
@click.option(
    "--trash", required=True, metavar="DIR", help="The folder to which the plan moved files."
)
@options_of(UndoOptions)
@runs(
    work="here",
    findings=Findings(
        [_NOT_PUT_BACK],
        "Exit 3. not_put_back: if a file was not put back (without this option: exit 4, or 1 after "
        "an error).",
    ),
)
def retention_undo(plan_file: str, trash: str, asked: UndoOptions, run: CommandRun) -> Output:
    """Put back what kip33 retention apply moved to a trash.

    Only files that PLAN and its journal name are moved, each after a look at its size and time.
    Nothing that is there is replaced. An undo that was interrupted is run again, and continues.
    """
    plan = read_plan(Location.of(plan_file))
    steps = _Steps(run, plan, Phase.PUTTING_BACK, dry_run=asked["dry_run"])
    undone = undo_plan(
        plan,
        Location.of(trash),
        clock=current_ms,
        dry_run=asked["dry_run"],
        on_record=steps,
    )
    partitions = [one._asdict() for one in undone.partitions]
    done = "would be" if undone.dry_run else "were"
    left = [line for one in undone.partitions for line in one.left]
    more = "--format json has all of them"
    return Output(
        page=lambda summary: steps.unless(_undo_page(undone, partitions, summary, steps)),
        rows=[*steps.as_list(), RowList("partitions", steps.unless(partitions), "partition")],
        summary=undone.as_record(),
        summary_key="summary",
        if_unwritten=f"{counted(undone.segments_put_back, 'segment')} {done} put back",
        findings={_NOT_PUT_BACK: OutputFinding(len(left), "file", lambda: left, more)},
        incomplete=[_NOT_PUT_BACK] if undone.is_incomplete else [],
        refused=[_NOT_PUT_BACK],
    )


def _undo_page(
    undone: Undone, partitions: Sequence[Row], summary: Row, steps: _Steps
) -> Iterator[Table]:
    """Yield the segments of a dry run, the partitions, and the sums; the finding says the rest."""
    dry_run = undone.dry_run
    if dry_run:
        yield steps.of_segments()
    yield Table(_UNDONE, partitions, "would be put back" if dry_run else "put back", "partitions")
    yield facts(
        "retention undo",
        ("plan", undone.plan_id),
        ("put back", f"{undone.segments_put_back:,} ({human_bytes(summary['bytes_put_back'])})"),
        ("there already", counted(summary["segments_there_already"], "segment")),
        ("not put back", counted(undone.segments_left, "segment")),
        ("trash", undone.trash),
        ("journal", "none (dry run)" if dry_run else undone.journal),
        ("seconds", f"{summary['seconds']:.1f}"),
    )


_PLACE: Final = (*PARTITION_KEY, "base_offset")
_SEGMENTS: Final = (
    Column("partition", partition_name, is_name=True),
    Column("segment", "base_offset", str, is_name=True),
    Column("outcome", "outcome", rank=0),
    Column("files", "files", len, rank=2),
    Column("size", lambda row: sum(file["size_bytes"] for file in row["files"]), human_bytes),
    Column("why", "why", none="", is_remark=True),
)
_UNDONE: Final = (
    Column("partition", partition_name, is_name=True),
    Column("moved", "segments_moved"),
    Column("put back", "segments_put_back", rank=0),
    Column("there already", "segments_there_already", rank=2),
    Column("size", "bytes_put_back", human_bytes),
    Column("outcome", "outcome", rank=0),
)


def _partition_columns(done: str) -> Sequence[Column]:
    """Return the columns of an apply: segments are `deleted`, or `moved`."""
    return (
        Column("partition", partition_name, is_name=True),
        Column("planned", "segments_planned"),
        Column(done, "segments_deleted", rank=0),
        Column(f"already {done}", "segments_gone_already", rank=2),
        Column("freed" if done == "deleted" else "size", "bytes_deleted", human_bytes),
        Column("outcome", "outcome", rank=0),
        Column("why", "why", none="", is_remark=True),
    )
