"""`kip33 dialects`: index designs compared, and the table of their sizes and searches."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from kip33.builds.build_options import load_topic_settings
from kip33.cli.engine_option import EngineOptions, open_engine
from kip33.cli.options import (
    engine_options,
    format_option,
    layout_option,
    makes_request,
    publish_summary,
    spark_options,
    summary_option,
    topic_option,
    topic_setting_options,
)
from kip33.cli.output import (
    Column,
    Output,
    Row,
    RowList,
    Table,
    counted,
    human_bytes,
    iso_time,
    show,
    warn_of_first,
    warn_of_unreadable,
)
from kip33.cli.progress import progress_line
from kip33.cli.times import Quantity
from kip33.drafts.comparison import COMPARED, KIP_PARTITIONS, DialectQuestion
from kip33.errors import ExitCode
from kip33.rules.index_builder import IndexSettings
from kip33.rules.policies import positive_ms
from kip33.stores.locations import Location

MOST_SKIPPED_WARNINGS: Final = 20


@dataclass(frozen=True, kw_only=True)
class DialectsCommand:
    """The options of `kip33 dialects`."""

    source: str
    layout: str
    dialects: tuple[str, ...]
    settings: IndexSettings
    kafka_configs: str | None
    interval_ms: int
    partitions: int
    targets: int
    seed: int
    topics: tuple[str, ...]
    summary_file: Location | None
    engine: EngineOptions
    output_format: str


@click.command(epilog="Example: kip33 dialects /archive/kafka-logs --partitions 3500")
@click.argument("source")
@layout_option
@click.option(
    "--dialect",
    "dialects",
    multiple=True,
    type=click.Choice(COMPARED),
    help="Compare only this dialect. May be repeated [default: all].",
)
@topic_setting_options
@click.option(
    "--time-index-interval",
    "interval_ms",
    type=Quantity("interval", positive_ms, "1m"),
    default="1m",
    show_default=True,
    metavar="1m",
    help="Length of a bucket of the dialect bucket.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000_000),
    default=KIP_PARTITIONS,
    show_default=True,
    metavar="N",
    help="Show the memory for N partitions like those of SOURCE.",
)
@click.option(
    "--targets",
    type=click.IntRange(1, 1_000),
    default=16,
    show_default=True,
    metavar="N",
    help="Search N times in each segment.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed from which these times are drawn.",
)
@click.option(
    "--check-crc",
    is_flag=True,
    help="Read all bytes of the logs and check CRCs, to find where damaged logs end.",
)
@summary_option
@engine_options
@topic_option
@spark_options
@format_option
@makes_request(DialectsCommand)
def dialects(request: DialectsCommand) -> None:
    """Compare index designs on the segments below SOURCE, without writing any index.

    recover and live are Kafka's .timeindex, kip33 is the text of KIP-33. minute, minute-map, bucket
    and inline are drafts that KIP-33 weighed and did not keep; `kip33 build --dialect` writes them.

    For each dialect: its entries and bytes, also per GiB of log, and the memory for --partitions
    partitions. Then the bytes of log that a search reads, from where the index leads to the end of
    the batch with the first record at or after the time: median and 99th percentile. Last, whether
    each search finds that record. This is checked for all times; if one is missed, an example
    follows.

    Only headers of batches are read, and the records of uncompressed batches for the dialect live.
    """
    from kip33.audits.dialect_tree import compare_dialects
    from kip33.drafts.comparison import DIALECT_COLUMNS, dialect_rows

    with progress_line("dialects") as on_progress:
        engine = open_engine(request.engine, on_progress)
        question = DialectQuestion(
            load_topic_settings(request.settings, request.kafka_configs),
            tuple(name for name in COMPARED if name in (request.dialects or COMPARED)),
            request.interval_ms,
            request.targets,
            request.seed,
        )
        compared, unread = compare_dialects(
            request.source,
            question,
            engine,
            topics=request.topics,
            layout=request.layout,
            on_progress=on_progress,
        )
    skipped = [*unread, *(line for one in compared for line in one.skipped)]
    lines = [f"{line}; the log is not compared" for line in skipped]
    warn_of_first(lines, MOST_SKIPPED_WARNINGS, "{:,} more logs are not compared")
    rows = dialect_rows(compared, question.dialects, partitions=request.partitions)
    summary: dict[str, Any] = {
        "segments": sum(one.segments for one in compared),
        "skipped": len(skipped),
        "partitions": sum(one.segments > 0 for one in compared),
        "log_bytes": sum(one.log_bytes for one in compared),
        "bytes_read": sum(one.bytes_read for one in compared),
        "offset_index_bytes": sum(one.offset_index_bytes for one in compared),
        "memory_for_partitions": request.partitions,
        "engine": engine.name,
        "workers": engine.workers,
    }
    publish_summary(request.summary_file, summary | {"dialects": rows})
    answer = Output(
        page=_page(rows, summary),
        rows=[RowList("dialects", rows, columns=DIALECT_COLUMNS)],
        summary=summary,
    )
    show(answer, request.output_format)
    unreadable = [*unread, *(line for one in compared for line in one.unreadable)]
    if warn_of_unreadable(unreadable, of=summary["segments"] + len(skipped)):
        sys.exit(ExitCode.INCOMPLETE)


def _page(rows: Sequence[Row], summary: Row) -> Iterator[Table | str]:
    """Yield one row per dialect, then an example for each that misses a record."""
    title = (
        f"{counted(summary['segments'], 'segment')} of "
        f"{counted(summary['partitions'], 'partition')}, "
        f"{human_bytes(summary['log_bytes'])}; {human_bytes(summary['bytes_read'])} read"
    )
    columns = (
        Column("dialect", "dialect", is_name=True),
        Column("file", "file", rank=3),
        Column("entries", "entries", rank=3),
        Column("size", "bytes", human_bytes),
        Column("with .index", "bytes_with_offset_index", human_bytes, rank=2),
        Column("per GiB of log", "bytes_per_gib", human_bytes),
        Column(
            f"memory, {counted(summary['memory_for_partitions'], 'partition')}",
            "memory_bytes",
            human_bytes,
            rank=2,
        ),
        Column("search: median", "scanned_median_bytes", human_bytes),
        Column("search: p99", "scanned_p99_bytes", human_bytes, rank=2),
        Column("finds the record", _guarantee, rank=0),
    )
    yield Table(columns, rows, title)
    yield from (_example(row) for row in rows if not row["guarantee"])


def _guarantee(row: Row) -> str:
    if row["guarantee"]:
        return "always"
    missed, searched = row["missed_times"], row["searched_times"]
    return f"not always: missed {missed:,} of {searched:,}" if missed else "not always"


def _example(row: Row) -> str:
    target = iso_time(row["counterexample_target_ms"])
    return (
        f"{row['dialect']} misses a record: {row['counterexample_log']}: a search for {target} "
        f"begins at byte {row['counterexample_start']}, but the batch with offset "
        f"{row['counterexample_offset']} at byte {row['counterexample_position']} has "
        f"{iso_time(row['counterexample_timestamp'])}"
    )
