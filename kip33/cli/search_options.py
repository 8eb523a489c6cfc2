"""The options of `kip33 search`, `lag` and `failover` as typed values."""

from dataclasses import dataclass
from typing import Final

from kip33.cli.engine_option import EngineOptions
from kip33.cli.metrics_file import MetricsRequest
from kip33.cli.options import PolicyOptions
from kip33.search.answers import SearchOptions

AUTO_BUFFER: Final = -1  # measure it


@dataclass(frozen=True, kw_only=True)
class SearchCommand:
    """The options of `kip33 search`; None if not given."""

    catalog_dir: str
    times: tuple[str, ...]
    until: str | None
    topics: tuple[str, ...]
    partition: int | None
    requests: str | None  # a file
    now: int | None  # ms
    snapshot: str | None
    broker_version: tuple[int, int] | None  # of Kafka, whose answers are given; None: kip33's own
    how: SearchOptions
    emit: str | None
    allow_unsafe: bool
    log_start_offsets: str | None  # a file
    engine: EngineOptions
    output_format: str


@dataclass(frozen=True, kw_only=True)
class LagCommand:
    """The options of `kip33 lag`; None if not given."""

    catalog_dir: str
    offsets: str  # a file
    now: int | None  # ms
    snapshot: str | None
    policy: PolicyOptions
    max_batch_bytes: int
    output_format: str
    metrics: MetricsRequest


@dataclass(frozen=True, kw_only=True)
class FailoverCommand:
    """The options of `kip33 failover`; None if not given."""

    first: str  # a catalog: --from
    second: str  # a catalog: --to
    offsets: str  # a file
    buffer: int  # ms, or AUTO_BUFFER
    emit: str | None
    max_batch_bytes: int
    output_format: str
