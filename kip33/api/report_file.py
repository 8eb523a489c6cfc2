"""Write the report about an archive, from a program or a command: both call `run_report`."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Unpack

from kip33.api.catalog_options import policies_in
from kip33.api.opened_catalog import current_ms, time_or_now
from kip33.archive.output_files import require_report_places
from kip33.catalog.catalog import Catalog, Choice, Warn, catalog_at, choose, warn_caller
from kip33.catalog.tiers import CatalogSnapshot, Tiers
from kip33.errors import without_secrets
from kip33.formats.printed_fields import json_text
from kip33.options import Path, picked, takes
from kip33.report.facts import FindingLevel, Report, ReportFinding
from kip33.report.make_report import MOST_FORECAST_DAYS, ReportRequest, make_report, report_policies
from kip33.report.page import page_of
from kip33.report.report_options import ReportFileOptions, ReportFileRequest
from kip33.rules.policies import Policies, duration_ms, limit_ms
from kip33.rules.search import NEWEST_KAFKA
from kip33.stores.filesystem_option import places_on, require_writable_store
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
        return {
            "snapshot": self.snapshot,
            "report": self.report,
            "facts": self.facts,
            "findings": {level.value: counts[level] for level in FindingLevel},
        }


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
        request["policies"],
        request["policy_words"] if request["policies"] else (),
        clock_ms if request["now"] is None else time_or_now(request["now"]),
        clock_ms,
        days,
        CatalogSnapshot(others[0][0], others[0][1].snapshot) if others else None,
        of_remote,
        version,
    )
    require_report_places(page, facts)
    on_progress(Progress(Phase.REPORTING))
    made = make_report(catalog, choice, asked)
    for line in made.warnings[len(choice.warnings) + len(of_remote) :]:
        warn(line)
    _publish(made, page, facts)
    return WrittenReport(made.evidence.snapshot, page.uri, facts.uri, tuple(made.findings))


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
    '2 truncated logs (304.9 KiB): a part of the log is not valid, and a broker would cut it there.'

    - `other`: with tiered storage, the catalog of the other tier: the page has what is wrong
      between them, what brokers have uploaded, and what goes in each
    - `options`: see `ReportFileOptions`

    Returns the URIs of the two files, the name of the snapshot, and the findings, each with
    `level` (`problem`, `warning` or `note`), `count`, `text`, `examples` and `command`. Raises
    ValueError for a wrong argument, LocationError for a place that cannot be used, PolicyError for
    a wrong policy, CatalogError if there is no snapshot or it is damaged, PublishError if a file
    cannot be written.
    """
    named = [catalog, output, *([] if other is None else [other])]
    filesystem = options["filesystem"]
    places = places_on(named, options["storage_options"], filesystem)
    require_writable_store(places[1:2])
    texts = [os.fspath(one) for one in named]
    catalog_text, output_text, *other_text = (
        texts if filesystem is None else [one.uri for one in places]
    )
    given = (options["policy"], options["kafka_configs"], options["retention_ms"])
    policies, words = _given_policies(*given)
    request = picked(
        ReportFileRequest,
        options,
        catalog_dir=catalog_text,
        other=other_text[0] if other_text else None,
        output=output_text,
        policies=policies,
        policy_words=words,
    )
    on_progress = options["on_progress"]
    return run_report(request, clock_ms=current_ms(), warn=warn_caller, on_progress=on_progress)


def _given_policies(
    policy: Path | Policies | Mapping[str, Mapping[str, Any]] | None,
    kafka_configs: Path | None,
    retention_ms: int | str | None,
) -> tuple[Policies | None, tuple[str, ...]]:
    """Return a program's policies, and the words of a command that give them."""
    if isinstance(policy, Policies | Mapping):
        if kafka_configs is not None or retention_ms is not None:
            raise ValueError("policy has all settings: leave out kafka_configs and retention_ms")
        return policies_in(policy), ()
    limit = None if retention_ms is None else limit_ms(retention_ms)
    return report_policies(policy, kafka_configs, limit)


def _publish(made: Report, page: Location, facts: Location) -> None:
    """Publish the facts, then the page; PublishError if that fails."""
    text = page_of(made)
    record = (json_text(made.as_record(), indent=1) + "\n").encode()
    publish_or_raise(facts, record, "there is no new report")
    publish_or_raise(page, text.encode(), "only its JSON file is there")
