"""`kip33 dialects`: index designs compared, and the table of their sizes and searches."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import click

from kip33.audits.dialect_tree import DialectRequest, compare_dialects
from kip33.builds.build_options import load_topic_settings
from kip33.cli.declared_options import options_of
from kip33.cli.option_groups import GroupedCommand
from kip33.cli.output import (
    Column,
    Output,
    Row,
    RowList,
    Table,
    counted,
    human_bytes,
    iso_time,
    warn_of_first,
)
from kip33.cli.runs import CommandRun, runs
from kip33.drafts.comparison import DIALECT_ROWS
from kip33.rules.index_builder import IndexSettings

MOST_SKIPPED_WARNINGS: Final = 20


@click.command(
    cls=GroupedCommand, epilog="Example: kip33 dialects /archive/kafka-logs --partitions 3500"
)
@click.argument("source")
@options_of(DialectRequest)
@runs()
def dialects(asked: DialectRequest, run: CommandRun) -> Output:
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
    settings = load_topic_settings(IndexSettings.of(asked), asked["kafka_configs"])
    found = compare_dialects(asked, settings, run.open_engine(), run.on_progress)
    lines = [f"{line}; the log is not compared" for line in found.skipped]
    warn_of_first(lines, MOST_SKIPPED_WARNINGS, "{:,} more logs are not compared")
    return Output(
        page=partial(_page, found.rows),
        rows=[RowList("dialects", found.rows, columns=DIALECT_ROWS.names)],
        summary=found.summary,
        more={"dialects": found.rows},
        unread=found.unreadable,
        logs=found.summary["segments"] + len(found.skipped),
    )


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
