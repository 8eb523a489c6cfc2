"""`kip33 count`: records per period."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import click

from kip33.cli.declared_options import options_of
from kip33.cli.option_groups import GroupedCommand
from kip33.cli.options import workers_option
from kip33.cli.output import Column, Output, Row, RowList, Table, counted, warn
from kip33.cli.records_options import (
    places,
    problems_text,
    source_of,
)
from kip33.cli.runs import CommandRun, runs
from kip33.cli.times import Quantity
from kip33.local.local_engine import LocalEngine
from kip33.records.counting import COUNTS, CountOptions, RecordCount
from kip33.rules.policies import positive_ms


@dataclass(frozen=True, kw_only=True)
class CountCommand:
    """The options of `kip33 count`."""

    source: str
    remote: str | None  # the catalog of the other tier
    asked: CountOptions
    per_ms: int
    workers: int | None


@click.command(
    cls=GroupedCommand,
    epilog="Example: kip33 count /archive/indexes/_catalog --topic orders --per 1m "
    "--from 2024-05-01T09:00Z --until 2024-05-01T10:00Z",
)
@places
@options_of(CountOptions)
@click.option(
    "--per",
    "per_ms",
    type=Quantity("period", positive_ms, "1h"),
    required=True,
    metavar="1h",
    help="Length of a period, such as 1m, 1h or 1d. Periods begin at multiples of it since 1970, "
    "UTC.",
)
@workers_option
@runs(work="here")
def count(command: CountCommand, run: CommandRun) -> Output:
    """Count the records of SOURCE or CATALOG per topic and period, by their timestamps.

    A row has the topic, the period's start (in milliseconds, and as a time) and the number of
    records. A period without records has no row. Records without a timestamp are counted in a row
    without a start, unless --from or --until is given. Control records are not counted. Of a
    partition that several brokers have, one replica is counted.

    A batch with one record, or with LogAppendTime, is counted from its header and not
    decompressed. Of the others the timestamps are read.

    With tiered storage, give the catalog of the log directories and that of the remote tier, in
    any order: each record of the two tiers is counted once.
    """
    found = RecordCount(command.per_ms, command.asked)
    source = source_of(command.source, command.remote)
    partitions = found.reading.partitions(source, warn=warn, choice="--on-error fail")
    found.read(partitions, LocalEngine(command.workers, tell=warn), warn, run.on_progress)
    warn(*found.lines())
    rows = found.rows()
    summary = {"records": found.records, "periods": len(rows), "damaged": found.damaged}
    if found.is_committed:
        summary["undecided"] = found.undecided
    return Output(
        page=partial(_page, rows, found),
        rows=[RowList("counts", rows, columns=COUNTS.names)],
        summary=summary,
        summary_key="summary",
    )


def _page(rows: Sequence[Row], count: RecordCount, summary: Row) -> Iterator[Table | str]:
    columns = (
        Column("topic", lambda row: row["topic"] or "-", is_name=True),
        Column("from", "time", rank=0),
        Column("records", "records", rank=0),
    )
    yield Table(columns, rows)
    records, periods = counted(count.records, "record"), counted(len(rows), "period")
    problems = problems_text(count.damaged, count.undecided)
    yield f"{records} in {periods}; {problems}read in {summary['seconds']:.1f} s"
