"""`kip33 catalog`: snapshots and totals; what changed, holes, segments; remove old snapshots."""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import click
import pyarrow as pa
import pyarrow.compute as pc
from click.core import ParameterSource

from kip33.builds.leftovers import PLANNED_ON_REQUEST
from kip33.catalog.catalog import Catalog, Snapshot, choose
from kip33.catalog.difference import count_changes, difference
from kip33.catalog.holes import hole_totals, read_holes
from kip33.catalog.pruning import Plan, Pruned, Removal, RemovalKind, prune
from kip33.catalog.topic_totals import TopicTotals, topic_totals
from kip33.cli.catalog_orphans import LeftoverRequest, apply_plan_file, show_orphans
from kip33.cli.engine_option import leave_pandas_out
from kip33.cli.options import by_hand, format_option, store_options
from kip33.cli.output import (
    MOST_TABLE_ROWS,
    choose_and_warn,
    human_bytes,
    iso_time,
    print_json,
    print_table,
    warn,
)
from kip33.cli.standard_output import exact_output
from kip33.errors import ExitCode
from kip33.retention.policy_files import load_policies
from kip33.rules.segment_summary import SegmentStatus
from kip33.stores.directory_checks import require_directory

_ROWS_AT_ONCE: Final = 10_000
_SIZES: Final = ("size_bytes_before", "size_bytes_after")
_STATUSES: Final = ("status_before", "status_after")


