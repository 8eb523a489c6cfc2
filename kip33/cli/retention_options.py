"""The options of `kip33 retention` as one value."""

from dataclasses import dataclass

from kip33.cli.engine_option import EngineOptions
from kip33.cli.metrics_file import MetricsRequest
from kip33.stores.locations import Location


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
