"""`kip33 catalog --diff`: what changed between two snapshots."""

import json
from collections.abc import Iterator
from typing import Final

import click
import pyarrow as pa

from kip33.catalog.catalog import Catalog
from kip33.catalog.difference import count_changes, difference
from kip33.cli.output import MOST_TABLE_ROWS, print_table
from kip33.cli.snapshot_choice import choose_and_warn

_ROWS_AT_ONCE: Final = 10_000
_SIZES: Final = ("size_bytes_before", "size_bytes_after")
_STATUSES: Final = ("status_before", "status_after")


def show_difference(opened: Catalog, a: str, b: str, output_format: str) -> None:
    """Print each segment that changed from snapshot `a` to snapshot `b`, and their sums."""
    before, after = (choose_and_warn(opened, one).snapshot for one in (a, b))
    changed = difference(opened, before, after)
    counts = count_changes(changed)
    if output_format == "jsonl":
        for rows in _json_rows(changed):
            click.echo("\n".join(rows))
    elif output_format == "json":
        head = json.dumps({"before": before.name, "after": after.name, "counts": counts})
        click.echo(f'{head[:-1]}, "changes": [', nl=False)  # streamed: up to a million changes
        for number, rows in enumerate(_json_rows(changed)):
            click.echo((", " if number else "") + ", ".join(rows), nl=False)
        click.echo("]}")
    elif counts:
        title = f"{before.name} to {after.name}"
        _print_changes(changed.slice(0, MOST_TABLE_ROWS), below=after.source + "/", title=title)
        if changed.num_rows > MOST_TABLE_ROWS:
            more = changed.num_rows - MOST_TABLE_ROWS
            click.echo(f"and {more:,} more segments; --format jsonl shows all of them")
        print_table(("change", "segments"), counts.items())
    else:
        click.echo(f"Nothing changed from {before.name} to {after.name}: {after.rows:,} segments.")


def _json_rows(changed: pa.Table) -> Iterator[list[str]]:
    for batch in changed.to_batches(max_chunksize=_ROWS_AT_ONCE):
        if batch.num_rows:
            yield [json.dumps(row) for row in batch.to_pylist()]


def _print_changes(changed: pa.Table, *, below: str, title: str) -> None:
    columns = ("segment", "changes", "bytes before", "after", "status before", "after")
    rows = [
        (
            row["log_uri"].removeprefix(below),
            ", ".join(row["changes"]),
            *("-" if row[name] is None else f"{row[name]:,}" for name in _SIZES),
            *(row[name] or "-" for name in _STATUSES),
        )
        for row in changed.to_pylist()
    ]
    print_table(columns, rows, title=title)
