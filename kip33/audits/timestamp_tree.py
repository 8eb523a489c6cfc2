"""An audit of timestamps on an engine: each log is a share of the work."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from kip33.archive.bins import Engine, Progress
from kip33.audits.timestamp_plan import (
    TimestampPlan,
    TimestampQuestion,
    keys_of,
    with_largest_before,
)
from kip33.audits.timestamp_segment import ProfiledSegment, profile_log
from kip33.rules.timestamp_profile import TimestampProfile
from kip33.stores.concurrently import map_in_order
from kip33.stores.locations import Location


class PartitionProfile(NamedTuple):
    """The timestamps of a partition in one log directory.

    `problems` has a line for each log that could not be read to its end, which the profile lacks.
    """

    log_dir: str | None
    topic: str | None
    partition: int | None
    segments: int
    profile: TimestampProfile
    problems: tuple[str, ...]
    bytes_read: int
    unreadable: tuple[str, ...] = ()  # those of the problems that are no damage


def execute_timestamps(
    plan: TimestampPlan,
    engine: Engine,
    *,
    parallelism: int | None = None,
    on_progress: Progress | None = None,
) -> list[PartitionProfile]:
    """Return a profile for each partition and log directory, by topic and partition."""

    def run(files: pa.Table) -> list[ProfiledSegment]:
        return engine.run_on_bins(
            files,
            partial(profile_bin, plan.source, plan.question),
            parallelism=parallelism,
            on_progress=on_progress,
        )

    profiled = sorted(run(plan.files), key=_number)
    largest = [one.profile.largest_timestamp for one in profiled]
    files = with_largest_before(plan.files, largest)
    before: list[Any] = files["largest_before"].to_pylist()
    wrong = [one.number for one in profiled if not one.is_true_for(before[one.number])]
    if wrong:
        for again in run(files.take(pa.array(wrong, pa.int64()))):
            bytes_read = profiled[again.number].bytes_read + again.bytes_read
            profiled[again.number] = again._replace(bytes_read=bytes_read)
    return list(_partitions(files, profiled))


def profile_bin(
    source: Location, question: TimestampQuestion, number: int, files: pa.Table
) -> Iterator[ProfiledSegment]:
    """Yield the profile of each log of one bin, which is the work of one task."""
    rows = files.to_pylist()
    run = partial(profile_log, question=question)
    yield from map_in_order(source, rows, run, held_bytes=lambda row: row["size_bytes"] or 0)


def topic_profiles(found: Iterable[PartitionProfile]) -> Iterator[PartitionProfile]:
    """Yield a profile for each topic, the sum of all its partitions and log directories."""
    for topic, members in groupby(found, key=lambda one: one.topic):
        yield _sum(None, topic, None, members)


def _partitions(files: pa.Table, profiled: list[ProfiledSegment]) -> Iterator[PartitionProfile]:
    uris: list[Any] = files["log_uri"].to_pylist()
    numbered = zip(keys_of(files), profiled, strict=True)
    for (topic, partition, log_dir, _), members in groupby(numbered, key=lambda pair: pair[0]):
        key = log_dir, topic, partition
        yield _sum(*key, (_of_segment(one, uris[one.number]) for _, one in members))


def _of_segment(one: ProfiledSegment, log_uri: str) -> PartitionProfile:
    problems = (f"{log_uri}: {one.error}",) if one.error else ()
    unreadable = problems if one.is_unreadable else ()
    return PartitionProfile(None, None, None, 1, one.profile, problems, one.bytes_read, unreadable)


def _sum(
    log_dir: str | None,
    topic: str | None,
    partition: int | None,
    members: Iterable[PartitionProfile],
) -> PartitionProfile:
    total, segments, bytes_read = TimestampProfile(), 0, 0
    problems: list[str] = []
    unreadable: list[str] = []
    for one in members:
        total.merge(one.profile)
        segments += one.segments
        bytes_read += one.bytes_read
        problems += one.problems
        unreadable += one.unreadable
    key = log_dir, topic, partition
    texts = tuple(problems), tuple(unreadable)
    return PartitionProfile(*key, segments, total, texts[0], bytes_read, texts[1])


def _number(one: ProfiledSegment) -> int:
    return one.number
