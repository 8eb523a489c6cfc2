"""`kip33 report`: a page about an archive, and its facts as JSON."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from kip33.cli.engine_option import leave_pandas_out
from kip33.cli.options import (
    PolicyOptions,
    format_option,
    makes_request,
    policy_options,
    store_options,
)
from kip33.cli.output import Column, Output, Table, choose_and_warn, show
from kip33.cli.progress import progress_line
from kip33.cli.times import DURATION, MOMENT, current_ms
from kip33.stores.progress import Phase, Progress

if TYPE_CHECKING:
    from kip33.report.facts import Report
    from kip33.report.make_report import ReportRequest
    from kip33.stores.locations import Location

PAGE_SUFFIX: Final = ".html"
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, kw_only=True)
class ReportCommand:
    """The options of `kip33 report`; None if not given."""

    catalog_dir: str
    output: str
    now: int | None  # ms
    snapshot: str | None
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
@format_option("table", "json")
@makes_request(ReportCommand)
def report(command: ReportCommand) -> None:
    """Write a page about the archive of CATALOG, as one HTML file that needs no network.

    It has the findings, each with a command that shows more, what changed since the snapshot
    before, a timeline of each partition, what retention frees on which day, storage by age, and
    the name and SHA-256 of the snapshot. With many partitions it shows the worst and sums the
    others. FILE.json beside it has the same facts.

    Without a policy, retention is not judged.
    """
    from kip33.archive.output_files import require_report_places
    from kip33.catalog.catalog import Catalog
    from kip33.report.make_report import make_report
    from kip33.stores.directory_checks import require_directory

    page, facts = _places(command.output)
    asked = _request(command)
    require_report_places(page, facts)
    leave_pandas_out()
    opened = Catalog.at(command.catalog_dir)
    require_directory(opened.location, "CATALOG")
    with progress_line("report") as on_progress:
        on_progress(Progress(Phase.REPORTING))
        made = make_report(opened, choose_and_warn(opened, command.snapshot), asked)
        _publish(made, page, facts)
    files = {"report": page.uri, "facts": facts.uri}
    columns = (
        Column("finding", lambda one: one.level.value, rank=0),
        Column("", lambda one: one.text, rank=0),
    )
    answer = Output(
        page=[
            *([Table(columns, made.findings, most=None)] if made.findings else []),
            f"report: {page.uri}, facts: {facts.uri}",
        ],
        summary={"snapshot": made.evidence.snapshot, **files, "findings": _counts(made)},
    )
    show(answer, command.output_format)


def _places(output: str) -> "tuple[Location, Location]":
    """Return the places of the page and of its facts."""
    from kip33.stores.locations import Location, without_secrets

    if not output.endswith(PAGE_SUFFIX):
        raise click.UsageError(
            f"--output {without_secrets(output)!r}: expected a name that ends in {PAGE_SUFFIX}"
        )
    return Location.of(output), Location.of(output.removesuffix(PAGE_SUFFIX) + ".json")


def _request(command: ReportCommand) -> "ReportRequest":
    """Return the question, after reading the policies; UsageError for two kinds of them."""
    from kip33.report.make_report import ReportRequest

    policy, kafka_configs, retention_ms = command.policy
    if retention_ms is not None and (policy or kafka_configs):
        raise click.UsageError(
            "--retention-ms cannot be combined with --policy or --kafka-configs: a report has "
            "one answer"
        )
    options = zip(("--policy", "--kafka-configs", "--retention-ms"), command.policy, strict=True)
    words = [word for name, value in options if value is not None for word in (name, str(value))]
    clock_ms = current_ms()
    return ReportRequest(
        command.policy.load(),
        tuple(words),
        command.catalog_dir,
        clock_ms if command.now is None else command.now,
        clock_ms,
        _days(command.forecast),
    )


def _days(forecast_ms: int) -> int:
    from kip33.report.make_report import MOST_FORECAST_DAYS

    days = -(-forecast_ms // _DAY_MS)
    if days > MOST_FORECAST_DAYS:
        raise click.UsageError(
            f"--forecast: {days:,} days found, expected at most {MOST_FORECAST_DAYS:,}"
        )
    return days


def _publish(made: "Report", page: "Location", facts: "Location") -> None:
    """Publish the facts, then the page; PublishError if that fails."""
    from kip33.report.page import page_of
    from kip33.stores.own_files import publish_or_raise

    text = page_of(made)
    record = (json.dumps(made.as_record(), indent=1) + "\n").encode()
    publish_or_raise(facts, record, "there is no new report")
    publish_or_raise(page, text.encode(), "only its JSON file is there")


def _counts(made: "Report") -> dict[str, int]:
    """Return the number of findings by level."""
    from kip33.report.facts import FindingLevel

    return {level.value: sum(one.level is level for one in made.findings) for level in FindingLevel}
