"""The options of `kip33 retention`, the question that they ask of a catalog, and an answer's parts.

The question is made before an engine is started; each engine has a `RetentionAnswer`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Self

import click
import pyarrow as pa

from kip33.archive.log_start_offsets import log_start_offsets
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.partitions import names_in, topics_with_several_ids
from kip33.catalog.tiers import CatalogSnapshot
from kip33.cli.catalog_places import chosen_snapshot
from kip33.cli.engine_option import EngineOptions, is_typed
from kip33.cli.metrics_file import MetricsRequest
from kip33.cli.options import PolicyOptions
from kip33.cli.output import warn
from kip33.cli.times import current_ms
from kip33.errors import ExitCode, Kip33Error
from kip33.retention.evaluation import (
    OtherTier,
    RetentionRequest,
    boundary_for,
    policies_for,
    tier_warnings,
    unlisted_warning,
)
from kip33.retention.make_plan import basis_of
from kip33.retention.only_local import only_local
from kip33.retention.plan import Basis
from kip33.retention.uploaded import uploaded_segments
from kip33.rules.policies import Policies, TopicGlobs
from kip33.rules.retention import WhatIf
from kip33.stores.locations import Location

DAY_MS = 86_400_000
MOST_DAYS = 10_000  # of a forecast
RESULT_TABLES: Final = ("segments", "partitions", "freed")  # the folders of --output
_APPLYING: Final = ("apply_file", "dry_run", "trash", "max_age", "limit")
_METRICS: Final = {"metrics_file", "metrics_by", "metrics_limit"}
_SHARED: Final = ("output_format", "fail_on", "summary_file", "config", "result_line")


@dataclass(frozen=True, kw_only=True)
class RetentionCommand:
    """The options of `kip33 retention`; None: not given."""

    catalog_dir: str | None
    now: int | None  # ms
    snapshot: str | None
    remote: str | None  # the catalog of the remote tier
    local: str | None  # that of the local tier, where the remote one is judged
    policy: PolicyOptions
    ignore_future: int | None  # ms
    active_segment: str
    broker_version: tuple[int, int]  # of Kafka
    log_start_offsets: str | None  # a file
    at: tuple[int, ...] | None  # ms
    forecast: int | None  # ms
    show_broker_view: bool
    output: str | None
    emit: str | None
    fail_on: tuple[str, ...]
    plan_file: str | None
    trust_last_modified: bool
    apply_file: str | None  # this and the next four are for --apply
    dry_run: bool
    trash: str | None
    max_age: int  # ms
    limit: int  # bytes
    topics: tuple[str, ...]
    summary_file: Location | None
    output_format: str
    engine: EngineOptions
    metrics: MetricsRequest

    def check(self) -> None:
        """Raise UsageError for options that belong to the other way of the command."""
        params = click.get_current_context().command.params
        given = {str(one.name) for one in params if is_typed(str(one.name))}
        if self.apply_file is None:
            _require_none(given & set(_APPLYING), "requires --apply FILE")
            if self.catalog_dir is None:
                raise click.UsageError("CATALOG is missing: give the catalog folder of a build")
            if self.remote is not None and self.local is not None:
                raise click.UsageError(
                    "--remote and --local cannot be combined: CATALOG is one tier, give the other"
                )
            return
        _require_none(given & _METRICS, "cannot be combined with --apply: give --summary FILE")
        others = given - {*_APPLYING, *_SHARED}
        _require_none(others, "cannot be combined with --apply: the plan sets it")


def _require_none(names: set[str], why: str) -> None:
    """Raise UsageError with the option names, if there are any."""
    shown = sorted(
        param.opts[0] if param.param_type_name == "option" else "CATALOG"
        for param in click.get_current_context().command.params
        if param.name in names
    )
    if shown:
        raise click.UsageError(f"{', '.join(shown)} {why}")


class AskedRetention(NamedTuple):
    """What the command line asks of a snapshot, after reading all files."""

    catalog: Catalog
    snapshot: Snapshot
    request: RetentionRequest
    topics: frozenset[str]  # all of the snapshot, also those that --topic leaves out
    clock_ms: int
    options: RetentionCommand
    warnings: tuple[str, ...]  # about newer snapshots that are ignored, and topics

    @classmethod
    def of(cls, options: RetentionCommand) -> Self:
        """Return the question; UsageError for conflicting options."""
        clock_ms = current_ms()
        now_ms = clock_ms if options.now is None else options.now
        policies, what_if = _policies(options)
        if options.emit and (what_if is not None or now_ms > clock_ms):
            raise click.UsageError(
                "--emit prints what the policy deletes now: remove --ignore-future, a "
                "--retention-ms beside a policy, or a --now in the future"
            )
        chosen, warnings = chosen_snapshot(options.catalog_dir or "", options.snapshot)
        catalog, snapshot = chosen
        names = names_in(catalog, snapshot)
        log_dirs, topics = (_texts_in(names, name) for name in ("log_dir", "topic"))
        judged = set(filter(TopicGlobs.of(options.topics).matches, topics))
        other_tier, of_other = _other_tier(options, chosen, policies)
        about_topics = (
            *tier_warnings(snapshot, policies, judged, other_tier),
            unlisted_warning(policies, judged) if options.policy.kafka_configs else None,
        )
        warnings = (*warnings, *of_other)
        for line in filter(None, about_topics):
            warn(line)
            warnings = (*warnings, line)
        source, file = Location.of(snapshot.source), options.log_start_offsets
        request = RetentionRequest(
            policies_for(snapshot, policies),
            now_ms,
            log_start_offsets(source, log_dirs, file),
            topics=options.topics,
            active_segment=options.active_segment,
            boundary=boundary_for(snapshot, options.broker_version),
            what_if=what_if,
            broker_view=options.show_broker_view,
            trust_last_modified=options.trust_last_modified,
            other_tier=other_tier,
            moments_ms=_moments(options, now_ms),
            reborn=topics_with_several_ids(names),
        )
        return cls(catalog, snapshot, request, topics, clock_ms, options, warnings)

    def without_index_files(self) -> Self:
        """Return the question without the broker's view, which reads index files."""
        return self._replace(request=replace(self.request, broker_view=False))

    @property
    def basis(self) -> Basis:
        """Return the settings by which a plan is made."""
        return basis_of(self.catalog, self.snapshot, self.request, self.clock_ms)


