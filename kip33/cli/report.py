"""`kip33 report`: a page about an archive, and its facts as JSON."""

from dataclasses import asdict

import click

from kip33.archive.common_options import RetentionPolicies
from kip33.cli.catalog_places import catalog_argument, other_tier_argument
from kip33.cli.declared_options import options_of
from kip33.cli.output import Column, Output, RowList, Table, warn
from kip33.cli.runs import CommandRun, runs
from kip33.report.report_options import ReportFileRequest, ReportOptions


@click.command(
    epilog="Example: kip33 report /archive/indexes/_catalog --policy conf/retention.toml "
    "--output report.html"
)
@catalog_argument
@other_tier_argument
@click.option(
    "--output",
    required=True,
    metavar="FILE",
    help="Write the page to FILE (*.html), and its facts beside it (*.json). Replaces files only "
    "if they are a report.",
)
@options_of(ReportOptions)
@options_of(RetentionPolicies)
@runs(work="here", summary=False)
def report(request: ReportFileRequest, run: CommandRun) -> Output:
    """Write a page about the archive of CATALOG, as one HTML file that needs no network.

    It has the findings, each with a command that shows more, what changed since the snapshot
    before, a timeline of each partition, what retention frees on which day, storage by age, and
    the name and SHA-256 of the snapshot. With many partitions it shows the worst and sums the
    others. FILE.json beside it has the same facts.

    Without a policy, retention is not judged. With tiered storage, give the catalogs of both
    tiers, in any order: the page also has what is wrong between them and, with a policy, what goes
    in each of them. --snapshot is one of CATALOG.
    """
    from kip33.api.report_file import run_report

    written = run_report(request, clock_ms=run.started_ms, warn=warn, on_progress=run.on_progress)
    columns = (
        Column("finding", lambda one: one.level.value, rank=0),
        Column("", lambda one: one.text, rank=0),
    )
    return Output(
        page=[
            *([Table(columns, written.findings, most=None)] if written.findings else []),
            f"report: {written.report}, facts: {written.facts}",
        ],
        rows=[RowList("details", map(asdict, written.findings), "finding")],
        summary=written.as_record(),
    )
