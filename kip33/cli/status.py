"""`kip33 status`: what is wrong in an archive, and what is new since the snapshot before."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import click

from kip33.archive.common_options import RetentionPolicies
from kip33.cli.catalog_places import catalog_argument, other_tier_argument
from kip33.cli.declared_options import options_of
from kip33.cli.output import Output, OutputFinding, RowList, counts_text, iso_time, warn
from kip33.cli.runs import CommandRun, Findings, runs
from kip33.report.facts import FindingLevel
from kip33.report.report_options import StatusOptions, StatusRequest

if TYPE_CHECKING:
    from kip33.api.report_file import ArchiveStatus


_NEW: Final = "new"  # a finding of --fail-on beside the levels


@click.command(epilog="Example: kip33 status /archive/indexes/_catalog --fail-on problem,new")
@catalog_argument
@other_tier_argument
@options_of(StatusOptions)
@options_of(RetentionPolicies)
@runs(
    work="here",
    findings=Findings(
        [*(level.value for level in FindingLevel), _NEW],
        "Exit 3 if there is any finding of this level. new: one that the snapshot before has not.",
    ),
)
def status(request: StatusRequest, run: CommandRun) -> Output:
    """Show what is wrong in the archive of CATALOG, the worst first, and what is new.

    \b
    problem   data is missing or damaged
    warning   something prevents retention, or an answer is less certain
    note      nothing is wrong

    New is what the snapshot before did not have: damaged logs, index files that could not be
    written, missing offsets. Each finding has the command that looks closer. These are the findings
    of kip33 report. Without a policy, retention is not judged. No log is read.
    """
    from kip33.api.report_file import run_status

    found = run_status(request, clock_ms=run.started_ms, warn=warn, on_progress=run.on_progress)
    return Output(
        page=_page(found),
        rows=[RowList("details", map(asdict, found.findings), "finding")],
        summary=found.as_record(),
        findings=_findings(found),
    )


def _findings(found: "ArchiveStatus") -> dict[str, OutputFinding]:
    of_name = {
        level.value: [one for one in found.findings if one.level is level] for level in FindingLevel
    }
    of_name[_NEW] = [one for one in found.findings if one.new]
    return {
        name: OutputFinding(
            *(len(some), "finding", partial(map, attrgetter("text"), some)),
            is_wrong=name != FindingLevel.NOTE,
        )
        for name, some in of_name.items()
    }


def _page(found: "ArchiveStatus") -> Iterator[str]:
    """Yield sentences: a finding is too long for a cell."""
    yield f"{found.snapshot}, built {iso_time(found.created_ms)}"
    if found.before:
        changes = counts_text(found.changes) or "no segment changed"
        yield f"since {found.before}: {changes}"
    for one in found.findings:
        new = f", {one.new:,} new" if one.new else ""
        command = [f"$ {one.command}"] if one.command else []
        yield "\n- ".join([f"{one.level}{new}: {one.text}", *one.examples, *command])
    if not found.findings:
        yield "nothing is wrong"
