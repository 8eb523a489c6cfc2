"""`kip33 catalog --orphans`: the files that belong to no segment; their removal by a plan."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from kip33.archive.leftover_files import Leftover, LeftoverKind
from kip33.archive.plans import LEFTOVER_PLAN, require_plan_place
from kip33.builds.leftovers import (
    PLANNED_ON_REQUEST,
    LeftoverOutcome,
    LeftoverResult,
    Leftovers,
    RemovedLeftovers,
    find_leftovers,
    plan_leftovers,
    read_leftover_plan,
    remove_leftovers,
    write_leftover_plan,
)
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.cli.output import (
    MOST_TABLE_ROWS,
    Column,
    Output,
    Row,
    RowList,
    Table,
    counted,
    facts,
    human_bytes,
    iso_time,
    show,
    warn,
)
from kip33.cli.times import current_ms
from kip33.errors import exit_code_of
from kip33.stores.locations import Location

_LEFTOVER: Final = ("leftover", "uri", "files", "size_bytes", "last_modified_ms", "is_ours")
_RESULT: Final = ("leftover", "uri", "outcome", "files_removed", "bytes_removed", "why")
_STAYS: Final = (LeftoverOutcome.KEPT, LeftoverOutcome.FAILED)


class LeftoverRequest(NamedTuple):
    """What `--plan` and `--remove` ask for."""

    place: Location
    kinds: tuple[LeftoverKind, ...]

    @classmethod
    def of(cls, plan_file: str, remove: tuple[str, ...]) -> "LeftoverRequest":
        """Return the request; LocationError for a file that must not be replaced."""
        place = Location.of(plan_file)
        require_plan_place(place, LEFTOVER_PLAN)
        return cls(place, tuple(PLANNED_ON_REQUEST[name] for name in remove))


def show_orphans(
    opened: Catalog, shown: Snapshot, request: LeftoverRequest | None, output_format: str
) -> None:
    """Print the leftovers of a snapshot's SOURCE and index directory, and their sums.

    With a `request` their plan is written first, and is part of the summary.
    """
    leftovers = find_leftovers(opened, shown)
    for warning in leftovers.warnings:
        warn(warning)
    summary: dict[str, Any] = {
        "snapshot": shown.name,
        "source": shown.source,
        "by_kind": leftovers.totals(),
    }
    if request:
        summary["plan"] = _make_plan(opened, shown, leftovers, request)
    rows = [_record(leftover) for leftover in leftovers.found]
    page, lists = _page(rows, summary), [RowList("leftovers", rows, "leftover", columns=_LEFTOVER)]
    show(Output(page=page, rows=lists, summary=summary), output_format)


def _record(leftover: Leftover) -> dict[str, str | int | None]:
    return {
        "leftover": leftover.kind.value,
        "uri": leftover.uri,
        "files": leftover.files,
        "size_bytes": leftover.size_bytes,
        "last_modified_ms": leftover.last_modified_ms,
        "is_ours": leftover.kind in (LeftoverKind.ORPHAN, LeftoverKind.TEMPORARY),
    }


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


def _make_plan(
    opened: Catalog, shown: Snapshot, leftovers: Leftovers, request: LeftoverRequest
) -> dict[str, Any]:
    """Write the plan of a snapshot's leftovers; return its part of the summary."""
    plan, unplanned = plan_leftovers(
        opened, shown, leftovers, kinds=request.kinds, now_ms=current_ms()
    )
    plan = write_leftover_plan(plan, request.place)
    return {
        "plan_id": plan.plan_id,
        "file": request.place.uri,
        "leftovers": len(plan.leftovers),
        "files": plan.files,
        "size_bytes": plan.size_bytes,
        "left_out": [
            {"leftover": one.kind.value, "uri": one.uri, "why": one.why} for one in unplanned
        ],
    }


def apply_plan_file(opened: Catalog, file: str, output_format: str, *, dry_run: bool) -> None:
    """Carry out a plan and show what was removed; end with the exit code."""
    done = remove_leftovers(opened, read_leftover_plan(Location.of(file)), dry_run=dry_run)
    for warning in done.warnings:
        warn(warning)
    rows = [_result_record(one) for one in done.results]
    page, lists = _applied_page(done, rows), [RowList("results", rows, "result", columns=_RESULT)]
    show(Output(page=page, rows=lists, summary=_summary(opened, done)), output_format)
    sys.exit(
        exit_code_of(
            incomplete=done.count(LeftoverOutcome.FAILED) > 0,
            refused=done.count(LeftoverOutcome.KEPT) > 0,
        )
    )


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


def _result_record(result: LeftoverResult) -> dict[str, Any]:
    return {
        "leftover": result.leftover.kind.value,
        "uri": result.leftover.uri,
        "outcome": result.outcome.value,
        "files_removed": result.files,
        "bytes_removed": result.size_bytes,
        "why": result.why,
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
    yield facts(
        "orphans --apply",
        ("plan", done.plan.plan_id),
        (removed, f"{counted(done.files, 'file')}, {human_bytes(done.size_bytes)}"),
        *((f"{one}", counted(done.count(one), "leftover")) for one in LeftoverOutcome),
    )
