"""The question that retention asks of a snapshot: made of options, before an engine works.

The command, Python and a report make it here. It holds all that is read from files, so that it can
be sent to tasks.
"""

from dataclasses import replace
from typing import Any, Final, NamedTuple, Self

from kip33.archive.log_start_offsets import log_start_offsets
from kip33.catalog.catalog import Catalog, Snapshot
from kip33.catalog.partitions import names_in, topics_with_several_ids
from kip33.catalog.tiers import LOG_DIRECTORIES, CatalogSnapshot
from kip33.formats.times import milliseconds_of
from kip33.retention.evaluation import (
    OtherTier,
    RetentionRequest,
    boundary_for,
    policies_for,
    tier_warnings,
    unlisted_warning,
    unmatched_lines,
)
from kip33.retention.make_plan import basis_of
from kip33.retention.only_local import only_local
from kip33.retention.plan import Basis
from kip33.retention.retention_options import JudgingOptions, MomentOptions
from kip33.retention.uploaded import uploaded_segments
from kip33.rules.policies import Policies, TopicGlobs, require_topics
from kip33.rules.retention import WhatIf
from kip33.rules.search import NEWEST_KAFKA
from kip33.stores.locations import Location

MOST_DAYS: Final = 10_000  # of a forecast
_DAY_MS: Final = 86_400_000


class RetentionQuestion(NamedTuple):
    """What is asked of a snapshot, after reading all files."""

    catalog: Catalog
    snapshot: Snapshot
    request: RetentionRequest
    clock_ms: int
    warnings: tuple[str, ...] = ()  # about topics and tiers; who asks tells them
    notes: tuple[str, ...] = ()  # nothing is wrong; a command prints them

    @classmethod
    def of(
        cls,
        judged: CatalogSnapshot,
        policies: Policies,
        asked: JudgingOptions,
        clock_ms: int,
        *,
        other: CatalogSnapshot | None = None,
        of_tools: bool = False,
    ) -> Self:
        """Return the question; ValueError or CatalogError for options that cannot be.

        `other` is the other tier of the cluster. `of_tools`: Kafka's tools printed the policies, so
        topics that they lack are named.
        """
        names = names_in(*judged)
        texts: dict[str, set[Any]] = {
            name: set(names[name].to_pylist()) - {None} for name in ("log_dir", "topic")
        }
        require_topics(asked["topics"], texts["topic"])
        file, given_version = asked["log_start_offsets"], asked["broker_version"]
        starts_file = None if file is None else str(file)
        version: Any = given_version or NEWEST_KAFKA
        tier: OtherTier | None = None
        if other and judged.snapshot.layout == LOG_DIRECTORIES:
            tier = uploaded_segments(judged, other, policies)
        elif other:
            tier = only_local(judged, other, starts_file, version)
        topics = set(filter(TopicGlobs.of(asked["topics"]).matches, texts["topic"]))
        warnings = tier_warnings(judged.snapshot, policies, topics, tier)
        near, notes = unmatched_lines(policies, texts["topic"])
        warnings = (*warnings, *near)
        if of_tools and (line := unlisted_warning(policies, topics)):
            warnings = (*warnings, line)
        source = Location.of(judged.snapshot.source)
        request = RetentionRequest(
            policies_for(judged.snapshot, policies),
            clock_ms if asked["now"] is None else milliseconds_of(asked["now"]),
            log_start_offsets(source, texts["log_dir"], starts_file),
            topics=asked["topics"],
            active_segment=asked["active_segment"],
            boundary=boundary_for(judged.snapshot, version),
            other_tier=tier,
            reborn=topics_with_several_ids(names),
        )
        request.require_valid()
        return cls(*judged, request, clock_ms, warnings, notes)

    def asking(self, **more: Any) -> Self:
        """Return the question with other fields of the request."""
        return self._replace(request=replace(self.request, **more))

    def without_index_files(self) -> Self:
        """Return the question without the broker's view, which reads index files."""
        return self.asking(broker_view=False)

    @property
    def basis(self) -> Basis:
        """Return the settings by which a plan is made."""
        return basis_of(self.catalog, self.snapshot, self.request, self.clock_ms)

    def require_now(self) -> None:
        """Raise ValueError if what is deletable is not what the policies delete now."""
        if self.request.now_ms > self.clock_ms:
            raise ValueError(
                "--now is in the future, but only what the policies delete now can be deleted: "
                "give an earlier time"
            )
        if self.request.what_if is not None:
            raise ValueError(
                "--emit prints what the policy deletes now: remove --ignore-future, and a "
                "--retention-ms beside a policy"
            )


def what_if_of(retention_ms: int | str | None, ignore_future: int | str | None) -> WhatIf | None:
    """Return other settings to judge by as well, which are in ms; None: none are asked."""
    if retention_ms is None and ignore_future is None:
        return None
    return WhatIf(*(None if one is None else int(one) for one in (retention_ms, ignore_future)))


def moments_of(asked: MomentOptions, now_ms: int) -> tuple[int, ...]:
    """Return the times at which it is summed what is freed; ValueError for too many."""
    at: Any = asked["at"]
    forecast = asked["forecast"]
    if at and forecast is not None:
        raise ValueError("--at and --forecast cannot be combined: give one of them")
    if forecast is None:
        return tuple(at or ())
    days = -(-int(forecast) // _DAY_MS)
    if days > MOST_DAYS:
        raise ValueError(f"--forecast: {days:,} days found, expected at most {MOST_DAYS:,}")
    return tuple(now_ms + day * _DAY_MS for day in range(days + 1))
