"""The options of retention, declared once for the command, Python and Spark.

`JudgingOptions` say how segments are judged, `ViewOptions` what else is judged beside that,
`MomentOptions` when what is freed is summed.
"""

from collections.abc import Iterable
from typing import Annotated, Literal, TypedDict

from kip33.archive import common_options as common
from kip33.archive.moments import time_ms, times_ms
from kip33.formats.times import Time
from kip33.options import Option, Path
from kip33.rules.policies import duration, size_bytes


class ActiveOption(TypedDict, total=False):
    """What becomes of the last segment."""

    active_segment: Annotated[
        Literal["keep", "kafka"],
        Option(
            "The last segment of a partition. keep: never delete it; kafka: evaluate it as a "
            "broker does.",
            default="keep",
        ),
    ]


class ViewOptions(TypedDict, total=False):
    """What is judged beside the policies."""

    ignore_future: Annotated[
        int | str | None,
        Option(
            "Show what would change if timestamps further than this in the future were replaced "
            "by the file's modification time.",
            metavar="1h",
            parse=duration,
            python="Also judge as if timestamps further than this in the future were the file's "
            "modification time, such as `1h`.",
        ),
    ]
    show_broker_view: Annotated[
        bool,
        Option(
            "Show what a broker would delete, given the index files beside the logs.",
            python="Also judge as a broker does, by the index files beside the logs.",
        ),
    ]


class EvaluationOptions(ActiveOption, ViewOptions, total=False):
    """How the rows of a DataFrame are judged; it names no snapshot, archive or other tier."""

    retention_ms: common.RetentionLimit


class JudgingOptions(ActiveOption, total=False):
    """Which segments are judged, and how."""

    now: Annotated[
        Time | None,
        Option(
            "Evaluate retention at T, such as 2024-05-01 [default: the clock].",
            metavar="T",
            parse=time_ms,
        ),
    ]
    snapshot: common.SnapshotName
    topics: common.TopicGlobList
    broker_version: common.BrokerVersion
    log_start_offsets: Annotated[
        Path | None,
        Option(
            "CSV topic,partition,offset[,log_dir]. Overrides the archive's "
            "log-start-offset-checkpoint.",
            metavar="FILE",
        ),
    ]


class TrustOption(TypedDict, total=False):
    """Whether the time of a file is enough to delete."""

    trust_last_modified: Annotated[
        bool,
        Option(
            "Also plan segments without timestamps, whose file's modification time is used.",
            python="Take segments without timestamps, too, whose file's modification time is used.",
        ),
    ]


class MomentOptions(TypedDict, total=False):
    """The times at which it is summed what has become deletable."""

    at: Annotated[
        str | Iterable[Time] | None,
        Option(
            "Show what can be deleted at these times.",
            metavar="T1,T2",
            parse=times_ms,
            python="Times: what can be deleted at each.",
        ),
    ]
    forecast: Annotated[
        int | str | None,
        Option(
            "Show what can be deleted on each of the next days.",
            metavar="30d",
            parse=duration,
            python="Such as `30d`: what can be deleted on each of the next days.",
        ),
    ]


class RetentionOptions(JudgingOptions, ViewOptions, total=False):
    """The options of `OpenedCatalog.retention`."""

    retention_ms: common.RetentionLimit


class RetentionSumsOptions(RetentionOptions, MomentOptions, total=False):
    """The options of `OpenedCatalog.retention_sums`."""


class PlanningOptions(JudgingOptions, TrustOption, total=False):
    """The options of `OpenedCatalog.plan_retention` and `records_to_delete`."""


class ApplyOptions(TypedDict, total=False):
    """How a plan is carried out."""

    dry_run: Annotated[bool, "Run all checks, delete nothing."]
    trash: Annotated[
        Path | None,
        Option("Move files to this folder; retention undo moves them back.", metavar="DIR"),
    ]
    delete: Annotated[bool, "Delete files for good, without a question."]
    max_age: Annotated[
        int | str,
        Option("Refuse a plan that is older.", default="24h", metavar="24h", parse=duration),
    ]
    limit: Annotated[
        int | str,
        Option(
            "Refuse a plan that deletes more bytes.",
            default="1TiB",
            metavar="1TiB",
            parse=size_bytes,
        ),
    ]


def is_meant(asked: ApplyOptions) -> bool:
    """Whether the options say what becomes of the files; ValueError if they contradict."""
    if asked["trash"] is not None and asked["delete"]:
        raise ValueError("trash and delete exclude each other: files are moved or deleted for good")
    return asked["dry_run"] or asked["delete"] or asked["trash"] is not None


class UndoOptions(TypedDict, total=False):
    """How it is put back what a plan moved to a trash."""

    dry_run: Annotated[bool, "Run all checks, move nothing."]
