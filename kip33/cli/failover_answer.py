"""The answer of `kip33 failover`."""

import csv
import io
import time
from collections.abc import Sequence
from typing import Any

import click

from kip33.catalog.catalog import Catalog, Choice
from kip33.cli.failover_latency import measured_buffer
from kip33.cli.output import (
    MOST_TABLE_ROWS,
    human_duration,
    iso_time,
    print_answers,
    print_table,
    warn,
)
from kip33.cli.pandas_free import leave_pandas_out
from kip33.cli.progress import progress_bar
from kip33.cli.search_options import AUTO_BUFFER, FailoverRequest
from kip33.cli.search_tables import partition_name
from kip33.cli.snapshot_choice import choose_and_warn
from kip33.cli.standard_output import exact_output
from kip33.cli.times import current_ms
from kip33.rules.search import EARLIEST, SearchResult
from kip33.search.answers import load_group_offsets
from kip33.search.catalog_search import by_partition, rows_of
from kip33.search.failover import ResumePoint, Rows, resume_points
from kip33.stores.directory_checks import require_directory


def show_failover(options: FailoverRequest) -> None:
    """Print the answer to the options on standard output."""
    leave_pandas_out()
    started = time.monotonic()
    offsets = load_group_offsets(options.offsets)
    topics = {one.topic for one in offsets}
    with progress_bar("failover"):
        first, first_choice = _rows(options.first, topics, "--from")
        second, second_choice = _rows(options.second, topics, "--to")
        buffer_ms = options.buffer
        if options.buffer == AUTO_BUFFER:
            measured = measured_buffer(
                (options.first, first_choice.snapshot),
                (options.second, second_choice.snapshot),
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
        )
    if options.emit:
        click.echo(_reset_offsets(points), exact_output(), nl=False, color=True)
    elif options.output_format == "table":
        _print_table(points, buffer_ms, time.monotonic() - started)
    else:
        context: dict[str, Any] = {
            "from_snapshot": first_choice.snapshot.name,
            "to_snapshot": second_choice.snapshot.name,
            "warnings": list(dict.fromkeys((*first_choice.warnings, *second_choice.warnings))),
        }
        context |= {"buffer_ms": buffer_ms} if options.buffer == AUTO_BUFFER else {}
        rows = [point._asdict() for point in points]
        print_answers(rows, ResumePoint._fields, options.output_format, context)


def _rows(place: str, topics: set[str], option: str) -> tuple[Rows, Choice]:
    """Return the rows of the newest undamaged snapshot, and that choice."""
    catalog = Catalog.at(place)
    require_directory(catalog.location, option)
    choice = choose_and_warn(catalog, None)
    return by_partition(rows_of(catalog, choice.snapshot, topics)), choice


def _reset_offsets(points: Sequence[ResumePoint]) -> str:
    """Return the CSV of `--from-file`: with groups if there are several."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    several = len({point.group for point in points}) > 1
    for point in points:
        if point.resume_offset is None:
            warn(f"{partition_name(_named(point))}: {_why_not(point)}; the output leaves it out")
            continue
        if point.guarantee is None:
            warn(f"{partition_name(_named(point))}: no guarantee: {point.note}")
        row = (point.topic, point.partition, point.resume_offset)
        writer.writerow((point.group, *row) if several else row)
    return text.getvalue()


def _print_table(points: Sequence[ResumePoint], buffer_ms: int, seconds: float) -> None:
    columns = (
        *(
            "group",
            "partition",
            "read up to",
            "last read",
            "searched",
            "resume at",
            "its timestamp",
        ),
        *("read twice, at most", "result", "note"),
    )
    rows = [
        (
            point.group or "-",
            partition_name(_named(point)),
            "-" if point.committed_offset is None else point.committed_offset,
            iso_time(point.last_read_timestamp),
            "the start" if point.target_ms == EARLIEST else iso_time(point.target_ms),
            "-" if point.resume_offset is None else point.resume_offset,
            iso_time(point.resume_timestamp),
            "?" if point.read_twice_at_most is None else _twice(point),
            point.result,
            point.note or "",
        )
        for point in points[:MOST_TABLE_ROWS]
    ]
    print_table(columns, rows)
    if len(points) > MOST_TABLE_ROWS:
        more = len(points) - MOST_TABLE_ROWS
        click.echo(f"and {more:,} more; --format jsonl shows all of them")
    unsure = sum(point.guarantee is None for point in points)
    if unsure:
        click.echo(
            f"{unsure:,} partitions have no guarantee; their result or note says why. For "
            "the others:"
        )
    click.echo(
        "No unread record is skipped if its timestamp is at most "
        f"{human_duration(buffer_ms)} before that of the last record read, and if the "
        "records of both clusters have their producers' timestamps."
    )
    click.echo(f"{len(points):,} partitions in {seconds:.1f} s")


def _why_not(point: ResumePoint) -> str:
    is_there = point.result != SearchResult.NO_SUCH_PARTITION
    return (is_there and point.note) or point.result


def _twice(point: ResumePoint) -> str:
    wide = " (topic)" if point.topic_wide else ""
    return f"{point.read_twice_at_most:,}{wide}"


def _named(point: ResumePoint) -> dict[str, Any]:
    return {"log_dir": None, "topic": point.topic, "partition": point.partition}
