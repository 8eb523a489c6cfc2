"""`kip33 catalog --keep`: show what will be removed, remove it, show the result."""

import sys
import time
from typing import Any

import click

from kip33.catalog.catalog import Catalog
from kip33.catalog.pruning import Plan, Pruned, Removal, RemovalKind, prune
from kip33.cli.output import human_bytes, print_json, print_table, warn
from kip33.errors import ExitCode


def warn_of(problem: str) -> None:
    """Print on standard error that a snapshot is ignored, and why."""
    click.echo(f"Warning: {problem}; this snapshot is ignored", err=True)


def prune_catalog(opened: Catalog, keep: int, output_format: str) -> None:
    """Show what will be removed, remove it, show the result; exit 1 if a removal failed."""
    pruned = prune(
        opened,
        keep=keep,
        now_ms=int(time.time() * 1000),
        on_plan=_print_plan if output_format == "table" else None,
    )
    for problem in pruned.plan.problems:
        warn_of(problem)
    for line in pruned.plan.foreign:
        warn(line)
    if output_format == "table":
        _print_pruned(pruned)
    elif output_format == "jsonl":
        for removal in pruned.removed:
            print_json(_as_row(removal))
    else:
        print_json(
            {
                "catalog": opened.location.uri,
                "snapshots_removed": pruned.count(
                    RemovalKind.OLD_SNAPSHOT, RemovalKind.DAMAGED_SNAPSHOT
                ),
                "snapshots_kept": pruned.plan.kept,
                "kept_younger_than_an_hour": pruned.plan.kept_young,
                "leftovers_removed": pruned.count(RemovalKind.DEAD_BUILD),
                "bytes_freed": pruned.bytes_freed,
                "removed": [_as_row(removal) for removal in pruned.removed],
                "foreign": list(pruned.plan.foreign),
                "failures": list(pruned.failures),
            }
        )
    for failure in pruned.failures:
        click.echo(f"Error: {failure}", err=True)
    if pruned.failures:
        sys.exit(ExitCode.INCOMPLETE)


def _as_row(removal: Removal) -> dict[str, Any]:
    return {"what": removal.what, "name": removal.name, "size_bytes": removal.size_bytes}


def _print_plan(plan: Plan) -> None:
    rows = [(r.what, r.name, human_bytes(r.size_bytes)) for r in plan.removals]
    if rows:
        print_table(("to remove", "name", "size"), rows)


def _print_pruned(pruned: Pruned) -> None:
    damaged = pruned.count(RemovalKind.DAMAGED_SNAPSHOT)
    removed = f"{pruned.count(RemovalKind.OLD_SNAPSHOT, RemovalKind.DAMAGED_SNAPSHOT):,}"
    rows = [
        ("snapshots removed", removed + (f", {damaged:,} of them damaged" if damaged else "")),
        ("kept", f"{pruned.plan.kept:,}"),
        ("the newest within the last hour", f"{pruned.plan.kept_young:,}"),
        ("leftovers removed", f"{pruned.count(RemovalKind.DEAD_BUILD):,}"),
        ("freed", human_bytes(pruned.bytes_freed)),
    ]
    if pruned.failures:
        rows.append(("not removed", f"{len(pruned.failures):,}; see standard error"))
    print_table(("prune", ""), rows)
