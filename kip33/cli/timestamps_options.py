"""The options of `kip33 timestamps` as typed values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kip33.cli.engine_option import EngineOptions
from kip33.stores.locations import Location

MIXED, OUT_OF_ORDER, REJECTED = "mixed", "out-of-order", "rejected"
SUSPICIOUS, UNREADABLE = "suspicious", "unreadable"
TIMESTAMP_FINDINGS: Final = (MIXED, OUT_OF_ORDER, REJECTED, SUSPICIOUS, UNREADABLE)


@dataclass(frozen=True, kw_only=True)
class TimestampsRequest:
    """The options of `kip33 timestamps`; None if not given."""

    source: str
    by: str
    before_max_ms: int | None
    after_max_ms: int | None
    difference_max_ms: int | None
    policy: str | None  # a file
    kafka_configs: str | None  # a file
    clock: str
    now: int | None  # ms
    catalog_only: bool
    snapshot: str | None
    fail_on: tuple[str, ...]
    layout: str
    summary_file: Location | None
    topics: tuple[str, ...]
    parallelism: int | None
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
