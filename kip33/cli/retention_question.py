"""The options of `kip33 retention`, the question that they ask of a catalog, and an answer's parts.

The question is made before an engine is started; each engine has a `RetentionAnswer`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol, Self

import click

from kip33.archive.log_start_offsets import LogStartOffsets, log_start_offsets
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.cli.engine_option import EngineOptions
from kip33.cli.metrics_file import MetricsRequest
from kip33.cli.output import choose_and_warn, warn
from kip33.cli.times import current_ms
from kip33.errors import ExitCode, Kip33Error
from kip33.retention.evaluation import (
    EvaluatedCatalog,
    EvaluationRequest,
    evaluate_catalog,
    policies_for,
    tiered_warning,
    unlisted_warning,
)
from kip33.retention.make_plan import basis_of
from kip33.retention.plan import Basis
from kip33.retention.policy_files import policies_of
from kip33.rules.policies import Policies, TopicGlobs
from kip33.rules.retention import RuleQuestion, WhatIf
from kip33.stores.directory_checks import require_directory
from kip33.stores.locations import Location

DAY_MS = 86_400_000
MOST_DAYS = 10_000  # of a forecast
RESULT_TABLES: Final = ("segments", "partitions", "freed")  # the folders of --output


@dataclass(frozen=True, kw_only=True)
class RetentionRequest:
    """The options of `kip33 retention`; None: not given."""

    now: int | None  # ms
    snapshot: str | None
    policy: str | None
    kafka_configs: str | None
    retention_ms: int | None
    ignore_future: int | None  # ms
    active_segment: str
    boundary: str
    log_start_offsets: str | None  # a file
    at: tuple[int, ...] | None  # ms
    forecast: int | None  # ms
    show_broker_view: bool
    output: str | None
    emit: str | None
    fail_on: tuple[str, ...]
    plan_file: str | None
    trust_last_modified: bool
    dry_run: bool  # this and the next three are for --apply
    trash: str | None
    max_age: int  # ms
    limit: int  # bytes
    topics: tuple[str, ...]
    summary_file: Location | None
    output_format: str
    engine: EngineOptions
    metrics: MetricsRequest


class RetentionQuestion(NamedTuple):
    """The question that the command line asks of a catalog."""

    catalog: Catalog
    snapshot: Snapshot
    policies: Policies
    topics: set[str]  # all of the snapshot, also those that --topics leaves out
    log_start_offsets: LogStartOffsets
    now_ms: int
    clock_ms: int
    what_if: WhatIf | None
    moments_ms: tuple[int, ...]  # the times for which `freed` has rows
    options: RetentionRequest
    warnings: tuple[str, ...]  # about newer snapshots that are ignored, and topics

    @classmethod
    def of(cls, catalog_dir: str, options: RetentionRequest) -> Self:
        """Return the question after reading all files; UsageError for conflicting options."""
        clock_ms = current_ms()
        now_ms = clock_ms if options.now is None else options.now
        policies, what_if = _policies(options)
        if options.emit and (what_if is not None or now_ms > clock_ms):
            raise click.UsageError(
                "--emit prints what the policy deletes now: remove --ignore-future, a "
                "--retention-ms beside a policy, or a --now in the future",
                click.get_current_context(),
            )
        catalog = Catalog.at(catalog_dir)
        require_directory(catalog.location, "CATALOG")
        snapshot, warnings = choose_and_warn(catalog, options.snapshot)
        log_dirs, topics = _log_dirs_and_topics(catalog, snapshot)
        judged = set(filter(TopicGlobs.of(options.topics).matches, topics))
        about_topics = (
            tiered_warning(policies_for(snapshot, policies), judged),
            unlisted_warning(policies, judged) if options.kafka_configs else None,
        )
        for line in filter(None, about_topics):
            warn(line)
            warnings = (*warnings, line)
        file = options.log_start_offsets
        return cls(
            catalog,
            snapshot,
            policies,
            topics,
            log_start_offsets(Location.of(snapshot.source), log_dirs, file),
            now_ms,
            clock_ms,
            what_if,
            _moments(options, now_ms),
            options,
            warnings,
        )

    def evaluate(self, *, with_files: bool) -> EvaluatedCatalog:
        """Return the snapshot evaluated in this process; a plan needs `with_files`."""
        return evaluate_catalog(self.catalog, self.snapshot, self.evaluation, with_files=with_files)

    def without_index_files(self) -> Self:
        """Return the question without the broker's view, which reads index files."""
        return self._replace(options=replace(self.options, show_broker_view=False))

    @property
    def evaluation(self) -> EvaluationRequest:
        """Return the settings for the evaluation of the rows."""
        options = self.options
        return EvaluationRequest(
            self.policies,
            RuleQuestion(self.now_ms, options.active_segment, options.boundary),
            self.log_start_offsets,
            options.topics,
            self.what_if,
            options.show_broker_view,
        )

    @property
    def basis(self) -> Basis:
        """Return the settings by which a plan is made."""
        options = self.options
        return basis_of(
            self.catalog,
            self.snapshot,
            self.policies,
            now_ms=self.now_ms,
            clock_ms=self.clock_ms,
            active_segment=options.active_segment,
            boundary=options.boundary,
            trust_last_modified=options.trust_last_modified,
        )


