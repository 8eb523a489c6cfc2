"""The options of `kip33 search`, `lag` and `failover` as typed values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kip33.cli.engine_option import EngineOptions
from kip33.cli.metrics_file import MetricsRequest
from kip33.cli.options import PolicyOptions

AUTO_BUFFER: Final = -1  # measure it


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
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
    index_only: bool
    all_replicas: bool
    emit: str | None
    max_batch_bytes: int
    allow_unsafe: bool
    log_start_offsets: str | None  # a file
    engine: str
    workers: int | None
    verbose: bool
    master: str | None
    conf: Mapping[str, str]
    output_format: str

    @property
    def engine_options(self) -> EngineOptions:
        """Return the options about the engine."""
        return EngineOptions(self.engine, self.workers, self.verbose, self.master, self.conf)


@dataclass(frozen=True, kw_only=True)
class LagRequest:
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
class FailoverRequest:
    """The options of `kip33 failover`; None if not given."""

    first: str  # a catalog: --from
    second: str  # a catalog: --to
    offsets: str  # a file
    buffer: int  # ms, or AUTO_BUFFER
    emit: str | None
    max_batch_bytes: int
    output_format: str
