"""The options of the questions that one catalog, or the two of a cluster, are asked."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias, TypedDict

from kip33.archive.common_options import TopicGlobList
from kip33.options import Option
from kip33.rules.policies import Policies
from kip33.rules.segment_summary import SegmentStatus

PolicyTables: TypeAlias = Policies | Mapping[str, Mapping[str, Any]]
"""`Policies`, or their tables: `{"defaults": {"retention.ms": "7d"}, "topics": {"a*": {}}}`."""


def policies_in(policies: PolicyTables) -> Policies:
    """Return the policies; PolicyError for tables that Kafka refuses, TypeError for no tables."""
    if isinstance(policies, Policies):
        return policies
    if not isinstance(policies, Mapping):
        raise TypeError(
            f"policies: {type(policies).__name__} found, expected Policies or their tables; "
            "kip33.load_policies reads a file"
        )
    return Policies(policies)


def _known(statuses: Sequence[str]) -> Sequence[str]:
    every = [status.value for status in SegmentStatus]
    for one in statuses:
        if one not in every:
            raise ValueError(f"statuses: {one!r} found, expected some of {', '.join(every)}")
    return statuses


class SegmentOptions(TypedDict, total=False):
    """Which segments are listed."""

    topics: TopicGlobList
    statuses: Annotated[
        Sequence[str],
        Option(
            "Only segments with this status; several with commas between them. May be repeated.",
            default=(),
            flag="--status",
            parse=_known,
            python="Only segments with one of these statuses.",
        ),
    ]


class HoleOptions(TypedDict, total=False):
    """Of which topics missing offsets are shown, and which topics are compacted."""

    topics: TopicGlobList
    policies: Annotated[
        PolicyTables | None,
        Option(
            "Policies that say which topics are compacted.",
            flag="--policy",
            metavar="FILE",
            python="They say which topics are compacted.",
        ),
    ]
