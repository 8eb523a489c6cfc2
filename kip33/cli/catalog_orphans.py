"""`kip33 catalog --orphans`: the files that belong to no segment; their removal by a plan."""

import sys
from collections import Counter
from typing import Any, Final, NamedTuple

import click

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
from kip33.cli.output import MOST_TABLE_ROWS, human_bytes, iso_time, print_json, print_table, warn
from kip33.cli.times import current_ms
from kip33.errors import exit_code_of
from kip33.stores.locations import Location

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
    plan = _make_plan(opened, shown, leftovers, request) if request else None
    if plan:
        summary["plan"] = plan
    if output_format == "json":
        print_json(summary | {"leftovers": [_record(leftover) for leftover in leftovers.found]})
    elif output_format == "jsonl":
        for leftover in leftovers.found:
            print_json({"kind": "leftover", **_record(leftover)})
        print_json({"kind": "summary", **summary})
    elif not leftovers.found:
        click.echo(f"{shown.source}: every file belongs to a segment.")
    else:
        _print_leftovers(leftovers.found, below=shown.source + "/")
        rows = [
            (kind, total["files"], human_bytes(total["size_bytes"]))
            for kind, total in leftovers.totals().items()
        ]
        print_table(("leftover", "files", "size"), rows)
    if plan and output_format == "table":
        _print_plan(plan)


def _record(leftover: Leftover) -> dict[str, str | int | None]:
    return {
        "leftover": leftover.kind.value,
        "uri": leftover.uri,
        "files": leftover.files,
        "size_bytes": leftover.size_bytes,
        "last_modified_ms": leftover.last_modified_ms,
        "is_ours": leftover.kind in (LeftoverKind.ORPHAN, LeftoverKind.TEMPORARY),
    }


def _print_leftovers(found: list[Leftover], *, below: str) -> None:
    rows = [
        (
            leftover.kind,
            leftover.uri.removeprefix(below),
            leftover.files,
            human_bytes(leftover.size_bytes),
            iso_time(leftover.last_modified_ms),
        )
        for leftover in found[:MOST_TABLE_ROWS]
    ]
    print_table(("leftover", "where", "files", "size", "modified"), rows, title=below)
    if len(found) > MOST_TABLE_ROWS:
        more = len(found) - MOST_TABLE_ROWS
        click.echo(f"and {more:,} more leftovers; --format jsonl shows all of them")


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


def _print_plan(plan: dict[str, Any]) -> None:
    """Print a table of what is planned, and a warning for what is left out."""
    size = human_bytes(plan["size_bytes"])
    rows = [
        ("plan", plan["plan_id"]),
        ("to remove", f"{plan['files']:,} files in {plan['leftovers']:,} leftovers, {size}"),
        ("left out", f"{len(plan['left_out']):,} leftovers"),
        ("file", plan["file"]),
    ]
    print_table(("orphans --plan", ""), rows)
    for one in plan["left_out"][:MOST_TABLE_ROWS]:
        warn(f"{one['uri']}: {one['why']}; not in the plan")


def apply_plan_file(opened: Catalog, file: str, output_format: str, *, dry_run: bool) -> None:
    """Carry out a plan and show what was removed; end with the exit code."""
    done = remove_leftovers(opened, read_leftover_plan(Location.of(file)), dry_run=dry_run)
    for warning in done.warnings:
        warn(warning)
    summary = _summary(opened, done)
    if output_format == "json":
        print_json(summary | {"results": [_result_record(one) for one in done.results]})
    elif output_format == "jsonl":
        for one in done.results:
            print_json({"kind": "result", **_result_record(one)})
        print_json({"kind": "summary", **summary})
    else:
        _print_tables(done)
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


def _print_tables(done: RemovedLeftovers) -> None:
    """Print what stays and why, or in a dry run everything; then the sums."""
    shown = [one for one in done.results if done.dry_run or one.outcome in _STAYS]
    if shown:
        rows = [
            (
                one.leftover.kind,
                one.leftover.uri.removeprefix(done.plan.source + "/"),
                one.outcome,
                one.why or "",
            )
            for one in shown[:MOST_TABLE_ROWS]
        ]
        title = "as it would be" if done.dry_run else "what stays"
        print_table(("leftover", "where", "outcome", "why"), rows, title=title)
    if len(shown) > MOST_TABLE_ROWS:
        more = len(shown) - MOST_TABLE_ROWS
        click.echo(f"and {more:,} more leftovers; --format jsonl shows all of them")
    removed = "would be removed" if done.dry_run else "removed"
    size = human_bytes(done.size_bytes)
    rows_of_sums = [
        ("plan", done.plan.plan_id),
        (removed, f"{done.files:,} files, {size}"),
        *((f"{one}", f"{done.count(one):,} leftovers") for one in LeftoverOutcome),
    ]
    print_table(("orphans --apply", ""), rows_of_sums)