def _other_tier(
    options: RetentionCommand, judged: CatalogSnapshot, policies: Policies
) -> tuple[OtherTier | None, tuple[str, ...]]:
    """Return what --remote or --local tells, and the warnings about that catalog's snapshots."""
    option = "--local" if options.remote is None else "--remote"
    place = options.local if options.remote is None else options.remote
    if place is None:
        return None, ()
    tier, warnings = chosen_snapshot(place, what=option)
    if option == "--remote":
        return uploaded_segments(judged, tier, policies), warnings
    beyond = only_local(judged, tier, options.log_start_offsets, options.broker_version)
    return beyond, warnings


def _policies(options: RetentionCommand) -> tuple[Policies, WhatIf | None]:
    """Return the policies, and the what-if of --retention-ms and --ignore-future."""
    retention_ms, ignore_future = options.policy.retention_ms, options.ignore_future
    policies = options.policy.load()
    if policies is None:
        raise click.UsageError(
            "no retention policy: give --policy FILE, --kafka-configs FILE or --retention-ms 7d"
        )
    if not (options.policy.policy or options.policy.kafka_configs):
        retention_ms = None  # it is the policy, not a what-if
    if retention_ms is None and ignore_future is None:
        return policies, None
    return policies, WhatIf(retention_ms, ignore_future)


def _moments(options: RetentionCommand, now_ms: int) -> tuple[int, ...]:
    at, forecast = options.at, options.forecast
    if at and forecast is not None:
        raise click.UsageError("--at and --forecast cannot be combined: give one of them")
    if forecast is None:
        return tuple(at or ())
    days = -(-forecast // DAY_MS)
    if days > MOST_DAYS:
        raise click.UsageError(f"--forecast: {days:,} days found, expected at most {MOST_DAYS:,}")
    return tuple(now_ms + day * DAY_MS for day in range(days + 1))


def _texts_in(names: pa.Table, name: str) -> frozenset[str]:
    texts: frozenset[Any] = frozenset(names[name].to_pylist())
    return texts - {None}


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
