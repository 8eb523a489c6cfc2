"""`kip33 catalog`."""

from typing import Any

import click
from click.core import ParameterSource

from kip33.builds.leftovers import PLANNED_ON_REQUEST
from kip33.catalog.catalog import Catalog
from kip33.cli.catalog_diff import show_difference
from kip33.cli.catalog_holes import show_holes
from kip33.cli.catalog_orphans import show_orphans
from kip33.cli.catalog_orphans_plan import LeftoverRequest, apply_plan_file
from kip33.cli.catalog_prune import prune_catalog
from kip33.cli.catalog_snapshots import print_path, show_segments, show_snapshots
from kip33.cli.options import format_option, store_options
from kip33.cli.pandas_free import leave_pandas_out
from kip33.cli.snapshot_choice import choose_and_warn
from kip33.rules.segment_summary import SegmentStatus
from kip33.stores.directory_checks import require_directory


def _by_hand(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    """Refuse --keep from a file: a command that shows must not delete because of a default."""
    if ctx.get_parameter_source("keep") is ParameterSource.DEFAULT_MAP:
        raise click.BadParameter(
            "--keep removes snapshots: give it on the command line, not in the configuration file",
            ctx,
            param,
        )
    return value


def _on_command_line(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Refuse an option from a file: no default may plan or do a removal."""
    if value and ctx.get_parameter_source(str(param.name)) is ParameterSource.DEFAULT_MAP:
        raise click.BadParameter(
            "give this option on the command line, not in the configuration file", ctx, param
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
    callback=_on_command_line,
    help="With --orphans: write a plan, FILE.jsonl, that removes the files of kip33. Replaces FILE "
    "only if it is such a plan.",
)
@click.option(
    "--remove",
    multiple=True,
    type=click.Choice(list(PLANNED_ON_REQUEST)),
    callback=_on_command_line,
    help="With --plan: also plan leftovers of this kind, which kip33 did not write. May be "
    "repeated.",
)
@click.option(
    "--apply",
    "apply_file",
    metavar="FILE",
    callback=_on_command_line,
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
        show_difference(opened, *diff, output_format)
    elif holes:
        show_holes(opened, choose_and_warn(opened, snapshot).snapshot, policy, output_format)
    elif segments:
        show_segments(opened, choose_and_warn(opened, snapshot).snapshot, statuses, output_format)
    elif apply_file:
        apply_plan_file(opened, apply_file, output_format, dry_run=dry_run)
    elif orphans:
        request = LeftoverRequest.of(plan_file, remove) if plan_file else None
        show_orphans(opened, choose_and_warn(opened, snapshot).snapshot, request, output_format)
    elif keep:
        prune_catalog(opened, keep, output_format)
    elif path_only:
        print_path(opened, snapshot)
    else:
        show_snapshots(opened, snapshot, output_format)


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
