"""The arguments of a catalog's methods: what callers may give, and its typed form."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from kip33.archive.log_start_offsets import LogStartOffsets, log_start_offsets
from kip33.catalog.catalog import Snapshot
from kip33.formats.kafka_configs import GroupOffset
from kip33.formats.times import Time, milliseconds_of
from kip33.rules.policies import Policies
from kip33.rules.search import TARGETS, require_target
from kip33.search.answers import load_group_offsets
from kip33.search.catalog_search import TimeQuestion
from kip33.stores.locations import Location

Path: TypeAlias = str | os.PathLike[str]
TimeRequest: TypeAlias = (
    tuple[str, int | None, Time | str] | tuple[str, int | None, Time | str, str | None]
)
"""Topic, partition (None: all), time, and optionally a log directory.

A time is ms since 1970, a `datetime` with a time zone, `earliest`, `latest` or `max-timestamp`.
"""
Offsets: TypeAlias = Path | Iterable[tuple[str, str, int, int]]
"""Committed offsets: tuples (group, topic, partition, offset), or a file.

The file is a CSV `[group,]topic,partition,offset`, or the output of
`kafka-consumer-groups.sh --describe`.
"""
PolicyTables: TypeAlias = Policies | Mapping[str, Mapping[str, Any]]
"""`Policies`, or their tables: `{"defaults": {"retention.ms": "7d"}, "topics": {"a*": {}}}`."""


def time_question(
    topic: str, partition: int | None, time: Time | str, log_dir: str | None = None
) -> TimeQuestion:
    """Return a request as a question; ValueError for what is not a time."""
    if isinstance(time, str):
        if time not in TARGETS:
            raise ValueError(f"time {time!r} found, expected a time or one of {', '.join(TARGETS)}")
        return TimeQuestion(topic, partition, TARGETS[time], log_dir)
    target_ms = milliseconds_of(time)
    require_target(target_ms)
    return TimeQuestion(topic, partition, target_ms, log_dir)


def committed_offsets(offsets: Offsets) -> list[GroupOffset]:
    """Return committed offsets, read from the file if it is one."""
    if isinstance(offsets, str | os.PathLike):
        return load_group_offsets(os.fspath(offsets))
    return [GroupOffset(*one) for one in offsets]


def policies_of(policies: PolicyTables) -> Policies:
    """Return the policies; PolicyError for tables that Kafka refuses."""
    return policies if isinstance(policies, Policies) else Policies(policies)


def log_starts(snapshot: Snapshot, log_dirs: Iterable[str], file: Path | None) -> LogStartOffsets:
    """Return the log start offsets of the archive's checkpoints, those of `file` override them."""
    source = Location.of(snapshot.source)
    return log_start_offsets(source, log_dirs, None if file is None else os.fspath(file))
