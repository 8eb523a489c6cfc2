"""Write the report about an archive, from a program or a command: both call `run_report`."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Unpack

from kip33.api.catalog_options import policies_in
from kip33.archive.moments import current_ms, time_or_now
from kip33.archive.output_files import require_report_places
from kip33.catalog.catalog import Catalog, Choice, Warn, catalog_at, choose, warn_caller
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.errors import without_secrets
from kip33.formats.printed_fields import json_text
from kip33.options import Path, picked, takes
from kip33.report.facts import FindingLevel, Report, ReportFinding
from kip33.report.make_report import MOST_FORECAST_DAYS, ReportRequest, make_report, report_policies
from kip33.report.page import page_of
from kip33.report.report_options import (
    ReportFileOptions,
    ReportFileRequest,
    StatusCallOptions,
    StatusRequest,
)
from kip33.rules.policies import Policies, duration_ms, limit_ms
from kip33.rules.search import NEWEST_KAFKA
from kip33.stores.filesystem_option import require_writable_store, texts_on
from kip33.stores.locations import Location
from kip33.stores.own_files import publish_or_raise
from kip33.stores.progress import OnProgress, Phase, Progress, tell_nobody

PAGE_SUFFIX: Final = ".html"
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True)
class WrittenReport:
    """The files of a report, as URIs, and its findings, the worst first."""

    snapshot: str
    report: str
    facts: str
    findings: tuple[ReportFinding, ...]

    def as_record(self) -> dict[str, Any]:
        """Return the fields, with the number of findings of each level."""
        counts = Counter(one.level for one in self.findings)
        return {**vars(self), "findings": {level.value: counts[level] for level in FindingLevel}}


@dataclass(frozen=True)
class ArchiveStatus:
    """What is wrong in an archive, the worst first, and what changed since the snapshot before."""

    catalog: str
    snapshot: str
    created_ms: int
    before: str | None  # the snapshot before; None: this is the first, or that one is damaged
    findings: tuple[ReportFinding, ...]
    changes: Mapping[str, int]  # segments by change

    def as_record(self) -> dict[str, Any]:
        """Return the fields but the findings, and how many of these are of each level."""
        counts = Counter(one.level for one in self.findings)
        return {
            "catalog": self.catalog,
            "snapshot": self.snapshot,
            "created_ms": self.created_ms,
            "before": self.before,
            "changes": dict(self.changes),
            "findings": {level.value: counts[level] for level in FindingLevel},
            "new_findings": sum(1 for one in self.findings if one.new),
        }


def run_status(
    request: StatusRequest, *, clock_ms: int, warn: Warn, on_progress: OnProgress = tell_nobody
) -> ArchiveStatus:
    """Return the status of an archive; parameters and errors are those of `run_report`."""
    made = _made(request, 0, clock_ms=clock_ms, warn=warn, on_progress=on_progress)
    changes, evidence = made.changes, made.evidence
    return ArchiveStatus(
        *(made.catalog, evidence.snapshot, evidence.created_ms),
        before=changes.before if changes else None,
        findings=made.findings,
        changes=changes.segments if changes else {},
    )


def run_report(
    request: ReportFileRequest,
    *,
    clock_ms: int,
    warn: Warn,
    on_progress: OnProgress = tell_nobody,
) -> WrittenReport:
    """Write a report and its facts; `warn` gets a line for each newer snapshot that is ignored.

    `clock_ms` is the time now. Errors are those of `write_report`.
    """
    output, days = request["output"], _days_of(request)
    page, facts = Location.of(output), Location.of(output.removesuffix(PAGE_SUFFIX) + ".json")
    require_report_places(page, facts)
    made = _made(request, days, clock_ms=clock_ms, warn=warn, on_progress=on_progress)
    text = page_of(made).encode()
    record = (json_text(made.as_record(), indent=1) + "\n").encode()
    publish_or_raise(facts, record, "there is no new report")
    publish_or_raise(page, text, "only its JSON file is there")
    return WrittenReport(made.evidence.snapshot, page.uri, facts.uri, tuple(made.findings))


def _made(
    request: StatusRequest, days: int, *, clock_ms: int, warn: Warn, on_progress: OnProgress
) -> Report:
    """Return the facts of an archive, with a forecast of some days."""
    policies, words = _policies_of(request)
    chosen = [_chosen(request["catalog_dir"], request["snapshot"], "CATALOG", warn)]
    if request["other"] is not None:
        chosen.append(_chosen(request["other"], None, "OTHER", warn))
        one, second = (CatalogSnapshot(catalog, choice.snapshot) for catalog, choice in chosen)
        if Tiers.of(one, second).local != one:
            chosen.reverse()
    (catalog, choice), *others = chosen
    version: Any = request["broker_version"] or NEWEST_KAFKA
    of_remote = others[0][1].warnings if others else ()
    asked = ReportRequest(
        policies,
        words if policies else (),
        clock_ms if request["now"] is None else time_or_now(request["now"]),
        clock_ms,
        days,
        CatalogSnapshot(others[0][0], others[0][1].snapshot) if others else None,
        of_remote,
        version,
    )
    on_progress(Progress(Phase.REPORTING))
    made = make_report(catalog, choice, asked)
    for line in made.warnings[len(choice.warnings) + len(of_remote) :]:
        warn(line)
    return made


def _days_of(request: ReportFileRequest) -> int:
    """Return the days of the forecast; one that has begun counts.

    ValueError for an output or a forecast that a report cannot have.
    """
    if not request["output"].endswith(PAGE_SUFFIX):
        raise ValueError(
            f"--output {without_secrets(request['output'])!r}: expected a name that ends in "
            f"{PAGE_SUFFIX}"
        )
    days = -(-duration_ms(request["forecast"]) // _DAY_MS)
    if days > MOST_FORECAST_DAYS:
        raise ValueError(
            f"--forecast: {days:,} days found, expected at most {MOST_FORECAST_DAYS:,}"
        )
    return days


def _chosen(text: str, snapshot: str | None, what: str, warn: Warn) -> tuple[Catalog, Choice]:
    catalog = catalog_at(Location.of(text), what, warn)
    return catalog, choose(catalog, snapshot, warn)


@takes(ReportFileOptions)
def write_report(
    catalog: Path,
    output: Path,
    *,
    other: Path | None = None,
    **options: Unpack[ReportFileOptions],
) -> WrittenReport:
    """Write a page about the archive of `catalog`, as one HTML file, and its facts as JSON beside.

    Places are paths or URIs; `output` ends in `.html`. Files are replaced only if they are a
    report.

    >>> from kip33 import build_index
    >>> summary = build_index("archive", "indexes")
    >>> written = write_report("indexes/_catalog", "report.html", retention_ms="7d")
    >>> written.report.endswith("/report.html"), written.facts.endswith("/report.json")
    (True, True)
    >>> written.findings[0].text
    '2 truncated logs (256.0 KiB): a part of the log is not valid, and a broker would cut it there.'

    - `other`: with tiered storage, the catalog of the other tier: the page has what is wrong
      between them, what brokers have uploaded, and what goes in each
    - `options`: see `ReportFileOptions`

    Returns the URIs of the two files, the name of the snapshot, and the findings, each with
    `level` (`problem`, `warning` or `note`), `count`, `text`, `examples` and `command`. Raises
    ValueError for a wrong argument, LocationError for a place that cannot be used, PolicyError for
    a wrong policy, CatalogError if there is no snapshot or it is damaged, PublishError if a file
    cannot be written.
    """
    (catalog_dir, other_dir, file), places = texts_on([catalog, other, output], options)
    given = {"catalog_dir": catalog_dir, "other": other_dir, "output": file}
    request = picked(ReportFileRequest, options, **given)
    require_writable_store(places[-1:])
    on_progress = options["on_progress"]
    return run_report(request, clock_ms=current_ms(), warn=warn_caller, on_progress=on_progress)


@takes(StatusCallOptions)
def archive_status(
    catalog: Path, *, other: Path | None = None, **options: Unpack[StatusCallOptions]
) -> ArchiveStatus:
    """Return what is wrong in the archive of `catalog`, the worst first, and what is new.

    New is what the snapshot before did not have. These are the findings of a report.

    >>> from kip33 import build_index
    >>> summary = build_index("archive", "indexes")
    >>> status = archive_status("indexes/_catalog", retention_ms="7d")
    >>> [(one.level.value, one.count) for one in status.findings][0]
    ('problem', 2)

    - `other`: with tiered storage, the catalog of the other tier
    - `options`: see `StatusCallOptions`

    Raises ValueError for a wrong argument, LocationError for a place that cannot be used,
    PolicyError for a wrong policy, CatalogError for a catalog without a snapshot or with a damaged
    one.
    """
    (catalog_dir, other_dir), _ = texts_on([catalog, other], options)
    request = picked(StatusRequest, options, catalog_dir=catalog_dir, other=other_dir)
    on_progress = options["on_progress"]
    return run_status(request, clock_ms=current_ms(), warn=warn_caller, on_progress=on_progress)


def _policies_of(request: StatusRequest) -> tuple[Policies | None, tuple[str, ...]]:
    """Return the policies, and the words of a command that give them; None: nothing is judged."""
    policy, kafka_configs = request["policy"], request["kafka_configs"]
    retention_ms = request["retention_ms"]
    if isinstance(policy, Policies | Mapping):
        if kafka_configs is not None or retention_ms is not None:
            raise ValueError("policy has all settings: leave out kafka_configs and retention_ms")
        return policies_in(policy), ()
    limit = None if retention_ms is None else limit_ms(retention_ms)
    return report_policies(policy, kafka_configs, limit)
