"""The options of a report, declared once for the command and for Python."""

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from kip33.archive import common_options as common
from kip33.archive.moments import time_ms
from kip33.formats.times import Time
from kip33.options import Option, Path
from kip33.rules.policies import Policies, duration


class StatusOptions(TypedDict, total=False):
    """What a status is about."""

    now: Annotated[
        Time | None,
        Option(
            "Evaluate retention at T, such as 2024-05-01 [default: the clock].",
            metavar="T",
            parse=time_ms,
        ),
    ]
    snapshot: common.SnapshotName
    broker_version: common.BrokerVersion


class ReportOptions(StatusOptions, total=False):
    """What a report is about."""

    forecast: Annotated[
        int | str,
        Option(
            "Show what can be deleted on each of the next days.",
            default="30d",
            metavar="30d",
            parse=duration,
        ),
    ]


class StatusRequest(StatusOptions):
    """What a status is about, with its places, and its policies as they were given."""

    catalog_dir: str  # a path or URI, like the next
    other: str | None  # the catalog of the other tier
    policy: Path | Policies | Mapping[str, Mapping[str, Any]] | None
    kafka_configs: Path | None
    retention_ms: int | str | None


class ReportFileRequest(StatusRequest, ReportOptions):
    """What a report is about, and where it is written."""

    output: str


class GivenPolicies(TypedDict, total=False):
    """The policies of a program, which need no file."""

    policy: Annotated[
        Path | Policies | Mapping[str, Mapping[str, Any]] | None,
        Option(
            "A TOML file of policies, or `Policies` or their tables. Without these and the next "
            "two, retention is not judged. Commands of findings name files only."
        ),
    ]
    kafka_configs: common.KafkaConfigsFile
    retention_ms: Annotated[
        int | str | None,
        Option("One retention.ms for all topics, in ms or such as `7d`."),
    ]
    on_progress: common.ProgressFunction
    storage_options: common.StoreSettings
    filesystem: common.GivenFilesystem


class StatusCallOptions(StatusOptions, GivenPolicies, total=False):
    """The options of `kip33.archive_status`."""


class ReportFileOptions(ReportOptions, GivenPolicies, total=False):
    """The options of `kip33.write_report`."""