def _policies(options: RetentionRequest) -> tuple[Policies, WhatIf | None]:
    """Return the policies, and the what-if of --retention-ms and --ignore-future."""
    retention_ms, ignore_future = options.retention_ms, options.ignore_future
    policies = policies_of(options.policy, options.kafka_configs, retention_ms)
    if policies is None:
        raise click.UsageError(
            "no retention policy: give --policy FILE, --kafka-configs FILE or --retention-ms 7d",
            click.get_current_context(),
        )
    if not (options.policy or options.kafka_configs):
        retention_ms = None  # it is the policy, not a what-if
    if retention_ms is None and ignore_future is None:
        return policies, None
    return policies, WhatIf(retention_ms, ignore_future)


def _moments(options: RetentionRequest, now_ms: int) -> tuple[int, ...]:
    at, forecast = options.at, options.forecast
    if at and forecast is not None:
        raise click.UsageError(
            "--at and --forecast cannot be combined: give one of them",
            click.get_current_context(),
        )
    if forecast is None:
        return tuple(at or ())
    days = -(-forecast // DAY_MS)
    if days > MOST_DAYS:
        raise click.UsageError(
            f"--forecast: {days:,} days found, expected at most {MOST_DAYS:,}",
            click.get_current_context(),
        )
    return tuple(now_ms + day * DAY_MS for day in range(days + 1))


def _log_dirs_and_topics(catalog: Catalog, snapshot: Snapshot) -> tuple[set[Any], set[Any]]:
    """Return all log directories, to read checkpoints there, and all topics, for Spark."""
    log_dirs: set[Any] = set()
    topics: set[Any] = set()
    for piece in catalog.read_pieces(snapshot, ["log_dir", "topic"]):
        log_dirs.update(piece["log_dir"].unique().to_pylist())
        topics.update(piece["topic"].unique().to_pylist())
    return log_dirs - {None}, topics - {None}


class RetentionAnswer(Protocol):
    """A judged catalog. Its rows have the column names of the results in `kip33.spark`."""

    @property
    def totals(self) -> Mapping[str, Any]:
        """Return the sums over all partitions."""

    @property
    def workers(self) -> int:
        """Return the number of processes or cores that were used."""

    @property
    def tells_freed(self) -> bool:
        """Return whether `freed` was asked for."""

    def worst(self, most: int) -> Sequence[Mapping[str, Any]]:
        """Return partitions; those with the most blocked bytes are first."""

    def freed(self) -> Sequence[Mapping[str, Any]]:
        """Return what becomes deletable at which time."""

    def broker_differences(self, most: int) -> Sequence[Mapping[str, Any]]:
        """Return segments whose index differs from the log; those judged differently are first."""

    def segment_lines(self, kind: str | None) -> Iterator[str]:
        """Yield the segments as JSON, by partition, oldest first; `kind` is a field of each."""

    def partition_lines(self, kind: str | None) -> Iterator[str]:
        """Yield the partitions as JSON."""

    def freed_lines(self, kind: str | None) -> Iterator[str]:
        """Yield the rows of `freed` as JSON."""

    def csv_lines(self) -> Iterator[str]:
        """Yield a header and the segments as CSV."""

    def delete_records(
        self, *, trust_last_modified: bool, left_out: Collection[tuple[str, int]]
    ) -> dict[str, Any]:
        """Return the input of `kafka-delete-records.sh`."""


class _EnginesDifferError(Kip33Error):
    """Spark and the rule in this process have different totals."""

    exit_code = ExitCode.INCOMPLETE


def require_equal_totals(by_spark: Mapping[str, Any], by_rule: Mapping[str, Any]) -> None:
    """Raise an error that names one total, if the two are not equal."""
    for name, found in by_rule.items():
        if by_spark.get(name) != found:
            raise _EnginesDifferError(
                f"{name}: Spark found {by_spark.get(name)}, the rule in this process {found}; "
                "nothing was planned or printed: report this with the version of kip33"
            )
