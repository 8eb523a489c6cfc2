"""`kip33 retention`: show what is deletable and what blocks the rest; carry out a plan."""

import sys
from typing import Final

import click

from kip33.cli.metrics_file import metrics_options
from kip33.cli.options import (
    by_hand,
    engine_options,
    format_option,
    makes_request,
    policy_options,
    session_options,
    summary_option,
    topic_option,
)
from kip33.cli.retention_question import RetentionCommand
from kip33.cli.times import DURATION, MOMENT, SIZE, parse_clock
from kip33.errors import ExitCode
from kip33.retention.apply_segment import PartitionOutcome
from kip33.rules.retention import ActiveSegment
from kip33.rules.search import NEWEST_KAFKA, parse_kafka_version

FINDINGS: Final = ("blocked", "expired", "untrusted", "holes")


def _moments(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[int, ...]:
    """Return the times in `T1,T2`; an empty tuple without the option."""
    try:
        return tuple(parse_clock(one) for one in text.split(",")) if text else ()
    except ValueError as error:
        raise click.BadParameter(f"{error}; for example 2024-05-01,2024-06-01") from error


def _version(ctx: click.Context, param: click.Parameter, text: str) -> tuple[int, int]:
    """Return a version of Kafka."""
    try:
        return parse_kafka_version(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command(
    epilog="Example: kip33 retention /archive/indexes/_catalog --policy conf/retention.toml "
    "--forecast 30d --fail-on blocked"
)
@click.argument("catalog_dir", metavar="[CATALOG]", required=False)
@click.option(
    "--now",
    type=MOMENT,
    metavar="T",
    help="Evaluate retention at T, such as 2024-05-01 [default: the clock].",
)
@click.option("--snapshot", metavar="NAME", help="Use this snapshot instead of the newest.")
@click.option(
    "--remote",
    metavar="CATALOG",
    help="The catalog of the remote tier, for topics with remote.storage.enable in a broker's log "
    "directories: they are judged by local.retention.ms and local.retention.bytes, and only what "
    "is complete in the remote tier can be deleted. Its newest snapshot is used.",
)
@click.option(
    "--local",
    metavar="CATALOG",
    help="The catalog of the brokers' log directories, for a CATALOG of the remote tier: "
    "retention.bytes then also counts what only the brokers have, their log start offsets are "
    "used, and no segment is the active one. Its newest snapshot is used.",
)
@policy_options
@click.option(
    "--ignore-future",
    type=DURATION,
    metavar="1h",
    help="Show what would change if timestamps further than this in the future were "
    "replaced by the file's modification time.",
)
@click.option(
    "--active-segment",
    type=click.Choice([str(one) for one in ActiveSegment]),
    default=str(ActiveSegment.KEEP),
    show_default=True,
    help="The last segment of a partition. keep: never delete it; kafka: evaluate it as a "
    "broker does.",
)
@click.option(
    "--broker-version",
    callback=_version,
    default=".".join(map(str, NEWEST_KAFKA)),
    show_default=True,
    metavar="4.2",
    help="Evaluate the remote tier as brokers of this version do: up to 4.2 a segment at the very "
    "limit of retention.ms goes, up to 4.3 --local counts a segment twice that begins at the last "
    "uploaded offset.",
)
@click.option(
    "--log-start-offsets",
    metavar="FILE",
    help="CSV topic,partition,offset[,log_dir]. Overrides the archive's "
    "log-start-offset-checkpoint.",
)
@click.option(
    "--at",
    callback=_moments,
    metavar="T1,T2",
    help="Show what can be deleted at these times.",
)
@click.option(
    "--forecast",
    type=DURATION,
    metavar="30d",
    help="Show what can be deleted on each of the next days.",
)
@click.option(
    "--show-broker-view",
    is_flag=True,
    help="Show what a broker would delete, given the index files beside the logs.",
)
@click.option(
    "--output",
    metavar="DIR",
    help="Write segments/ and partitions/ (Parquet) and summary.json to this folder. The "
    "folder must be new or empty, or have results of this command.",
)
@click.option(
    "--emit",
    type=click.Choice(["delete-records"]),
    help="Print only the JSON that kafka-delete-records.sh reads.",
)
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice([*FINDINGS, str(PartitionOutcome.STOPPED)]),
    help="Exit 3 if there is any. holes: offsets that are missing between segments. stopped: a "
    "partition that --apply stopped at (without this option: exit 4, or 1 after an error). May be "
    "repeated.",
)
@click.option(
    "--plan",
    "plan_file",
    metavar="FILE",
    callback=by_hand,
    help="Write the deletable segments to a plan, FILE.jsonl. Replaces FILE only if it is a plan.",
)
@click.option(
    "--trust-last-modified",
    is_flag=True,
    help="Also plan segments without timestamps, whose file's modification time is used.",
)
@click.option(
    "--apply",
    "apply_file",
    metavar="FILE",
    callback=by_hand,
    help="Delete the segments of a plan, and no others.",
)
@click.option("--dry-run", is_flag=True, help="With --apply: run all checks, delete nothing.")
@click.option(
    "--trash",
    metavar="DIR",
    help="With --apply: move files to this folder instead of deleting them.",
)
@click.option(
    "--max-age",
    type=DURATION,
    default="24h",
    show_default=True,
    metavar="24h",
    help="With --apply: refuse a plan that is older.",
)
@click.option(
    "--limit",
    type=SIZE,
    default="1TiB",
    show_default=True,
    metavar="1TiB",
    help="With --apply: refuse a plan that deletes more bytes.",
)
@topic_option
@summary_option
@metrics_options
@session_options
@engine_options
@format_option
@makes_request(RetentionCommand)
def retention(request: RetentionCommand) -> None:
    """Show which segments of CATALOG retention can delete, as a broker would decide.

    A row per segment says whether it is deletable, and why. A row per partition says how much is
    deletable, how much has expired but is blocked, by which segment, and until when. This command
    deletes nothing: --plan writes a plan of the deletable segments, and a second command with
    --apply deletes exactly these.

    With tiered storage, a broker deletes local segments only after their upload: give --remote with
    a catalog of the remote tier, such as kip33 retention local/_catalog --remote remote/_catalog
    --policy conf/retention.toml. What is not uploaded is kept and named. Without --remote, all
    segments of these topics are kept. For the remote tier itself, give its catalog as CATALOG, and
    that of the log directories as --local.

    Sizes are those of the catalog. A log that is a symbolic link counts with the size of its
    target, although deleting the link does not free these bytes. --plan skips links.
    """
    if request.apply_file is None:
        from kip33.cli.retention_judge import judge_catalog
        from kip33.cli.retention_question import AskedRetention

        found = judge_catalog(AskedRetention.of(request))
    else:
        from kip33.cli.retention_apply import apply_file

        sys.exit(apply_file(request))
    if any(finding in found for finding in request.fail_on):
        sys.exit(ExitCode.FINDINGS)