def _by_hand(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    """Refuse --keep from a file: a command that shows must not delete because of a default."""
    if ctx.get_parameter_source("keep") is ParameterSource.DEFAULT_MAP:
        raise click.BadParameter(
            "--keep removes snapshots: give it on the command line, not in the configuration file",
            ctx,
            param,
        )
    return value


@click.command(
    epilog="Example: duckdb -c \"FROM '$(kip33 catalog DIR/_catalog --path)/*.parquet'\""
)
@click.argument("catalog_dir", metavar="CATALOG")
@click.option(
    "--path",
    "path_only",
    is_flag=True,
    help="Print only the path of the snapshot's Parquet folder.",
)
@click.option(
    "--snapshot",
    metavar="NAME",
    help="Use this snapshot instead of the newest: its name, number or id.",
)
@click.option(
    "--diff",
    nargs=2,
    metavar="A B",
    help="Show each segment that changed from snapshot A to snapshot B.",
)
@click.option(
    "--holes",
    is_flag=True,
    help="Show the offsets that are missing between two segments of a partition.",
)
@click.option("--segments", is_flag=True, help="Show path, status and error of each segment.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([status.value for status in SegmentStatus]),
    help="With --segments: only segments with this status. May be repeated.",
)
@click.option(
    "--policy",
    metavar="FILE",
    help="With --holes: policies that say which topics are compacted.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    callback=_by_hand,
    help="Keep the newest N complete snapshots and each snapshot that was the newest within "
    "the last hour. Remove the other snapshots, and the leftovers of builds that "
    "stopped a day ago or earlier without finishing.",
)
@click.option(
    "--orphans",
    is_flag=True,
    help="List SOURCE and the index directory; show the files that belong to no segment. "
    "--plan lists those to remove, and --apply removes them.",
)
@click.option(
    "--plan",
    "plan_file",
    metavar="FILE",
    callback=by_hand,
    help="With --orphans: write a plan, FILE.jsonl, that removes the files of kip33. Replaces FILE "
    "only if it is such a plan.",
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
    "apply_file",
    metavar="FILE",
    callback=by_hand,
    help="With --orphans: remove the files of a plan that are still as planned, and no others.",
)
@click.option("--dry-run", is_flag=True, help="With --apply: run all checks, remove nothing.")
@store_options
@format_option("table", "json", "jsonl")
def catalog(
    catalog_dir: str,
    path_only: bool,
    snapshot: str | None,
    diff: tuple[str, str] | None,
    holes: bool,
    segments: bool,
    statuses: tuple[str, ...],
    policy: str | None,
    keep: int | None,
    orphans: bool,
    plan_file: str | None,
    remove: tuple[str, ...],
    apply_file: str | None,
    dry_run: bool,
    output_format: str,
) -> None:
    """Show the snapshots of CATALOG, newest first, and the newest one's totals per topic.

    --path prints the folder of the newest snapshot's Parquet files, which Spark, pyarrow, pandas,
    DuckDB and Polars can read. --diff shows what changed between two snapshots. --keep removes
    old snapshots, but not those that running builds use. Files that kip33 did not write stay, and
    a warning names their folder.

    --holes shows each place where a partition's next segment does not begin at the end of the one
    before. certain: records are missing. possible: the topic is compacted, by --policy or because
    it has fewer records than offsets. after damage: the segment before is damaged. filled: another
    replica has these offsets. Offsets missing before the first segment are normal.

    --segments lists the segments, and with --status unreadable those whose logs could not be read.

    --orphans shows files that belong to no segment, with their sizes: index files without a log
    (those that kip33 wrote by themselves), directories and files that a broker has marked
    (-delete, -stray, -future, .deleted, .cleaned, .swap), uploads without a manifest, temporary
    files of kip33, and unknown files. It removes none of them.
    """
    _require_one_of(path_only, snapshot, diff, keep)
    if (policy or holes) and (diff or keep or path_only or not holes):
        raise click.UsageError(
            "--policy requires --holes, and --holes excludes --diff, --keep and --path"
        )
    if orphans and (diff or keep or path_only or holes):
        raise click.UsageError("--orphans excludes --diff, --holes, --keep and --path")
    if segments and (diff or keep or path_only or holes or orphans):
        raise click.UsageError("--segments excludes --diff, --holes, --keep, --orphans and --path")
    if statuses and not segments:
        raise click.UsageError("--status requires --segments")
    _require_plan_options(orphans, snapshot, plan_file, remove, apply_file, dry_run)
    leave_pandas_out()
    opened = Catalog.at(catalog_dir)
    require_directory(opened.location, "CATALOG")
    if diff:
        _show_difference(opened, *diff, output_format)
    elif holes:
        _show_holes(opened, choose_and_warn(opened, snapshot).snapshot, policy, output_format)
    elif segments:
        _show_segments(opened, choose_and_warn(opened, snapshot).snapshot, statuses, output_format)
    elif apply_file:
        apply_plan_file(opened, apply_file, output_format, dry_run=dry_run)
    elif orphans:
        request = LeftoverRequest.of(plan_file, remove) if plan_file else None
        show_orphans(opened, choose_and_warn(opened, snapshot).snapshot, request, output_format)
    elif keep:
        _prune_catalog(opened, keep, output_format)
    elif path_only:
        _print_path(opened, snapshot)
    else:
        _show_snapshots(opened, snapshot, output_format)


def _require_one_of(
    path_only: bool, snapshot: str | None, diff: tuple[str, str] | None, keep: int | None
) -> None:
    """Raise UsageError for options that exclude each other, unlike --path and --snapshot."""
    shown = [name for name, given in (("--path", path_only), ("--snapshot", snapshot)) if given]
    others = [name for name, given in (("--diff", diff), ("--keep", keep)) if given]
    if others and len(shown + others) > 1:
        raise click.UsageError(
            f"{' and '.join(others + shown)} cannot be combined: give one of them"
        )


def _require_plan_options(
    orphans: bool,
    snapshot: str | None,
    plan_file: str | None,
    remove: tuple[str, ...],
    apply_file: str | None,
    dry_run: bool,
) -> None:
    """Raise UsageError for options of a plan of leftovers that miss another one."""
    if (plan_file or apply_file) and not orphans:
        raise click.UsageError("--plan and --apply require --orphans")
    if (plan_file or apply_file) and snapshot:
        raise click.UsageError("--plan and --apply exclude --snapshot: they use the newest one")
    if plan_file and apply_file:
        raise click.UsageError("--plan and --apply cannot be combined: give one of them")
    if remove and not plan_file:
        raise click.UsageError("--remove requires --plan FILE")
    if dry_run and not apply_file:
        raise click.UsageError("--dry-run requires --apply FILE")


def _show_difference(opened: Catalog, a: str, b: str, output_format: str) -> None:
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


def _show_holes(opened: Catalog, shown: Snapshot, policy: str | None, output_format: str) -> None:
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


def _warn_of(problem: str) -> None:
    """Print on standard error that a snapshot is ignored, and why."""
    click.echo(f"Warning: {problem}; this snapshot is ignored", err=True)


def _prune_catalog(opened: Catalog, keep: int, output_format: str) -> None:
    """Show what will be removed, remove it, show the result; exit 1 if a removal failed."""
    pruned = prune(
        opened,
        keep=keep,
        now_ms=int(time.time() * 1000),
        on_plan=_print_plan if output_format == "table" else None,
    )
    for problem in pruned.plan.problems:
        _warn_of(problem)
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


def _print_path(opened: Catalog, name: str | None) -> None:
    """Print the path of a snapshot's folder, the URI if it is not local."""
    shown = choose_and_warn(opened, name).snapshot
    folder = opened.snapshot_folder(shown.name)
    stream = sys.stdout if sys.stdout.isatty() else exact_output()  # programs open the path
    click.echo(folder.path if folder.is_local else folder.uri, stream, color=True)


def _show_segments(
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


def _show_snapshots(opened: Catalog, name: str | None, output_format: str) -> None:
    """Print all snapshots, and the totals of one, per topic; None is the newest one."""
    shown, _ = choose(opened, name, lambda _: None)  # the loop below warns of all
    candidates = list(opened.candidates())
    for candidate in candidates:
        if candidate.problem:
            _warn_of(candidate.problem)
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
