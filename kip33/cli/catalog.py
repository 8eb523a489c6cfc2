"""`kip33 catalog`: snapshots and totals, or two tiers; its modes show and remove other things."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import click
import pyarrow as pa

from kip33.archive.common_options import TopicGlobList
from kip33.catalog.catalog import Catalog, Snapshot, choose
from kip33.catalog.catalog_answers import tiers_compared, undamaged_snapshots
from kip33.catalog.catalog_columns import rows_of
from kip33.catalog.difference import count_changes, difference
from kip33.catalog.holes import hole_totals, read_holes
from kip33.catalog.logs import replica_lines
from kip33.catalog.pruning import REMOVALS, Plan, Pruned, RemovalKind, prune
from kip33.catalog.replica_findings import OF_REPLICAS, replica_notes
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.catalog.topic_totals import topic_totals
from kip33.cli.catalog_orphans import catalog_orphans
from kip33.cli.catalog_places import (
    CatalogPlaces,
    catalog_argument,
    catalog_places,
    snapshot_option,
)
from kip33.cli.catalog_segments import catalog_holes, catalog_segments, tiers_output
from kip33.cli.config_file import by_hand
from kip33.cli.declared_options import option_of
from kip33.cli.modes import CommandWithModes, Earlier, Mode, with_modes
from kip33.cli.output import (
    Column,
    Output,
    OutputFinding,
    Row,
    RowList,
    Table,
    counted,
    counts_text,
    facts,
    human_bytes,
    iso_time,
    open_catalog_dir,
    some,
    warn,
)
from kip33.cli.runs import CommandRun, runs
from kip33.formats.batch import MAX_INT32
from kip33.rules.policies import TopicGlobs, require_topics


@click.command(
    cls=CommandWithModes,
    epilog="Example: duckdb -c \"FROM '$(kip33 catalog snapshots DIR/_catalog --path)/*.parquet'\"",
)
@catalog_places
@option_of("topics", TopicGlobList)
@runs(work="here", summary=False)
def catalog(places: CatalogPlaces, topics: Sequence[str], run: CommandRun) -> Output:
    """Show the snapshots of CATALOG, newest first, and the newest one's totals per topic.

    With tiered storage, give the catalog of the log directories and that of the remote tier, in
    any order. Then it shows how many segments of each partition are in which tier, what is wrong
    between the tiers, and what to do.

    A directory with the name of a command below is given as ./diff.
    """
    source, told = places.chosen()
    if isinstance(source, Tiers):
        return tiers_output(source, tiers_compared(source, topics))
    snapshots = _snapshot_rows(source.catalog, told)
    every, globs = topic_totals(*source), TopicGlobs.of(topics)
    require_topics(topics, (total.topic for total in every))
    totals = [total._asdict() for total in every if globs.matches(total.topic)]
    return Output(
        page=_overview_page(source, snapshots, totals),
        head={"path": source.catalog.snapshot_folder(source.snapshot.name).uri},
        rows=[RowList("snapshots", snapshots, "snapshot"), RowList("topics", totals, "topic")],
    )


def _snapshot_rows(opened: Catalog, told: Sequence[str] = ()) -> list[Row]:
    """Return a row for each undamaged snapshot, newest first; warn of others that are not told."""

    def tell(line: str) -> None:
        if line not in told:
            warn(line)

    return [
        {
            "snapshot": one.name,
            "created_ms": one.created_ms,
            "source": one.source,
            "segments": one.rows,
            "parts": len(one.parts),
            "orphaned": one.orphaned.rows if one.orphaned else 0,
            "orphaned_bytes": one.orphaned.index_bytes if one.orphaned else 0,
        }
        for one in undamaged_snapshots(opened, tell)
    ]


def _snapshots_table(snapshots: Sequence[Row], title: str) -> Table:
    columns = (
        Column("snapshot", "snapshot", is_name=True),
        Column("created", "created_ms", iso_time),
        Column("segments", "segments"),
    )
    return Table(columns, snapshots, title, most=None)


def _overview_page(
    source: CatalogSnapshot, snapshots: Sequence[Row], totals: Sequence[Row]
) -> Iterator[Table | str]:
    shown = source.snapshot
    yield _snapshots_table(snapshots, shown.source)
    has_overlaps = any(total["overlaps"] for total in totals)
    topic_columns = _TOPIC_COLUMNS if has_overlaps else _TOPIC_COLUMNS[:-1]
    yield Table(topic_columns, totals, shown.name, most=None)
    yield from map(_topic_ids_line, (one for one in totals if len(one["topic_ids"]) > 1))
    if shown.orphaned:
        count, size = shown.orphaned.rows, human_bytes(shown.orphaned.index_bytes)
        yield f"orphans: {counted(count, 'index file')} of kip33 without a log; {size}"
    found = hole_totals(read_holes(*source))
    if found.by_hole:
        yield f"holes: {found.as_text()}; kip33 catalog holes shows them"
    yield from replica_lines(replica_notes(source), OF_REPLICAS)


_TOPIC_COLUMNS: Final = (
    Column("topic", lambda total: total["topic"] or "?", is_name=True),
    Column("partitions", "partitions", rank=4),
    Column("segments", "segments"),
    Column("log", "log_bytes", human_bytes),
    Column("records", "record_count", none="?", rank=2),
    Column("entries", "time_index_entries", rank=5),
    Column("from", "first_timestamp", iso_time, rank=3),
    Column("to", "largest_timestamp", iso_time),
    Column("not ok", "not_ok", counts_text, is_remark=True),
    Column("overlaps", "overlaps", counts_text, is_remark=True),
)


def _topic_ids_line(total: Row) -> str:
    """Return the ids of the topics of a name, or of one topic."""
    ids = (
        f"{one['topic_id']} ({'newest; ' if one['newest'] else ''}"
        f"{counted(one['segments'], 'segment')}, {human_bytes(one['log_bytes'])})"
        for one in total["topic_ids"]
    )
    return f"{total['topic']}: {len(total['topic_ids'])} topic ids of this name: " + ", ".join(ids)


@click.command(
    "snapshots",
    cls=Mode,
    epilog="Example: kip33 catalog snapshots indexes/_catalog --path",
)
@catalog_argument
@snapshot_option
@click.option(
    "--path",
    "path_only",
    is_flag=True,
    help="Print only the path of the snapshot's Parquet folder.",
)
@runs(work="here", summary=False)
def catalog_snapshots(
    catalog_dir: str, snapshot: str | None, path_only: bool, run: CommandRun
) -> Output:
    """List the snapshots of CATALOG, newest first, or print where one is.

    --path prints the folder of the newest snapshot's Parquet files, or of that of --snapshot.
    Spark, pyarrow, pandas, DuckDB and Polars can read it.
    """
    opened = open_catalog_dir(catalog_dir)
    if path_only:
        shown = choose(opened, snapshot, warn).snapshot
        return Output(page=(), emitted=[opened.snapshot_folder(shown.name).word])
    one = snapshot and choose(opened, snapshot, warn).snapshot.name
    rows = [row for row in _snapshot_rows(opened) if one in (None, row["snapshot"])]
    title = rows[0]["source"] if rows else ""
    return Output(page=[_snapshots_table(rows, title)], rows=[RowList("snapshots", rows)])


@click.command("diff", cls=Mode, epilog="Example: kip33 catalog diff indexes/_catalog 1 2")
@catalog_argument
@click.argument("a")
@click.argument("b")
@runs(work="here", summary=False)
def catalog_diff(catalog_dir: str, a: str, b: str, run: CommandRun) -> Output:
    """Show each segment that changed from snapshot A to snapshot B: names, numbers or ids."""
    opened = open_catalog_dir(catalog_dir)
    before, after = (choose(opened, one, warn).snapshot for one in (a, b))
    changed = difference(opened, before, after)
    counts = count_changes(changed)
    return Output(
        page=_changes_page(changed, counts, before, after),
        rows=[RowList("changes", rows_of(changed), columns=changed.schema.names)],
        head={"before": before.name, "after": after.name, "counts": counts},
    )


def _changes_page(
    changed: pa.Table, counts: Mapping[str, int], before: Snapshot, after: Snapshot
) -> Iterator[Table | str]:
    if not counts:
        segments = counted(after.rows, "segment")
        yield f"Nothing changed from {before.name} to {after.name}: {segments}."
        return
    columns = (
        Column(
            "segment", lambda row: row["log_uri"].removeprefix(f"{after.source}/"), is_name=True
        ),
        Column("changes", "changes", ", ".join, rank=0),
        Column("bytes before", "size_bytes_before", rank=2),
        Column("bytes after", "size_bytes_after"),
        Column("status before", "status_before", rank=2),
        Column("status after", "status_after"),
    )
    title = f"{before.name} to {after.name}"
    yield Table(columns, rows_of(changed), title, "segments", changed.num_rows)
    yield Table((Column("change", 0, rank=0), Column("segments", 1, rank=0)), counts.items())


@click.command("prune", cls=Mode, epilog="Example: kip33 catalog prune indexes/_catalog --keep 30")
@catalog_argument
@click.option(
    "--keep",
    type=click.IntRange(1, MAX_INT32),
    metavar="N",
    required=True,
    callback=by_hand,
    help="Keep the newest N complete snapshots and each snapshot that was the newest within "
    "the last hour.",
)
@runs(work="here", summary=False)
def catalog_prune(catalog_dir: str, keep: int, run: CommandRun) -> Output:
    """Remove old snapshots of CATALOG, but not those that running builds use.

    Also the leftovers of builds that stopped a day ago or earlier without finishing are removed.
    Files that kip33 did not write stay, and a warning names their folder.
    """
    opened = open_catalog_dir(catalog_dir)
    is_table = run.options.output_format == "table"
    on_plan = _print_plan if is_table else None
    pruned = prune(opened, keep=keep, now_ms=run.started_ms, on_plan=on_plan)
    warn(*pruned.warnings)
    for failure in pruned.failures:
        click.echo(f"Error: {failure}", err=True)
    removed = pruned.count(RemovalKind.OLD_SNAPSHOT, RemovalKind.DAMAGED_SNAPSHOT)
    rows = (one.as_row() for one in pruned.removed)
    return Output(
        page=[_pruned_facts(pruned, removed)],
        head={
            "catalog": opened.location.uri,
            "snapshots_removed": removed,
            "snapshots_kept": pruned.plan.kept,
            "kept_younger_than_an_hour": pruned.plan.kept_young,
            "leftovers_removed": pruned.count(RemovalKind.DEAD_BUILD),
            "bytes_freed": pruned.bytes_freed,
        },
        rows=[RowList("removed", rows, columns=REMOVALS.names)],
        tail={"foreign": list(pruned.plan.foreign), "failures": list(pruned.failures)},
        if_unwritten=f"removed: {counted(removed, 'snapshot')}",
        findings={"failed": OutputFinding(len(pruned.failures), "file")},
        incomplete=["failed"],
    )


def _print_plan(plan: Plan) -> None:
    columns = (
        Column("to remove", "what", rank=0),
        Column("name", "name", is_name=True),
        Column("size", "size_bytes", human_bytes),
    )
    if plan.removals:
        Table(columns, [one.as_row() for one in plan.removals], most=None).print()


def _pruned_facts(pruned: Pruned, removed: int) -> Table:
    damaged = some(pruned.count(RemovalKind.DAMAGED_SNAPSHOT), ", {:,} of them damaged")
    return facts(
        "prune",
        ("snapshots removed", f"{removed:,}{damaged or ''}"),
        ("kept", f"{pruned.plan.kept:,}"),
        ("the newest within the last hour", f"{pruned.plan.kept_young:,}"),
        ("leftovers removed", f"{pruned.count(RemovalKind.DEAD_BUILD):,}"),
        ("freed", human_bytes(pruned.bytes_freed)),
        ("not removed", some(len(pruned.failures), "{:,}; see standard error")),
    )


with_modes(
    catalog,
    catalog_snapshots,
    catalog_diff,
    catalog_holes,
    catalog_segments,
    catalog_orphans,
    catalog_prune,
    earlier={
        "--path": Earlier("snapshots", is_kept=True),
        "--diff": Earlier("diff", values=2),
        "--holes": Earlier("holes"),
        "--segments": Earlier("segments"),
        "--orphans": Earlier("orphans"),
        "--keep": Earlier("prune", is_kept=True),
    },
)
