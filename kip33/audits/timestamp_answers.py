"""The question of timestamps, and its answer: rows, sums and findings.

The options are those of `kip33 timestamps` and of `timestamp_profile` in Python and on Spark.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, TypedDict

import pyarrow as pa

from kip33.archive import common_options as common
from kip33.archive.bins import Engine
from kip33.audits.timestamp_plan import (
    TIMESTAMPS,
    AuditClock,
    TimestampPlan,
    TimestampQuestion,
    catalog_rows,
    execute_timestamps,
    plan_timestamps,
    timestamp_row,
    topic_profiles,
)
from kip33.catalog.catalog import Snapshot, Warn, catalog_unless_source, choose
from kip33.options import Option
from kip33.rules.policies import Policies, setting_ms
from kip33.rules.suspicious_timestamps import SUSPICIONS
from kip33.rules.timestamp_profile import MIXED, NONE, LimitChoice
from kip33.stores.locations import Location
from kip33.stores.progress import OnProgress

TIMESTAMP_FINDINGS: Final = ("mixed", "out-of-order", "rejected", "suspicious", "unreadable")
_COLUMNS_OF: Final = {
    "out-of-order": ("out_of_order_batches",),
    "rejected": ("rejected_before", "rejected_after"),
    "suspicious": tuple(kind.value for kind in SUSPICIONS[:-1]),
}
_LIMITS: Final = ("before_max_ms", "after_max_ms", "difference_max_ms")


class TimestampOptions(TypedDict, total=False):
    """Which timestamps are profiled, and what they are compared with."""

    by: Annotated[
        Literal["partition", "topic"],
        Option(
            "One row for each partition of each log directory, or one for each topic.",
            default="partition",
        ),
    ]
    before_max_ms: Annotated[
        int | str | None,
        Option(
            "Count batches that are older than the clock by more [default: the policy's, else no "
            "limit].",
            flag="--message-timestamp-before-max-ms",
            metavar="7d",
            parse=setting_ms,
        ),
    ]
    after_max_ms: Annotated[
        int | str | None,
        Option(
            "Count batches that are later than the clock by more [default: the policy's, else 1h, "
            "as in Kafka 4].",
            flag="--message-timestamp-after-max-ms",
            metavar="1h",
            parse=setting_ms,
        ),
    ]
    difference_max_ms: Annotated[
        int | str | None,
        Option(
            "Both limits in one, as before Kafka 3.6 (KIP-32).",
            flag="--message-timestamp-difference-max-ms",
            metavar="1d",
            parse=setting_ms,
        ),
    ]
    clock: Annotated[
        Literal["file-time", "now"],
        Option(
            "What CreateTime batches are compared with, in place of the broker's clock.",
            default="file-time",
        ),
    ]
    catalog_only: Annotated[bool, "Of a CATALOG: open no log; show what its rows tell."]
    snapshot: common.SnapshotName
    layout: common.LayoutName
    topics: common.TopicGlobList


class TimestampRequest(TimestampOptions):
    """What a profile of timestamps is asked."""

    source: str  # the path or URI of an archive or a catalog


class TimestampAnswer(NamedTuple):
    """The rows of TIMESTAMPS, and what was not read."""

    plan: TimestampPlan
    rows: list[dict[str, Any]]
    unreadable: Sequence[str] = ()  # a line for each log that could not be read
    warnings: Sequence[str] = ()  # on the snapshot

    def table(self) -> pa.Table:
        """Return the rows."""
        return pa.Table.from_pylist(self.rows, TIMESTAMPS)

    def summary(self) -> dict[str, Any]:
        """Return the sums of the rows, and how many findings of each kind there are."""
        rows = self.rows

        def total(*names: str) -> int:
            return sum(row[name] or 0 for row in rows for name in names)

        behind = [row["furthest_behind_ms"] or 0 for row in rows]
        latencies = [row["latency_max_ms"] for row in rows if row["latency_max_ms"] is not None]
        found = {one: sum(count_in(row, one) for row in rows) for one in TIMESTAMP_FINDINGS}
        return {
            "rows": len(rows),
            "segments": total("segments"),
            "batches": total("batches"),
            "out_of_order_batches": total("out_of_order_batches"),
            "furthest_behind_ms": max(behind, default=0),
            "rejected_before": total("rejected_before"),
            "rejected_after": total("rejected_after"),
            "suspicious": found["suspicious"],
            "latency_max_ms": max(latencies, default=None),
            "bytes_read": total("bytes_read"),
            "findings": found,
            "warnings": list(self.warnings),
        }


def profile_timestamps(
    asked: TimestampRequest,
    policies: Policies | None,
    now_ms: int,
    engine: Callable[[], Engine],
    warn: Warn,
    on_progress: OnProgress,
) -> TimestampAnswer:
    """Return the profile of an archive or a catalog; `engine` is called if logs are read.

    Raises LocationError for a missing directory or one without segments, CatalogError for a damaged
    catalog, ValueError for options that contradict each other.
    """
    given: dict[str, Any] = {name: asked[name] for name in _LIMITS}
    limits = LimitChoice(**given, policies=policies)
    question = TimestampQuestion(limits, AuditClock(asked["clock"]), now_ms)
    place, is_catalog_only = Location.of(asked["source"]), asked["catalog_only"]
    snapshot: Snapshot | None = None
    warnings: Sequence[str] = ()
    catalog = catalog_unless_source(place, warn)
    if catalog:
        snapshot, warnings, _ = choose(catalog, asked["snapshot"], warn)
    elif is_catalog_only or asked["snapshot"]:
        option = "--catalog-only" if is_catalog_only else "--snapshot"
        raise ValueError(
            f"{option} requires a CATALOG, and {place.uri} has none; give the catalog of a build"
        )
    if is_catalog_only and asked["by"] != "partition":
        raise ValueError("--catalog-only shows partitions: leave out --by topic")
    plan = plan_timestamps(
        catalog.location.uri if catalog else asked["source"],
        question,
        topics=asked["topics"],
        layout=asked["layout"],
        snapshot=snapshot,
        on_progress=on_progress,
    )
    if is_catalog_only and catalog:
        return TimestampAnswer(plan, catalog_rows(catalog, plan), (), warnings)
    found = execute_timestamps(plan, engine())
    profiles = topic_profiles(found) if asked["by"] == "topic" else found
    rows = [timestamp_row(one, question) for one in profiles]
    return TimestampAnswer(plan, rows, [line for one in found for line in one.unreadable], warnings)


def count_in(row: Mapping[str, Any], finding: str) -> int:
    """Return how many batches, or logs, of a row have a finding; 1 for a mixed row.

    Mixed: batches have several types, or another one than the topic's policy says.
    """
    if finding == "mixed":
        found, policy = row["timestamp_type"], row["policy_timestamp_type"]
        return int(found == MIXED or (policy is not None and found not in (NONE, policy)))
    if finding == "unreadable":
        return len(row["problems"])
    return sum(row[name] or 0 for name in _COLUMNS_OF[finding])
