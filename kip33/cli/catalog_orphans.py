"""`kip33 catalog orphans`: the files that belong to no segment; their removal by a plan."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import click

from kip33.archive.plans import LEFTOVER_PLAN, require_plan_place
from kip33.builds.leftovers import (
    LEFTOVERS,
    PLANNED_ON_REQUEST,
    LeftoverOutcome,
    LeftoverPlan,
    LeftoverResult,
    RemovedLeftovers,
    UnplannedLeftover,
    find_leftovers,
    plan_leftovers,
    read_leftover_plan,
    remove_leftovers,
    write_leftover_plan,
)
from kip33.catalog.catalog import Catalog, choose
from kip33.cli.catalog_places import catalog_argument, snapshot_option
from kip33.cli.config_file import by_hand
from kip33.cli.modes import Mode
from kip33.cli.output import (
    MOST_TABLE_ROWS,
    Column,
    Output,
    OutputFinding,
    Row,
    RowList,
    Table,
    counted,
    facts,
    human_bytes,
    iso_time,
    open_catalog_dir,
    warn,
)
from kip33.cli.runs import CommandRun, runs
from kip33.stores.locations import Location

_STAYS: Final = (LeftoverOutcome.KEPT, LeftoverOutcome.FAILED)


class OrphansRequest(NamedTuple):
    """What `kip33 catalog orphans` is asked."""

    catalog_dir: str
    snapshot: str | None
    plan: str | None
    remove: Sequence[str]
    apply: str | None
    dry_run: bool

    def check(self) -> None:
        """Raise UsageError for options that do not belong together."""
        if self.plan and self.apply:
            raise click.UsageError("--plan and --apply cannot be combined: give one of them")
        if (self.plan or self.apply) and self.snapshot:
            raise click.UsageError("--plan and --apply exclude --snapshot: they use the newest one")
        if self.remove and not self.plan:
            raise click.UsageError("--remove requires --plan FILE")
        if self.dry_run and not self.apply:
            raise click.UsageError("--dry-run requires --apply FILE")


@click.command(
    "orphans",
    cls=Mode,
    epilog="Example: kip33 catalog orphans indexes/_catalog --plan leftovers.jsonl",
)
@catalog_argument
@snapshot_option
@click.option(
    "--plan",
    metavar="FILE",
    callback=by_hand,
    help="Write a plan, FILE.jsonl, that removes the files of kip33. Replaces FILE only if it is "
    "such a plan.",
)
@click.option(
    "--remove",
    multiple=True,
    type=click.Choice(list(PLANNED_ON_REQUEST)),
    callback=by_hand,
    help="With --plan: also plan leftovers of this kind, which kip33 did not write. May be "
    "repeated.",
)
@click.option(
    "--apply",
    metavar="FILE",
    callback=by_hand,
    help="Remove the files of a plan that are still as planned, and no others.",
)
@click.option("--dry-run", is_flag=True, help="With --apply: run all checks, remove nothing.")
@runs(work="here", summary=False)
def catalog_orphans(request: OrphansRequest, run: CommandRun) -> Output:
    """Show the files below SOURCE and the index directory that belong to no segment.

    These are index files without a log (those that kip33 wrote by themselves), directories and
    files that a broker has marked (-delete, -stray, -future, .deleted, .cleaned, .swap), uploads
    without a manifest, temporary files of kip33, and unknown files.

    None of them is removed. --plan lists those to remove, and --apply removes them.
    """
    opened = open_catalog_dir(request.catalog_dir)
    if request.apply:
        return _applied(opened, request.apply, dry_run=request.dry_run)
    place = Location.of(request.plan) if request.plan else None
    if place:
        require_plan_place(place, LEFTOVER_PLAN)
    shown = choose(opened, request.snapshot, warn).snapshot
    leftovers = find_leftovers(opened, shown)
    warn(*leftovers.warnings)
    summary: dict[str, Any] = {
        "snapshot": shown.name,
        "source": shown.source,
        "by_kind": leftovers.totals(),
    }
    if place:
        kinds = [PLANNED_ON_REQUEST[name] for name in request.remove]
        plan, unplanned = plan_leftovers(
            opened, shown, leftovers, kinds=kinds, now_ms=run.started_ms
        )
        summary["plan"] = _plan_facts(write_leftover_plan(plan, place), unplanned, place)
    rows = leftovers.rows()
    return Output(
        page=_page(rows, summary),
        rows=[RowList("leftovers", rows, "leftover", columns=LEFTOVERS.names)],
        summary=summary,
    )


def _page(rows: Sequence[Row], summary: Row) -> Iterator[Table | str]:
    """Yield the leftovers, their sums, and the plan with a warning for what it leaves out."""
    below = summary["source"] + "/"
    if rows:
        columns = (
            Column("leftover", "leftover", rank=0),
            _where(below),
            Column("files", "files", rank=2),
            Column("size", "size_bytes", human_bytes),
            Column("modified", "last_modified_ms", iso_time, rank=3),
        )
        yield Table(columns, rows, below, "leftovers")
        totals = [{"leftover": kind, **total} for kind, total in summary["by_kind"].items()]
        yield Table((columns[0], *columns[2:4]), totals)
    else:
        yield f"{summary['source']}: every file belongs to a segment."
    if plan := summary.get("plan"):
        size, leftovers = human_bytes(plan["size_bytes"]), counted(plan["leftovers"], "leftover")
        yield facts(
            "orphans --plan",
            ("plan", plan["plan_id"]),
            ("to remove", f"{counted(plan['files'], 'file')} in {leftovers}, {size}"),
            ("left out", counted(len(plan["left_out"]), "leftover")),
            ("file", plan["file"]),
        )
        for one in plan["left_out"][:MOST_TABLE_ROWS]:
            warn(f"{one['uri']}: {one['why']}; not in the plan")


def _where(below: str) -> Column:
    return Column("where", lambda row: row["uri"].removeprefix(below), is_name=True)


def _plan_facts(
    plan: LeftoverPlan, unplanned: Sequence[UnplannedLeftover], place: Location
) -> dict[str, Any]:
    """Return what the summary says of a plan."""
    return {
        "plan_id": plan.plan_id,
        "file": place.uri,
        "leftovers": len(plan.leftovers),
        "files": plan.files,
        "size_bytes": plan.size_bytes,
        "left_out": [
            {"leftover": one.kind.value, "uri": one.uri, "why": one.why} for one in unplanned
        ],
    }


def _applied(opened: Catalog, file: str, *, dry_run: bool) -> Output:
    """Carry out a plan; return what was removed."""
    done = remove_leftovers(opened, read_leftover_plan(Location.of(file)), dry_run=dry_run)
    warn(*done.warnings)
    rows = [one._asdict() for one in done.results]
    return Output(
        page=_applied_page(done, rows),
        rows=[RowList("results", rows, "result", columns=LeftoverResult._fields)],
        summary=_summary(opened, done),
        if_unwritten="" if dry_run else f"removed: {counted(done.files, 'file')}",
        findings={one.value: _finding(done, one) for one in _STAYS},
        incomplete=[LeftoverOutcome.FAILED],
        refused=[LeftoverOutcome.KEPT],
    )


def _finding(done: RemovedLeftovers, outcome: LeftoverOutcome) -> OutputFinding:
    results = [one for one in done.results if one.outcome == outcome]
    examples = [f"{one.uri}: {one.why}" for one in results]
    return OutputFinding(len(results), "leftover", lambda: examples)


def _summary(opened: Catalog, done: RemovedLeftovers) -> dict[str, Any]:
    counts = Counter(one.outcome.value for one in done.results)
    return {
        "catalog": opened.location.uri,
        "plan_id": done.plan.plan_id,
        "dry_run": done.dry_run,
        "leftovers": len(done.results),
        "by_outcome": dict(counts),
        "files_removed": done.files,
        "bytes_removed": done.size_bytes,
    }


def _applied_page(done: RemovedLeftovers, rows: Sequence[Row]) -> Iterator[Table]:
    """Yield what stays and why, or in a dry run everything; then the sums."""
    columns = (
        Column("leftover", "leftover"),
        _where(f"{done.plan.source}/"),
        Column("outcome", "outcome", rank=0),
        Column("why", "why", none="", is_remark=True),
    )
    if shown := [row for row in rows if done.dry_run or row["outcome"] in _STAYS]:
        title = "would be removed, or stays" if done.dry_run else "what stays"
        yield Table(columns, shown, title, "leftovers")
    removed = "would be removed" if done.dry_run else "removed"
    counts = Counter(one.outcome for one in done.results)
    yield facts(
        "orphans --apply",
        ("plan", done.plan.plan_id),
        (removed, f"{counted(done.files, 'file')}, {human_bytes(done.size_bytes)}"),
        *((f"{one}", counted(counts[one], "leftover")) for one in LeftoverOutcome),
    )
