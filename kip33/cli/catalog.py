"""`kip33 catalog`: snapshots and totals; what changed, holes, segments; remove old snapshots."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from kip33.catalog.tiers import Tiers
from kip33.catalog.topic_totals import topic_totals, topics_of
from kip33.cli.catalog_orphans import LeftoverRequest, apply_plan_file, show_orphans
from kip33.cli.catalog_tiers import holes_answer, rows_of, tiers_answer
from kip33.cli.options import by_hand, format_option, store_options, topic_option
from kip33.cli.output import (
    Column,
    Output,
    Row,
    RowList,
    Table,
    choose_and_warn,
    chosen_snapshot,
    counted,
    counts_text,
    facts,
    human_bytes,
    iso_time,
    open_catalog_dir,
    refuse_with_two_catalogs,
    show,
    some,
    warn,
)
from kip33.cli.standard_output import exact_output
from kip33.errors import ExitCode
from kip33.retention.policy_files import load_policies
from kip33.rules.policies import TopicGlobs, require_topics
from kip33.rules.segment_notes import OF_REMARKS, with_remarks
from kip33.rules.segment_summary import SegmentStatus

_OF_SEGMENTS: Final = ["log_uri", "status", "error"]


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
@click.argument("remote_dir", metavar="[REMOTE]", required=False)
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
@topic_option
@store_options
@format_option
def catalog(
    catalog_dir: str,
    remote_dir: str | None,
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
    topics: tuple[str, ...],
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

    With tiered storage, give the catalog of the log directories and that of the remote tier, in
    any order. Then it shows how many segments of each partition are in which tier, what is wrong
    between the tiers, and what to do. --holes and --segments are about both tiers together.
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
    if topics and (diff or keep or path_only or orphans):
        raise click.UsageError("--topic excludes --diff, --keep, --orphans and --path")
    if statuses and not segments:
        raise click.UsageError("--status requires --segments")
    _require_plan_options(orphans, snapshot, plan_file, remove, apply_file, dry_run)
    if remote_dir:
        refuse_with_two_catalogs(
            {
                "--snapshot": snapshot,
                "--diff": diff,
                "--keep": keep,
                "--path": path_only,
                "--orphans": orphans,
            }
        )
    if remote_dir:
        one, _ = chosen_snapshot(catalog_dir)
        tiers = Tiers.of(one, chosen_snapshot(remote_dir, what="REMOTE")[0], warn)
        answer = tiers_answer(tiers, topics, statuses, policy, holes=holes, segments=segments)
        show(answer, output_format)
        return
    opened = open_catalog_dir(catalog_dir)
    if diff:
        show(_difference(opened, *diff), output_format)
    elif holes:
        shown = choose_and_warn(opened, snapshot).snapshot
        require_topics(topics, topics_of(opened, shown))
        policies = load_policies(policy) if policy else None
        found = read_holes(opened, shown, topics, policies=policies)
        show(holes_answer(found, shown.name), output_format)
    elif segments:
        shown = choose_and_warn(opened, snapshot).snapshot
        show(_segments(opened, shown, topics, statuses, output_format), output_format)
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
        show(_snapshots(opened, snapshot, topics), output_format)


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


def _difference(opened: Catalog, a: str, b: str) -> Output:
    """Return each segment that changed from snapshot `a` to snapshot `b`, and their sums."""
    before, after = (choose_and_warn(opened, one).snapshot for one in (a, b))
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


def _prune_catalog(opened: Catalog, keep: int, output_format: str) -> None:
    """Show what will be removed, remove it, show the result; exit 1 if a removal failed."""
    pruned = prune(
        opened,
        keep=keep,
        now_ms=int(time.time() * 1000),
        on_plan=_print_plan if output_format == "table" else None,
    )
    for problem in pruned.plan.problems:
        warn(f"{problem}; this snapshot is ignored")
    for line in pruned.plan.foreign:
        warn(line)
    removed = pruned.count(RemovalKind.OLD_SNAPSHOT, RemovalKind.DAMAGED_SNAPSHOT)
    answer = Output(
        page=[_pruned_facts(pruned, removed)],
        head={
            "catalog": opened.location.uri,
            "snapshots_removed": removed,
            "snapshots_kept": pruned.plan.kept,
            "kept_younger_than_an_hour": pruned.plan.kept_young,
            "leftovers_removed": pruned.count(RemovalKind.DEAD_BUILD),
            "bytes_freed": pruned.bytes_freed,
        },
        rows=[
            RowList("removed", map(_as_row, pruned.removed), columns=("what", "name", "size_bytes"))
        ],
        tail={"foreign": list(pruned.plan.foreign), "failures": list(pruned.failures)},
    )
    show(answer, output_format)
    for failure in pruned.failures:
        click.echo(f"Error: {failure}", err=True)
    if pruned.failures:
        sys.exit(ExitCode.INCOMPLETE)


def _as_row(removal: Removal) -> dict[str, Any]:
    return {"what": removal.what, "name": removal.name, "size_bytes": removal.size_bytes}


def _print_plan(plan: Plan) -> None:
    columns = (
        Column("to remove", "what", rank=0),
        Column("name", "name", is_name=True),
        Column("size", "size_bytes", human_bytes),
    )
    if plan.removals:
        Table(columns, map(_as_row, plan.removals), most=None).print()


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


def _print_path(opened: Catalog, name: str | None) -> None:
    """Print the path of a snapshot's folder, the URI if it is not local."""
    shown = choose_and_warn(opened, name).snapshot
    folder = opened.snapshot_folder(shown.name)
    stream = sys.stdout if sys.stdout.isatty() else exact_output()  # programs open the path
    click.echo(folder.word, stream, color=True)


