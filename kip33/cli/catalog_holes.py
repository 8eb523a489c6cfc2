"""`kip33 catalog --holes`: the missing offsets between segments."""

from typing import Any

import click
import pyarrow as pa

from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.holes import hole_totals, read_holes
from kip33.cli.output import MOST_TABLE_ROWS, print_json, print_table
from kip33.retention.policy_files import load_policies


def show_holes(opened: Catalog, shown: Snapshot, policy: str | None, output_format: str) -> None:
    """Print the holes of a snapshot, and their sums."""
    holes = read_holes(opened, shown, policies=load_policies(policy) if policy else None)
    totals = hole_totals(holes)
    if output_format == "json":
        print_json({"snapshot": shown.name, **totals._asdict(), "holes": holes.to_pylist()})
    elif output_format == "jsonl":
        for batch in holes.to_batches(max_chunksize=10_000):
            for row in batch.to_pylist():
                print_json({"kind": "hole", **row})
        print_json({"kind": "summary", "snapshot": shown.name, **totals._asdict()})
    elif not holes.num_rows:
        click.echo(f"{shown.name}: no offsets are missing after segments whose end is known.")
    else:
        _print_holes(holes, title=f"missing offsets, {shown.name}")
        click.echo(f"holes: {totals.as_text()}")


def _print_holes(holes: pa.Table, *, title: str) -> None:
    columns = ("partition", "missing", "from", "to", "hole", "after")
    rows = [_cells(row) for row in holes.slice(0, MOST_TABLE_ROWS).to_pylist()]
    print_table(columns, rows, title=title)
    if holes.num_rows > MOST_TABLE_ROWS:
        more = holes.num_rows - MOST_TABLE_ROWS
        click.echo(f"and {more:,} more holes; --format jsonl shows all of them")


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    log_dir = f"{row['log_dir']}/" if row["log_dir"] else ""
    return (
        f"{log_dir}{row['topic']}-{row['partition']}",
        f"{row['missing_offsets']:,}",
        row["first_offset"],
        row["last_offset"],
        row["hole"],
        row["after"].rpartition("/")[2],
    )
