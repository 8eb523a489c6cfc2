"""`kip33 catalog`."""

from typing import Any

import click

from kip33.cli.options import config_option, format_option
from kip33.cli.output import human_bytes, iso_time, print_json, print_table
from kip33.storage.catalog import Catalog
from kip33.storage.files import require_directory
from kip33.storage.totals import TopicTotals, topic_totals


@click.command(
    epilog="Example: duckdb -c \"FROM '$(kip33 catalog DIR/_catalog --path)/*.parquet'\""
)
@click.argument("catalog_dir", metavar="CATALOG")
@click.option(
    "--path", "path_only", is_flag=True, help="Print the newest snapshot's Parquet folder only."
)
@config_option
@format_option("table", "json", "jsonl")
def catalog(catalog_dir: str, path_only: bool, output_format: str) -> None:
    """Show the snapshots of CATALOG, newest first, and the newest one's totals per topic.

    With --path: the folder of the newest snapshot's Parquet files, for Spark, pyarrow, pandas,
    DuckDB or Polars to read.
    """
    opened = Catalog.at(catalog_dir)
    require_directory(opened.location, "CATALOG")
    newest = opened.require_newest()
    folder = opened.snapshot_folder(newest.name)
    if path_only:
        click.echo(folder.path if folder.is_local else folder.uri)
        return
    snapshots: list[dict[str, Any]] = [
        {
            "snapshot": snapshot.name,
            "created_ms": snapshot.created_ms,
            "source": snapshot.source,
            "segments": snapshot.rows,
            "parts": len(snapshot.parts),
        }
        for snapshot in reversed(opened.snapshots())
    ]
    totals = topic_totals(opened, newest)
    if output_format == "json":
        topics = [total._asdict() for total in totals]
        print_json({"path": folder.uri, "snapshots": snapshots, "topics": topics})
    elif output_format == "jsonl":
        for snapshot in snapshots:
            print_json({"kind": "snapshot", **snapshot})
        for total in totals:
            print_json({"kind": "topic", **total._asdict()})
    else:
        rows = [(s["snapshot"], iso_time(s["created_ms"]), s["segments"]) for s in snapshots]
        print_table(("snapshot", "created", "segments"), rows, title=newest.source)
        _print_totals(totals)


def _print_totals(totals: list[TopicTotals]) -> None:
    columns = (
        "topic",
        "partitions",
        "segments",
        "log",
        "records",
        "entries",
        "from",
        "to",
        "not ok",
    )
    rows = [
        (
            total.topic or "?",
            total.partitions,
            total.segments,
            human_bytes(total.log_bytes),
            f"{total.record_count:,}" if total.record_count is not None else "?",
            total.time_index_entries,
            iso_time(total.first_timestamp),
            iso_time(total.largest_timestamp),
            ", ".join(f"{count} {status}" for status, count in total.not_ok.items()),
        )
        for total in totals
    ]
    print_table(columns, rows)
