"""`kip33 retention`: what may expire, what blocks the rest, and carrying a plan out."""

import sys
from typing import Any, Final

import click
from click.core import ParameterSource

from kip33.cli.options import TOPICS_HELP, format_option, policy_options, session_options
from kip33.cli.summary_file import summary_option
from kip33.cli.times import DURATION, MOMENT, SIZE, parse_clock
from kip33.rules.retention import ACTIVE_SEGMENT, BOUNDARIES

FINDINGS: Final = ("blocked", "expired", "untrusted")
STOPPED: Final = "stopped"  # a finding of --apply
APPLYING: Final = ("apply_file", "dry_run", "trash", "max_age", "limit")
SHARED: Final = ("output_format", "fail_on", "summary_file", "config")


def _by_hand(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse --apply and --plan from a file: no default may delete, or say what to delete."""
    if ctx.get_parameter_source(str(param.name)) is ParameterSource.DEFAULT_MAP:
        raise click.BadParameter("on the command line only", ctx, param)
    return value


def _moments(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[int, ...]:
    """Return the moments of `T1,T2`, none where none is given."""
    try:
        return tuple(parse_clock(one) for one in text.split(",")) if text else ()
    except ValueError as error:
        raise click.BadParameter(f"{error}; for example 2024-05-01,2024-06-01") from error


@click.command(
    epilog="Example: kip33 retention /archive/indexes/_catalog --policy conf/retention.toml "
    "--forecast 30d --fail-on blocked"
)
@click.argument("catalog_dir", metavar="[CATALOG]", required=False)
@click.option(
    "--now", type=MOMENT, metavar="T", help="Judge as of T, e.g. 2024-05-01 [default: the clock]."
)
@click.option("--snapshot", metavar="NAME", help="This snapshot instead of the newest.")
@policy_options
@click.option(
    "--ignore-future",
    type=DURATION,
    metavar="1h",
    help="What if the file's time stood in for timestamps later than this after now.",
)
@click.option(
    "--active-segment",
    type=click.Choice(ACTIVE_SEGMENT),
    default="keep",
    show_default=True,
    help="A partition's last segment: keep it, or judge it as a broker does.",
)
@click.option(
    "--boundary",
    type=click.Choice(BOUNDARIES),
    default="local",
    show_default=True,
    help="remote: the inclusive comparison of tiered storage up to Kafka 4.2. From 4.3 on tiered "
    "storage compares as a local log does.",
)
@click.option(
    "--log-start-offsets",
    metavar="FILE",
    help="CSV topic,partition,offset[,log_dir] over the archive's log-start-offset-checkpoint.",
)
@click.option(
    "--at",
    callback=_moments,
    metavar="T1,T2",
    help="What is freed by these moments.",
)
@click.option(
    "--forecast", type=DURATION, metavar="30d", help="What is freed on each of the next days."
)
@click.option(
    "--show-broker-view",
    is_flag=True,
    help="What a broker would do with the index files as they lie beside the logs.",
)
@click.option(
    "--output",
    metavar="DIR",
    help="Write segments/, partitions/ as Parquet and summary.json to a folder that is new, empty "
    "or has such results.",
)
@click.option(
    "--emit",
    type=click.Choice(["delete-records"]),
    help="Print only the JSON that kafka-delete-records.sh takes.",
)
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice([*FINDINGS, STOPPED]),
    help="Exit 3 if there is any; may be repeated. stopped: of --apply.",
)
@click.option(
    "--plan",
    "plan_file",
    metavar="FILE",
    callback=_by_hand,
    help="Write what may be deleted to a plan, FILE.jsonl. Replaces only a plan.",
)
@click.option(
    "--trust-last-modified",
    is_flag=True,
    help="Plan segments, too, for which the file's time stands in for a timestamp.",
)
@click.option(
    "--apply",
    "apply_file",
    metavar="FILE",
    callback=_by_hand,
    help="Delete what a plan says, no more.",
)
@click.option("--dry-run", is_flag=True, help="With --apply: check everything, delete nothing.")
@click.option("--trash", metavar="DIR", help="With --apply: move files there instead.")
@click.option(
    "--max-age",
    type=DURATION,
    default="24h",
    show_default=True,
    metavar="24h",
    help="With --apply: refuse an older plan.",
)
@click.option(
    "--limit",
    type=SIZE,
    default="1TiB",
    show_default=True,
    metavar="1TiB",
    help="With --apply: refuse a plan of more bytes.",
)
@click.option("--topics", multiple=True, metavar="GLOB", help=TOPICS_HELP)
@summary_option
@session_options
@format_option("table", "json", "jsonl", "csv")
@click.pass_context
def retention(
    ctx: click.Context, /, catalog_dir: str | None, apply_file: str | None, **options: Any
) -> None:
    """Judge every segment of CATALOG by retention, oldest first, as a broker would.

    One row a segment says whether it is deletable and why; one a partition what is deletable, what
    has expired and is blocked, by which segment and until when. Nothing is deleted: --plan writes
    down what may be, and a second command, --apply, carries exactly that out.

    Sizes are those of the catalog. A log that is a link counts with the bytes of its target, which
    deleting the link does not free; --plan leaves links out, so its figures count no link.
    """
    given = {
        name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if apply_file is None:
        _require_none(ctx, given & set(APPLYING), "goes with --apply FILE only")
        if catalog_dir is None:
            raise click.UsageError("CATALOG is missing: the folder a build's catalog is in", ctx)
        from kip33.cli.retention_judge import judge_catalog
        from kip33.cli.retention_question import RetentionQuestion

        found = judge_catalog(RetentionQuestion.of(catalog_dir, options))
    else:
        _require_none(ctx, given - {*APPLYING, *SHARED}, "is in the plan, not beside --apply")
        from kip33.cli.retention_apply import apply_file as carry_out

        found = carry_out(apply_file, options)
    if any(finding in found for finding in options["fail_on"]):
        sys.exit(3)


def _require_none(ctx: click.Context, names: set[str], why: str) -> None:
    """Raise UsageError, naming the options, if there are any."""
    shown = sorted(
        param.opts[0] if param.param_type_name == "option" else "CATALOG"
        for param in ctx.command.params
        if param.name in names
    )
    if shown:
        raise click.UsageError(f"{', '.join(shown)} {why}", ctx)
