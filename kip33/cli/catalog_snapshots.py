"""`kip33 catalog`, `--path` and `--segments`: snapshots, totals, segments, and where they are."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc

from kip33.catalog.catalog import Catalog, Snapshot, choose
from kip33.catalog.holes import hole_totals, read_holes
from kip33.catalog.topic_totals import TopicTotals, topic_totals
from kip33.cli.catalog_prune import warn_of
from kip33.cli.output import MOST_TABLE_ROWS, human_bytes, iso_time, print_json, print_table
from kip33.cli.snapshot_choice import choose_and_warn
from kip33.cli.standard_output import exact_output


def print_path(opened: Catalog, name: str | None) -> None:
    """Print the path of a snapshot's folder, the URI if it is not local."""
    shown = choose_and_warn(opened, name).snapshot
    folder = opened.snapshot_folder(shown.name)
    stream = sys.stdout if sys.stdout.isatty() else exact_output()  # programs open the path
    click.echo(folder.path if folder.is_local else folder.uri, stream, color=True)


def show_segments(
    opened: Catalog, shown: Snapshot, statuses: Sequence[str], output_format: str
) -> None:
    """Print path, status and error of a snapshot's segments; `statuses`: only of these, () all."""
    counts: Counter[str] = Counter()
    rows = _segments(opened, shown, statuses, counts)
    if output_format == "json":
        segments = list(rows)
        print_json({"snapshot": shown.name, "by_status": counts, "segments": segments})
    elif output_format == "jsonl":
        for row in rows:
            print_json({"kind": "segment", **row})
        print_json({"kind": "summary", "snapshot": shown.name, "by_status": counts})
    else:
        below = shown.source.rstrip("/") + "/"
        cells = [
            (row["log_uri"].removeprefix(below), row["status"], row["error"] or "")
            for row in islice(rows, MOST_TABLE_ROWS)
        ]
        print_table(("path", "status", "error"), cells, title=f"segments, {shown.name}")
        if more := sum(1 for _ in rows):
            click.echo(f"and {more:,} more segments; --format jsonl shows all of them")


def _segments(
    opened: Catalog, shown: Snapshot, statuses: Sequence[str], counts: Counter[str]
) -> Iterator[dict[str, Any]]:
    """Yield the segments with these statuses, and count them by status."""
    for piece in opened.read_pieces(shown, ["log_uri", "status", "error"]):
        if statuses:
            piece = piece.filter(pc.is_in(piece["status"], value_set=pa.array(statuses)))
        for row in piece.to_pylist():
            counts[row["status"]] += 1
            yield row


def show_snapshots(opened: Catalog, name: str | None, output_format: str) -> None:
    """Print all snapshots, and the totals of one, per topic; None is the newest one."""
    shown, _ = choose(opened, name, lambda _: None)  # the loop below warns of all
    candidates = list(opened.candidates())
    for candidate in candidates:
        if candidate.problem:
            warn_of(candidate.problem)
    snapshots: list[dict[str, Any]] = [
        {
            "snapshot": snapshot.name,
            "created_ms": snapshot.created_ms,
            "source": snapshot.source,
            "segments": snapshot.rows,
            "parts": len(snapshot.parts),
            "orphaned": snapshot.orphaned.rows if snapshot.orphaned else 0,
            "orphaned_bytes": snapshot.orphaned.index_bytes if snapshot.orphaned else 0,
        }
        for snapshot in (c.snapshot for c in candidates if not c.problem)
        if snapshot
    ]
    totals = topic_totals(opened, shown)
    if output_format == "json":
        path = opened.snapshot_folder(shown.name).uri
        topics = [total._asdict() for total in totals]
        print_json({"path": path, "snapshots": snapshots, "topics": topics})
    elif output_format == "jsonl":
        for snapshot in snapshots:
            print_json({"kind": "snapshot", **snapshot})
        for total in totals:
            print_json({"kind": "topic", **total._asdict()})
    else:
        rows = [(s["snapshot"], iso_time(s["created_ms"]), s["segments"]) for s in snapshots]
        print_table(("snapshot", "created", "segments"), rows, title=shown.source)
        _print_totals(totals, title=shown.name)
        _print_incarnations(totals)
        if shown.orphaned:
            count, size = shown.orphaned.rows, human_bytes(shown.orphaned.index_bytes)
            click.echo(f"orphans: {count:,} index files of kip33 without a log; {size}")
        found = hole_totals(read_holes(opened, shown))
        if found.by_hole:
            click.echo(f"holes: {found.as_text()}; --holes shows them")


def _print_totals(totals: list[TopicTotals], *, title: str) -> None:
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
        *(("overlaps",) if any(total.overlaps for total in totals) else ()),
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
            *(
                ", ".join(f"{count:,} {what}" for what, count in counts.items())
                for counts in (total.not_ok, total.overlaps)
            ),
        )[: len(columns)]
        for total in totals
    ]
    print_table(columns, rows, title=title)


def _print_incarnations(totals: list[TopicTotals]) -> None:
    """Print the topic ids of each topic that was deleted and created again."""
    for total in totals:
        if len(total.topic_ids) > 1:
            ids = (
                f"{one['topic_id']} ({'newest; ' if one['newest'] else ''}"
                f"{one['segments']:,} segments, {human_bytes(one['log_bytes'])})"
                for one in total.topic_ids
            )
            click.echo(
                f"{total.topic}: {len(total.topic_ids)} topics of this name, by topic id: "
                + ", ".join(ids)
            )
