"""`kip33 catalog --orphans`: the files that belong to no segment, by name and size."""

from typing import Any

import click

from kip33.archive.leftover_files import Leftover, LeftoverKind
from kip33.builds.leftovers import find_leftovers
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.cli.catalog_orphans_plan import LeftoverRequest, make_plan, print_plan
from kip33.cli.output import MOST_TABLE_ROWS, human_bytes, iso_time, print_json, print_table, warn


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
    plan = make_plan(opened, shown, leftovers, request) if request else None
    if plan:
        summary["plan"] = plan
    if output_format == "json":
        print_json(summary | {"leftovers": [_record(one) for one in leftovers.found]})
    elif output_format == "jsonl":
        for one in leftovers.found:
            print_json({"kind": "leftover", **_record(one)})
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
        print_plan(plan)


def _record(one: Leftover) -> dict[str, str | int | None]:
    return {
        "leftover": one.kind.value,
        "uri": one.uri,
        "files": one.files,
        "size_bytes": one.size_bytes,
        "last_modified_ms": one.last_modified_ms,
        "is_ours": one.kind in (LeftoverKind.ORPHAN, LeftoverKind.TEMPORARY),
    }


def _print_leftovers(found: list[Leftover], *, below: str) -> None:
    rows = [
        (
            one.kind,
            one.uri.removeprefix(below),
            one.files,
            human_bytes(one.size_bytes),
            iso_time(one.last_modified_ms),
        )
        for one in found[:MOST_TABLE_ROWS]
    ]
    print_table(("leftover", "where", "files", "size", "modified"), rows, title=below)
    if len(found) > MOST_TABLE_ROWS:
        more = len(found) - MOST_TABLE_ROWS
        click.echo(f"and {more:,} more leftovers; --format jsonl shows all of them")
