"""Write the report about an archive, from a program or a command.

`ReportOptions` are the options of `kip33 report` and the arguments of `write_report`. Both call
`run_report`.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kip33.api.catalog_options import policies_in
from kip33.api.opened_catalog import current_ms, text_of, time_or_now
from kip33.archive.output_files import require_report_places
from kip33.catalog.catalog import Warn, catalog_at, choose, warn_caller
from kip33.catalog.tiers import CatalogSnapshot
from kip33.errors import without_secrets
from kip33.formats.times import Time
from kip33.options import Path
from kip33.report.facts import FindingLevel, Report, ReportFinding
from kip33.report.make_report import MOST_FORECAST_DAYS, ReportRequest, make_report, report_policies
from kip33.report.page import page_of
from kip33.rules.policies import Policies, duration_ms, limit_ms
from kip33.stores.filesystem_option import (
    Filesystem,
    StorageOptions,
    places_on,
    require_writable_store,
)
from kip33.stores.locations import Location
from kip33.stores.own_files import publish_or_raise
from kip33.stores.progress import OnProgress, Phase, Progress, tell_nobody

PAGE_SUFFIX: Final = ".html"
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What a report is about, and its file."""

    catalog_dir: str  # a path or URI, like the next
    output: str
    now: int | None = None  # ms; None: the clock
    snapshot: str | None = None
    remote: str | None = None  # the path or URI of the catalog of the remote tier
    policies: Policies | None = None  # None: retention is not judged
    policy_words: tuple[str, ...] = ()  # the options of a command that give them
    forecast_ms: int = 30 * _DAY_MS

    def require_valid(self) -> None:
        """Raise ValueError for an output or a forecast that a report cannot have."""
        if not self.output.endswith(PAGE_SUFFIX):
            raise ValueError(
                f"--output {without_secrets(self.output)!r}: expected a name that ends in "
                f"{PAGE_SUFFIX}"
            )
        if self.forecast_days > MOST_FORECAST_DAYS:
            raise ValueError(
                f"--forecast: {self.forecast_days:,} days found, expected at most "
                f"{MOST_FORECAST_DAYS:,}"
            )

    @property
    def forecast_days(self) -> int:
        """Return the days of the forecast; one that has begun counts."""
        return -(-self.forecast_ms // _DAY_MS)


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
    options: ReportOptions,
    *,
    clock_ms: int,
    warn: Warn,
    on_progress: OnProgress = tell_nobody,
) -> WrittenReport:
    """Write a report and its facts; `warn` gets a line for each newer snapshot that is ignored.

    `clock_ms` is the time now. Errors are those of `write_report`.
    """
    options.require_valid()
    page = Location.of(options.output)
    facts = Location.of(options.output.removesuffix(PAGE_SUFFIX) + ".json")
    opened = catalog_at(Location.of(options.catalog_dir), "CATALOG", warn)
    remote: CatalogSnapshot | None = None
    of_remote: tuple[str, ...] = ()
    if options.remote is not None:
        tier = catalog_at(Location.of(options.remote), "--remote", warn)
        chosen, of_remote = choose(tier, None, warn)
        remote = CatalogSnapshot(tier, chosen)
    request = ReportRequest(
        options.policies,
        options.policy_words if options.policies else (),
        clock_ms if options.now is None else options.now,
        clock_ms,
        options.forecast_days,
        remote,
        of_remote,
    )
    require_report_places(page, facts)
    on_progress(Progress(Phase.REPORTING))
    choice = choose(opened, options.snapshot, warn)
    made = make_report(opened, choice, request)
    for line in made.warnings[len(choice.warnings) + len(of_remote) :]:
        warn(line)
    _publish(made, page, facts)
    return WrittenReport(made.evidence.snapshot, page.uri, facts.uri, tuple(made.findings))


def write_report(  # parameters: a notebook user sees each option as a keyword
    catalog: Path,
    output: Path,
    *,
    now: Time | None = None,
    snapshot: str | None = None,
    remote: Path | None = None,
    policy: Path | Policies | Mapping[str, Mapping[str, Any]] | None = None,
    kafka_configs: Path | None = None,
    retention_ms: int | str | None = None,
    forecast: int | str = "30d",
    on_progress: OnProgress = tell_nobody,
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
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

    - `now`: evaluate retention at this time (None: the current time)
    - `snapshot`: a snapshot by name, number or id (None: the newest)
    - `remote`: the catalog of the remote tier: it says what brokers have uploaded, and the page
      also has what they delete there
    - `policy`: a TOML file of policies, or `Policies` or their tables; `kafka_configs`: a file with
      the topics' settings, as Kafka's tools print them; `retention_ms`: one for all topics, in ms
      or such as "7d". Without one of them retention is not judged. The commands in the report name
      files only
    - `forecast`: how far ahead to show what can be deleted, in ms or such as "30d"
    - `on_progress`: called when the report is begun
    - `storage_options`, `filesystem`: those of `kip33.build_index`

    Returns the URIs of the two files, the name of the snapshot, and the findings, each with
    `level` (`problem`, `warning` or `note`), `count`, `text`, `examples` and `command`. Raises
    ValueError for a wrong argument, LocationError for a place that cannot be used, PolicyError for
    a wrong policy, CatalogError if there is no snapshot or it is damaged, PublishError if a file
    cannot be written.
    """
    named = [catalog, output, *([] if remote is None else [remote])]
    places = places_on(named, storage_options, filesystem)
    require_writable_store(places[1:2])
    texts = [os.fspath(one) for one in named]
    texts = texts if filesystem is None else [one.uri for one in places]
    catalog_text, output_text, *remote_text = texts
    policies, words = _given_policies(policy, kafka_configs, retention_ms)
    options = ReportOptions(
        catalog_dir=catalog_text,
        output=output_text,
        now=None if now is None else time_or_now(now),
        snapshot=snapshot,
        remote=remote_text[0] if remote_text else None,
        policies=policies,
        policy_words=words,
        forecast_ms=duration_ms(forecast),
    )
    return run_report(options, clock_ms=current_ms(), warn=warn_caller, on_progress=on_progress)


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
    return report_policies(text_of(policy), text_of(kafka_configs), limit)


def _publish(made: Report, page: Location, facts: Location) -> None:
    """Publish the facts, then the page; PublishError if that fails."""
    text = page_of(made)
    record = (json.dumps(made.as_record(), indent=1) + "\n").encode()
    publish_or_raise(facts, record, "there is no new report")
    publish_or_raise(page, text.encode(), "only its JSON file is there")
