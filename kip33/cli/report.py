"""`kip33 report`: a page about an archive, and its facts as JSON."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from kip33.cli.options import (
    PolicyOptions,
    format_option,
    makes_request,
    policy_options,
    store_options,
)
from kip33.cli.output import Column, Output, RowList, Table, show, warn
from kip33.cli.progress import progress_line
from kip33.cli.times import DURATION, MOMENT, current_ms

if TYPE_CHECKING:
    from kip33.api.report_file import ReportOptions


@dataclass(frozen=True, kw_only=True)
class ReportCommand:
    """The options of `kip33 report`; None if not given."""

    catalog_dir: str
    output: str
    now: int | None  # ms
    snapshot: str | None
    remote: str | None  # the catalog of the remote tier
    policy: PolicyOptions
    forecast: int  # ms
    output_format: str


@click.command(
    epilog="Example: kip33 report /archive/indexes/_catalog --policy conf/retention.toml "
    "--output report.html"
)
@click.argument("catalog_dir", metavar="CATALOG")
@click.option(
    "--output",
    required=True,
    metavar="FILE",
    help="Write the page to FILE (*.html), and its facts beside it (*.json). Replaces files only "
    "if they are a report.",
)
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
    help="The catalog of the remote tier: the page also has what is wrong between the tiers and, "
    "with a policy, what goes in each of them.",
)
@policy_options
@click.option(
    "--forecast",
    type=DURATION,
    default="30d",
    show_default=True,
    metavar="30d",
    help="Show what can be deleted on each of the next days.",
)
@store_options
@format_option
@makes_request(ReportCommand)
def report(command: ReportCommand) -> None:
    """Write a page about the archive of CATALOG, as one HTML file that needs no network.

    It has the findings, each with a command that shows more, what changed since the snapshot
    before, a timeline of each partition, what retention frees on which day, storage by age, and
    the name and SHA-256 of the snapshot. With many partitions it shows the worst and sums the
    others. FILE.json beside it has the same facts.

    Without a policy, retention is not judged.
    """
    from kip33.api.report_file import run_report

    options = _options(command)
    with progress_line("report") as on_progress:
        written = run_report(options, clock_ms=current_ms(), warn=warn, on_progress=on_progress)
    columns = (
        Column("finding", lambda one: one.level.value, rank=0),
        Column("", lambda one: one.text, rank=0),
    )
    answer = Output(
        page=[
            *([Table(columns, written.findings, most=None)] if written.findings else []),
            f"report: {written.report}, facts: {written.facts}",
        ],
        rows=[RowList("details", map(asdict, written.findings), "finding")],
        summary=written.as_record(),
    )
    show(answer, command.output_format)


def _options(command: ReportCommand) -> "ReportOptions":
    """Return what is written, after reading the policies; UsageError for wrong options."""
    from kip33.api.report_file import ReportOptions
    from kip33.report.make_report import report_policies

    try:
        policies, words = report_policies(*command.policy)
        options = ReportOptions(
            catalog_dir=command.catalog_dir,
            output=command.output,
            now=command.now,
            snapshot=command.snapshot,
            remote=command.remote,
            policies=policies,
            policy_words=words,
            forecast_ms=command.forecast,
        )
        options.require_valid()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return options
