"""The answer of `kip33 failover`, and the measured buffer of `--buffer auto`.

With LogAppendTime an unread record's timestamp on cluster A is at least that of the last record
read. It was produced at most the largest latency of A before that. On cluster B its timestamp is
the time of production, or later by B's latency, which is negative if a producer's clock is ahead.
So the buffer is the largest latency of A, plus how far a producer's clock is ahead of B's.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kip33.audits.timestamp_plan import (
    AuditClock,
    PartitionProfile,
    TimestampQuestion,
    execute_timestamps,
    plan_timestamps,
    topic_profiles,
)
from kip33.catalog.catalog import Catalog, Choice, Snapshot
from kip33.catalog.tiers import CatalogSnapshot
from kip33.cli.output import (
    Column,
    Output,
    Row,
    RowList,
    Table,
    choose_and_warn,
    counted,
    csv_line,
    human_bytes,
    human_duration,
    iso_time,
    open_catalog_dir,
    partition_name,
    show,
    warn,
)
from kip33.cli.progress import progress_line
from kip33.cli.times import AUTO_BUFFER, current_ms
from kip33.errors import LocationError
from kip33.local.local_engine import LocalEngine
from kip33.rules.policies import TopicGlobs
from kip33.rules.search import EARLIEST, SearchResult
from kip33.rules.timestamp_profile import LatencyHistogram, LimitChoice
from kip33.search.answers import load_group_offsets
from kip33.search.catalog_search import by_partition, rows_of
from kip33.search.failover import ResumePoint, Rows, resume_points
from kip33.stores.progress import Phase, Progress

if TYPE_CHECKING:
    from kip33.cli.failover import FailoverCommand


def show_failover(options: "FailoverCommand") -> None:
    """Print the answer to the options on standard output."""
    started = time.monotonic()
    globs = TopicGlobs.of(options.topics)
    offsets = [one for one in load_group_offsets(options.offsets) if globs.matches(one.topic)]
    topics = {one.topic for one in offsets}
    with progress_line("failover") as on_progress:
        on_progress(Progress(Phase.READING_CATALOG))
        here = open_catalog_dir(options.first, "--from")
        there = open_catalog_dir(options.second, "--to")
        first, first_choice = _rows(here, topics)
        second, second_choice = _rows(there, topics)
        buffer_ms = options.buffer
        if options.buffer == AUTO_BUFFER:
            measured = _measured_buffer(
                (here.location.uri, first_choice.snapshot),
                (there.location.uri, second_choice.snapshot),
                topics,
                current_ms(),
            )
            buffer_ms = measured.buffer_ms
            click.echo(measured.why, err=True)
        points = resume_points(
            first,
            second,
            offsets,
            buffer_ms=buffer_ms,
            max_batch_bytes=options.max_batch_bytes,
            on_progress=on_progress,
        )
    context: dict[str, Any] = {
        "from_snapshot": first_choice.snapshot.name,
        "to_snapshot": second_choice.snapshot.name,
        "warnings": list(dict.fromkeys((*first_choice.warnings, *second_choice.warnings))),
    }
    context |= {"buffer_ms": buffer_ms} if options.buffer == AUTO_BUFFER else {}
    rows = [point._asdict() for point in points]
    answer = Output(
        page=_page(rows, buffer_ms, started),
        rows=[RowList("", (_printed(row, context) for row in rows), columns=ResumePoint._fields)],
        summary={"partitions": len(rows), "seconds": round(time.monotonic() - started, 3)}
        | context,
        csv=_reset_offsets(points) if options.emit else None,
    )
    show(answer, "csv" if options.emit else options.output_format)


def _printed(point: Row, context: Row) -> Row:
    """Return a point for programs: no time is searched where a group begins at the start."""
    searched = None if point["target_ms"] == EARLIEST else point["target_ms"]
    return {**point, "target_ms": searched, **context}


def _rows(catalog: Catalog, topics: set[str]) -> tuple[Rows, Choice]:
    """Return the rows of the newest undamaged snapshot, and that choice."""
    choice = choose_and_warn(catalog, None)
    return by_partition(rows_of(CatalogSnapshot(catalog, choice.snapshot), topics)), choice


def _reset_offsets(points: Sequence[ResumePoint]) -> Iterator[str]:
    """Yield the CSV of `--from-file`: with groups if there are several."""
    several = len({point.group for point in points}) > 1
    for point in points:
        if point.resume_offset is None:
            warn(f"{partition_name(point._asdict())}: {_why_not(point)}; the output leaves it out")
            continue
        if point.guarantee is None:
            warn(f"{partition_name(point._asdict())}: no guarantee: {point.note}")
        row = (point.topic, point.partition, point.resume_offset)
        yield csv_line((point.group, *row) if several else row)


def _page(points: Sequence[Row], buffer_ms: int, started: float) -> Iterator[Table | str]:
    yield Table(_COLUMNS, points)
    if unsure := sum(point["guarantee"] is None for point in points):
        yield (
            f"{counted(unsure, 'partition')} without a guarantee; the result or note says why. For "
            "the others:"
        )
    yield (
        "No unread record is skipped if its timestamp is at most "
        f"{human_duration(buffer_ms)} before that of the last record read, and if the "
        "records of both clusters have their producers' timestamps."
    )
    yield f"{counted(len(points), 'partition')} in {time.monotonic() - started:.1f} s"


def _searched(point: Row) -> str:
    return "the start" if point["target_ms"] == EARLIEST else iso_time(point["target_ms"])


def _twice(point: Row) -> str:
    if point["read_twice_at_most"] is None:
        return "?"
    return f"{point['read_twice_at_most']:,}" + (" (topic)" if point["topic_wide"] else "")


_COLUMNS: Final = (
    Column("group", lambda point: point["group"] or "-", is_name=True),
    Column("partition", partition_name, is_name=True),
    Column("read up to", "committed_offset"),
    Column("last read", "last_read_timestamp", iso_time, rank=3),
    Column("searched", _searched, rank=4),
    Column("resume at", "resume_offset", rank=0),
    Column("its timestamp", "resume_timestamp", iso_time, rank=3),
    Column("records read twice, at most", _twice, rank=2),
    Column("result", "result"),
    Column("note", "note", none="", is_remark=True),
)


def _why_not(point: ResumePoint) -> str:
    is_there = point.result != SearchResult.NO_SUCH_PARTITION
    return (is_there and point.note) or point.result


class _MeasuredBuffer(NamedTuple):
    """The buffer in ms, and one line that says where it is from."""

    buffer_ms: int
    why: str


def _measured_buffer(
    first: tuple[str, Snapshot], second: tuple[str, Snapshot], topics: Iterable[str], now_ms: int
) -> _MeasuredBuffer:
    """Return the buffer for some topics, from the catalogs of clusters A and B.

    UsageError, one line, if the latency of a topic on cluster A cannot be measured.
    """
    wanted = sorted(topics)
    here = _profiles(*first, wanted, now_ms)
    unknown = sorted(set(wanted) - {one.topic for one in here if _has_latency(one)})
    if unknown:
        names = ", ".join(unknown[:5]) + (" and more" if len(unknown) > 5 else "")
        raise click.UsageError(
            f"--buffer auto: {first[0]}: the latency of {names} is not known: it needs topics "
            "with only LogAppendTime batches, of message format v2; give --buffer, such as 15m"
        )
    there = _profiles(*second, wanted, now_ms)
    latency, latency_there = _sum_of(here), _sum_of(there)
    largest = max(0, latency.largest or 0)
    ahead = max(0, -(latency_there.smallest or 0))
    bytes_read = sum(one.bytes_read for one in (*here, *there))
    why = (
        f"Buffer: {human_duration(largest + ahead)}, the largest latency of "
        f"{latency.count:,} LogAppendTime batches of --from"
    )
    why += f", and {human_duration(ahead)} for a producer's clock ahead of --to" if ahead else ""
    return _MeasuredBuffer(largest + ahead, f"{why}; {human_bytes(bytes_read)} of headers read")


def _profiles(
    place: str, snapshot: Snapshot, topics: list[str], now_ms: int
) -> list[PartitionProfile]:
    """Return the profile of each topic in a catalog; a warning for each log that is not read."""
    question = TimestampQuestion(LimitChoice(), AuditClock.FILE_TIME, now_ms)
    try:
        plan = plan_timestamps(place, question, topics=topics, snapshot=snapshot)
    except LocationError:  # the catalog has none of the topics
        return []
    found = list(topic_profiles(execute_timestamps(plan, LocalEngine(tell=warn))))
    for problem in (problem for one in found for problem in one.problems):
        warn(f"{problem}; its latency is not known")
    return found


def _has_latency(one: PartitionProfile) -> bool:
    return one.profile.timestamp_type == "LogAppendTime" and one.profile.latency.count > 0


def _sum_of(profiles: Iterable[PartitionProfile]) -> LatencyHistogram:
    total = LatencyHistogram()
    for one in profiles:
        total.merge(one.profile.latency)
    return total
