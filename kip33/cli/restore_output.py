"""What `kip33 restore` prints."""

from typing import Any, Final

import click

from kip33.cli.output import human_bytes, print_json, print_table, warn
from kip33.errors import unreadable_logs_text

MOST_RESTORED_ROWS: Final = 1_000  # in a table


def print_restore(summary: dict[str, Any], output_format: str) -> None:
    """Print the summary as `table` or `json`; problems and notes are lines on standard error."""
    if output_format == "json":
        print_json(summary)
    else:
        _print_tables(summary)
    for row in summary["partitions"]:
        name = f"{row['topic']}-{row['partition']}"
        for note in row["notes"]:
            warn(f"{name}: {note}")
        if row["problem"]:
            warn(f"{name} is not restored: {row['problem']}")
    for line in (*summary["problems"], *summary["notes"]):
        warn(line)
    if first := summary["unreadable_example"]:
        warn(unreadable_logs_text(summary["unreadable_logs"], first, of=summary["logs"]))
    without_id = sorted(
        {row["topic"] for row in summary["partitions"] if not (row["problem"] or row["topic_id"])}
    )
    if without_id:
        more = f" and {len(without_id) - 1:,} other topics" if len(without_id) > 1 else ""
        warn(
            f"{without_id[0]}{more}: the topic id is not known, so there is no "
            "partition.metadata; a broker of a KRaft cluster does not start with such a partition: "
            "create the topic first and restore over its empty directories"
        )
    if not summary["applied"]:
        warn("nothing was changed; the same command without --dry-run carries this out")


def print_abandoned(summary: dict[str, Any], output_format: str) -> None:
    """Print what `--abandon` did, as `table` or `json`."""
    if output_format == "json":
        print_json(summary)
        return
    for name in summary["partitions_in_place"]:
        warn(f"{name} was in its place already, and stays")
    rows = [
        ("log directory", summary["log_dir"]),
        ("partitions removed", f"{summary['partitions_removed']:,}"),
        ("partitions in their places", f"{len(summary['partitions_in_place']):,}"),
    ]
    print_table(("abandoned", ""), rows)


def _print_tables(summary: dict[str, Any]) -> None:
    rows = [_row(row) for row in summary["partitions"][:MOST_RESTORED_ROWS]]
    columns = ("partition", "from", "replicas", "segments", "bytes", "offsets", "result")
    title = "restored" if summary["applied"] else "to restore"
    print_table(columns, rows, title=title)
    if len(summary["partitions"]) > MOST_RESTORED_ROWS:
        more = len(summary["partitions"]) - MOST_RESTORED_ROWS
        click.echo(f"and {more:,} more partitions; --format json shows all of them")
    print_table(
        ("restore", ""),
        [
            ("log directory", summary["log_dir"]),
            ("partitions", f"{summary['partitions_restored']:,}"),
            ("refused", f"{summary['partitions_refused']:,}"),
            ("segments", f"{summary['segments']:,}"),
            ("log bytes", human_bytes(summary["log_bytes"])),
            *_figures(summary),
        ],
    )


def _figures(summary: dict[str, Any]) -> list[tuple[str, str]]:
    if not summary["applied"]:
        return [("free", human_bytes(summary["free_bytes"]))]
    return [
        ("copied", human_bytes(summary["bytes_copied"])),
        ("linked", human_bytes(summary["bytes_linked"])),
        ("copied before", human_bytes(summary["bytes_there"])),
        ("clean shutdown", "yes" if summary["clean_shutdown"] else "no"),
    ]


def _row(row: dict[str, Any]) -> tuple[str, str, str, str, str, str, str]:
    offsets = ""
    if row["end_offset"] is not None:
        offsets = f"{row['start_offset']:,} to {row['end_offset']:,}"
    return (
        f"{row['topic']}-{row['partition']}",
        row["replica"] or ".",
        f"{row['replicas']:,}",
        f"{row['segments']:,}",
        human_bytes(row["log_bytes"]),
        offsets,
        "refused" if row["problem"] else "",
    )
