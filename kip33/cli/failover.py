"""`kip33 failover`: translate consumer-group offsets to another cluster, by timestamp."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import click

from kip33.cli.catalog_places import chosen_snapshot
from kip33.cli.declared_options import options_of
from kip33.cli.output import (
    Column,
    Output,
    Row,
    RowList,
    Table,
    counted,
    human_duration,
    iso_time,
    partition_name,
    warn,
)
from kip33.cli.runs import CommandRun, runs
from kip33.cli.times import AUTO_BUFFER, BUFFER
from kip33.rules.search import EARLIEST
from kip33.search.answers import load_group_offsets
from kip33.search.catalog_search import partitions_of
from kip33.search.failover import FailoverOptions, ResumePoint, reset_offsets, resume_points
from kip33.stores.progress import Phase, Progress


@click.command(
    epilog="Example: kip33 failover --from /dr/a/_catalog --offsets described.txt "
    "--to /dr/b/_catalog --buffer 15m --emit reset-offsets"
)
@click.option(
    "--from",
    "first",
    required=True,
    metavar="CATALOG",
    help="Catalog of cluster A, on which the groups committed.",
)
@click.option(
    "--offsets",
    required=True,
    metavar="FILE",
    help="Offsets that the groups committed on cluster A: CSV "
    "[group,]topic,partition,offset, or the saved output of `kafka-consumer-groups.sh "
    "--describe`.",
)
@click.option(
    "--to",
    "second",
    required=True,
    metavar="CATALOG",
    help="Catalog of cluster B, on which the groups resume.",
)
@click.option(
    "--buffer",
    type=BUFFER,
    required=True,
    metavar="15m|auto",
    help="Upper limit of the replication latency between the clusters plus the difference "
    "of their clocks. auto: the largest latency of the topics on cluster A, measured from the "
    "headers of its LogAppendTime batches.",
)
@click.option(
    "--emit",
    type=click.Choice(["reset-offsets"]),
    help="Print only the CSV that kafka-consumer-groups.sh --from-file takes.",
)
@options_of(FailoverOptions)
@runs(work="here", summary=False)
def failover(
    first: str,
    second: str,
    offsets: str,
    buffer: int,
    emit: str | None,
    asked: FailoverOptions,
    run: CommandRun,
) -> Output:
    """Translate consumer-group offsets from cluster A to cluster B, by timestamp.

    The command takes the timestamp of the last record that a group read on cluster A, subtracts
    the buffer, and finds that time on cluster B: no record at or after that time has a lower
    offset there. It reports how many records may be read twice. If a topic has another number of
    partitions on cluster B, its smallest time is used for all of its partitions.

    --buffer auto measures the difference between the append time and the producer's timestamp of
    each batch (kip33 timestamps). It needs topics with only LogAppendTime batches of message
    format v2 on cluster A. If cluster B also has LogAppendTime, and its producers' clocks were
    ahead of it, that is added.

    Each JSON row also has `from_snapshot` and `to_snapshot`, the snapshots that were used, and
    `warnings`, one for each newer snapshot that is damaged and was ignored. With
    --buffer auto it also has `buffer_ms`, and a line on standard error says where that is from.
    """
    committed = load_group_offsets(offsets, asked["topics"], warn)
    topics = {one.topic for one in committed}
    run.on_progress(Progress(Phase.READING_CATALOG))
    here, warnings = chosen_snapshot(first, what="--from")
    there, more = chosen_snapshot(second, what="--to")
    context: dict[str, Any] = {
        "from_snapshot": here.snapshot.name,
        "to_snapshot": there.snapshot.name,
        "warnings": list(dict.fromkeys((*warnings, *more))),
    }
    buffer_ms = buffer
    if buffer_ms == AUTO_BUFFER:
        from kip33.api.failover_buffer import measured_buffer

        measured = measured_buffer(here, there, topics, run.started_ms, warn)
        buffer_ms = measured.buffer_ms
        context |= {"buffer_ms": buffer_ms}
        click.echo(measured.why, err=True)
    points = resume_points(
        partitions_of(here, topics),
        partitions_of(there, topics),
        committed,
        buffer_ms=buffer_ms,
        max_batch_bytes=asked["max_batch_bytes"],
        on_progress=run.on_progress,
    )
    emitted = reset_offsets(points) if emit else None
    if emitted:
        warn(*emitted.warnings)
    rows = [point._asdict() for point in points]
    return Output(
        page=partial(_page, rows, buffer_ms),
        rows=[RowList("", (_printed(row, context) for row in rows), columns=ResumePoint._fields)],
        summary={"partitions": len(rows)} | context,
        emitted=emitted.lines if emitted else None,
    )


def _printed(point: Row, context: Row) -> Row:
    """Return a point for programs: no time is searched where a group begins at the start."""
    searched = None if point["target_ms"] == EARLIEST else point["target_ms"]
    return {**point, "target_ms": searched, **context}


def _page(points: Sequence[Row], buffer_ms: int, summary: Row) -> Iterator[Table | str]:
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
    yield f"{counted(len(points), 'partition')} in {summary['seconds']:.1f} s"


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