def _segments(
    opened: Catalog,
    shown: Snapshot,
    topics: Sequence[str],
    statuses: Sequence[str],
    output_format: str,
) -> Output:
    """Return path, status and remarks of a snapshot's segments; `statuses`: only of these."""
    known = topics_of(opened, shown)
    require_topics(topics, known)
    chosen = [*filter(TopicGlobs.of(topics).matches, known)] if topics else None
    counts: Counter[str] = Counter()
    rows: Iterable[dict[str, Any]] = _counted_segments(opened, shown, chosen, statuses, counts)
    if output_format == "json":  # which has the counts before the rows
        rows = list(rows)
    below = shown.source.rstrip("/") + "/"
    columns = (
        Column("path", lambda row: row["log_uri"].removeprefix(below), is_name=True),
        Column("status", "status", rank=0),
        Column("error", "error", none="", is_remark=True),
    )
    return Output(
        page=[Table(columns, rows, f"segments, {shown.name}", "segments")],
        rows=[RowList("segments", rows, "segment", columns=_OF_SEGMENTS)],
        summary={"snapshot": shown.name, "by_status": counts},
    )


def _counted_segments(
    opened: Catalog,
    shown: Snapshot,
    topics: Sequence[str] | None,
    statuses: Sequence[str],
    counts: Counter[str],
) -> Iterator[dict[str, Any]]:
    """Yield the segments of these topics with these statuses, and count them by status."""
    for piece in opened.read_pieces(shown, ["log_uri", "status", *OF_REMARKS], topics):
        if statuses:
            piece = piece.filter(pc.is_in(piece["status"], value_set=pa.array(statuses)))
        for row in piece.to_pylist():
            counts[row["status"]] += 1
            yield with_remarks(row, _OF_SEGMENTS)


def _snapshots(opened: Catalog, name: str | None, topics: Sequence[str]) -> Output:
    """Return all snapshots, and the totals of one, per topic; None is the newest one."""
    shown, _ = choose(opened, name, lambda _: None)  # the loop below warns of all
    snapshots: list[dict[str, Any]] = []
    for candidate in list(opened.candidates()):
        if candidate.problem:
            warn(f"{candidate.problem}; this snapshot is ignored")
        elif snapshot := candidate.snapshot:
            orphaned = snapshot.orphaned
            snapshots.append(
                {
                    "snapshot": snapshot.name,
                    "created_ms": snapshot.created_ms,
                    "source": snapshot.source,
                    "segments": snapshot.rows,
                    "parts": len(snapshot.parts),
                    "orphaned": orphaned.rows if orphaned else 0,
                    "orphaned_bytes": orphaned.index_bytes if orphaned else 0,
                }
            )
    every, globs = topic_totals(opened, shown), TopicGlobs.of(topics)
    require_topics(topics, (total.topic for total in every))
    totals = [total._asdict() for total in every if globs.matches(total.topic)]
    return Output(
        page=_snapshots_page(opened, shown, snapshots, totals),
        head={"path": opened.snapshot_folder(shown.name).uri},
        rows=[RowList("snapshots", snapshots, "snapshot"), RowList("topics", totals, "topic")],
    )


def _snapshots_page(
    opened: Catalog, shown: Snapshot, snapshots: Sequence[Row], totals: Sequence[Row]
) -> Iterator[Table | str]:
    columns = (
        Column("snapshot", "snapshot", is_name=True),
        Column("created", "created_ms", iso_time),
        Column("segments", "segments"),
    )
    yield Table(columns, snapshots, shown.source, most=None)
    has_overlaps = any(total["overlaps"] for total in totals)
    topic_columns = _TOPIC_COLUMNS if has_overlaps else _TOPIC_COLUMNS[:-1]
    yield Table(topic_columns, totals, shown.name, most=None)
    yield from map(_topic_ids_line, (one for one in totals if len(one["topic_ids"]) > 1))
    if shown.orphaned:
        count, size = shown.orphaned.rows, human_bytes(shown.orphaned.index_bytes)
        yield f"orphans: {counted(count, 'index file')} of kip33 without a log; {size}"
    found = hole_totals(read_holes(opened, shown))
    if found.by_hole:
        yield f"holes: {found.as_text()}; --holes shows them"


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
