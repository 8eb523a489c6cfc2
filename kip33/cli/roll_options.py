"""The options of `kip33 roll` as one value."""

from dataclasses import dataclass

from kip33.cli.engine_option import EngineOptions
from kip33.rules.rolling import GivenSettings
from kip33.stores.locations import Location


@dataclass(frozen=True, kw_only=True)
class RollRequest:
    """The options of `kip33 roll`; None: not given."""

    given: GivenSettings
    policy: str | None
    kafka_configs: str | None
    retention_ms: int | None
    reading: str
    now: int | None  # ms
    snapshot: str | None
    read_headers: bool
    what_if: bool
    layout: str
    fail_on: tuple[str, ...]
    topics: tuple[str, ...]
    parallelism: int | None
    summary_file: Location | None
    output_format: str
    engine: EngineOptions
