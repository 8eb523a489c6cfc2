"""`kip33 records`: the records of an archive, between two times, in five formats."""

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Final

import click
import pyarrow as pa

from kip33.archive.bins import EngineName
from kip33.archive.moments import moment_ms
from kip33.archive.output_files import require_free
from kip33.cli.declared_options import names_in, options_of
from kip33.cli.engine_option import EngineOptions, is_typed
from kip33.cli.option_groups import GroupedCommand
from kip33.cli.options import publish_summary, result_line_option, together
from kip33.cli.output import (
    FORMATS,
    MOST_TABLE_ROWS,
    TIMES,
    Column,
    Output,
    Row,
    Table,
    counted,
    facts,
    human_bytes,
    iso_time,
    print_result,
    some,
    warn,
)
from kip33.cli.progress import progress_line
from kip33.cli.records_options import places, problems_text, source_of
from kip33.cli.runs import CommandRun, run_record, runs
from kip33.cli.standard_output import exact_output, make_utf8, shown_bytes
from kip33.local.local_engine import LocalEngine
from kip33.records.reading import ReadOptions, RecordChoice
from kip33.records.record_request import MOST_PROBLEMS, problem_lines
from kip33.records.record_selection import (
    RecordSelection,
    SelectOptions,
    format_of_name,
    write_selection,
)
from kip33.records.record_texts import RecordTexts, RecordWriter, rows_of_batch
from kip33.stores.locations import Location
from kip33.stores.progress import Phase, Progress, tell_nobody

PARQUET: Final = "parquet"
_IN_TABLE: Final = ("topic", "partition", "offset", "timestamp", "key", "value")
_PAYLOAD: Final = ("key", "value")
_NAMES: Final = ("log_dir", "topic", "log_uri")  # of columns that name something
_PLACE: Final = ("partition", "offset", "timestamp")


_format_options: Final = together(
    click.option(
        "--format",
        "output_format",
        type=click.Choice([*FORMATS, PARQUET]),
        help="Output format [default: by the name of --output, or table]. With json, jsonl and "
        "csv, standard output has only data.",
    ),
    result_line_option,
)


@dataclass(frozen=True, kw_only=True)
class RecordsCommand:
    """The options of `kip33 records`; None if not given."""

    source: str
    remote: str | None  # the catalog of the other tier
    read: ReadOptions
    shown_columns: tuple[str, ...] | None
    select: SelectOptions
    output: str | None
    to: str | None  # a folder

    def check(self) -> None:
        """Raise UsageError, one line, for options that contradict each other."""
        if self.to is not None:
            self._require_records_only()
            self._require_no_time()

    def _require_no_time(self) -> None:
        """Raise UsageError for a folder with the name of a time, which `--until` was to be."""
        to = self.to or ""
        try:
            moment_ms(to)
        except ValueError:
            return
        raise click.UsageError(
            f"--to {to}: expected a folder, found a time; give --until, or ./{to} for a folder"
        )

    def _require_records_only(self) -> None:
        """Raise UsageError for options that --to does not have."""
        given = {
            **{f"--{name.replace('_', '-')}": one for name, one in self.select.items()},
            "--output": self.output,
            "--on-error row": self.read["on_error"] == "row" or None,
        }
        for option, value in given.items():
            if value not in (None, False, TIMES[0]):
                raise click.UsageError(f"--to writes all records, as they are: leave out {option}")


def _names(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    """Return the names in a list with commas, each once."""
    if text is None:
        return None
    return tuple(dict.fromkeys(names_in(text)))


@click.command(
    cls=GroupedCommand,
    epilog="Example: kip33 records /archive/indexes/_catalog --topic orders "
    "--from 2024-05-01T09:00Z --until 2024-05-01T09:05Z --format jsonl",
)
@places
@options_of(RecordChoice)
@click.option(
    "--columns",
    "shown_columns",
    callback=_names,
    metavar="A,B",
    help="Columns to show, in this order: log_dir, topic, partition, base_offset (of the segment), "
    "offset, timestamp, timestampType, key, value, headers. What is not named is not decoded.",
)
@options_of(SelectOptions)
@click.option(
    "--on-error",
    type=click.Choice(["skip", "row", "fail"]),
    default="skip",
    show_default=True,
    help="For a batch or the end of a log that cannot be read: skip: a warning with the bytes and "
    "offsets that are left out, and the batches after them are read; row: a row with that in "
    "_corrupt, also for a log that cannot be opened; fail: an error, also for records that may be "
    "of aborted transactions (with --isolation read_committed), or of no log (of two tiers without "
    "leader epochs).",
)
@click.option(
    "--output",
    metavar="FILE",
    help="Write a new file, *.json, *.jsonl, *.csv or *.parquet; it appears when it is complete. "
    "A file that is there is never replaced.",
)
@click.option(
    "--to",
    metavar="FOLDER",
    help="Add the new records to a folder of Parquet files, by topic and day. The next run begins "
    "where this one ends. By workers, or by the tasks of Spark (--engine spark).",
)
@runs(formats=_format_options, shows_progress=False)
def records(command: RecordsCommand, run: CommandRun) -> Output | None:
    """Show the records of SOURCE or CATALOG by time, key or text, without a broker.

    SOURCE is an archive, a partition's directory or one .log. With a CATALOG, segments without
    records between --from and --until are not read. Records are in the order of topic, partition
    and offset. Of a partition that several brokers have, one replica is read.

    With tiered storage, give the catalog of the log directories and that of the remote tier, in
    any order: each record of the two tiers is shown once. If they have different records at the
    same offsets, the local ones are shown, and --on-error decides, as for damage.

    json, jsonl: key and value are texts if they are UTF-8. Otherwise the row has key_base64 or
    value_base64 instead. timestamp is as --times says, null without one. json is one object, with
    the records and then a summary. csv always has both columns of each; it does not tell null from
    empty. parquet has the bytes. A table has at most 1,000 records, with long values cut.

    With --decode, value is JSON, and schema_id and decode_error come after it. A value that cannot
    be decoded stays as it was sent, and decode_error has the reason. In parquet, value has the type
    of the newest schema of <topic>-value, or of the one schema in a directory; if there is no such
    schema, or there are several topics, it is JSON text. value_bytes has what cannot be decoded.
    Keys are not decoded. --grep searches the bytes that were sent.

    With --to, a CATALOG is needed. Files are FOLDER/topic=orders/2024-05-01/part-....parquet, each
    with the columns topic (text) and day (date, UTC). Spark, pandas and Arrow read FOLDER as one
    table, DuckDB and Polars with a pattern, FOLDER/topic=*/*/*.parquet. Each record is added once:
    a run begins at the offset at which the last one ended, and one that is interrupted adds
    nothing, or the next one completes it. All runs have the same CATALOG and the same options, but
    for topics and partitions.
    """
    if command.to is not None:
        return _add_records(command, command.to, run)
    _show_records(command, run)
    return None


def _require_no_spark(engine: EngineOptions) -> None:
    is_asked = is_typed("engine") and engine.engine == EngineName.SPARK
    asked = {"--engine spark": is_asked}
    asked |= {f"--{name}": is_typed(name) for name in ("master", "parallelism")}
    if option := next((option for option in asked if asked[option]), None):
        raise click.UsageError(f"{option} requires --to FOLDER: tasks of Spark write files")


def _show_records(command: RecordsCommand, run: CommandRun) -> None:
    """Print or write the records that the options select."""
    started = time.monotonic()
    _require_no_spark(run.engine_options)
    output_format = _format_of(command.output, run.options.output_format)
    is_table = output_format == "table"
    place = None if command.output is None else Location.of(command.output)
    if place is not None:
        require_free(place, "--output")
    limit, select = command.select["limit"], command.select
    if is_table:
        select = {**select, "limit": min(limit or MOST_TABLE_ROWS, MOST_TABLE_ROWS)}

    @cache
    def summary() -> dict[str, Any]:
        found = selection.done(place.uri if place else None)
        return found.as_record() | {"seconds": round(time.monotonic() - started, 3)}

    try:
        selection = RecordSelection(
            source_of(command.source, command.remote),
            {**command.read, "columns": command.shown_columns},
            select,
            LocalEngine(run.engine_options.workers, tell=warn),
            warn,
            default_columns=_IN_TABLE if is_table else None,
            to_columns=output_format == PARQUET,
        )
        if place is None:
            _print(selection, output_format, summary)
        else:
            with progress_line("records") as on_progress:
                write_selection(selection, place, MOST_PROBLEMS, summary, on_progress)
    except ModuleNotFoundError as error:  # of the extra `schemas`
        raise click.ClickException(str(error)) from None
    found = selection.done()
    warn(*problem_lines(found.problems, found.damaged))
    publish_summary(run.options.summary_file, summary() | {"run": run_record(run)})
    if is_table and select["limit"] != limit and found.records >= MOST_TABLE_ROWS:
        click.echo(f"a table ends after {MOST_TABLE_ROWS:,} records; --format jsonl has all")
    if is_table or place is not None:
        click.echo(
            f"{counted(found.records, 'record')} of {counted(found.segments, 'segment')}, "
            f"{human_bytes(found.payload_bytes)} of keys and values; "
            f"{problems_text(found.damaged, found.undecided, found.undecoded or 0)}"
            f"read in {summary()['seconds']:.1f} s"
        )
    print_result(summary())


def _format_of(output: str | None, wanted: str | None) -> str:
    """Return the format; UsageError, one line, for options that contradict each other."""
    if output is None:
        if wanted == PARQUET:
            raise click.UsageError("--format parquet requires --output FILE")
        return wanted or "table"
    ending = format_of_name(output)
    if wanted not in (None, ending):
        raise click.UsageError(
            f"--format {wanted} contradicts --output, whose name ends in .{ending}"
        )
    return ending


def _print(selection: RecordSelection, output_format: str, summary: Callable[[], Row]) -> None:
    """Write records to standard output."""

    def write(text: str) -> None:
        click.echo(text, exact_output(), nl=False, color=True)  # with its control characters

    is_table = output_format == "table"
    shows_progress = is_table or not sys.stdout.isatty()
    if not is_table:
        make_utf8()
    writer: RecordWriter = (
        ShownTable(selection.schema)
        if is_table
        else RecordTexts(output_format, selection.schema, write)
    )
    with (
        progress_line("records") if shows_progress else nullcontext(tell_nobody) as on_progress,
        closing(selection.texts(output_format, MOST_PROBLEMS)) as shown,
    ):
        for records in shown:
            writer.write(records)
            on_progress(Progress(Phase.READING_LOGS, selection.records, unit="record"))
    writer.finish(summary())


def _add_records(command: RecordsCommand, to: str, run: CommandRun) -> Output:
    """Add the new records to the folder of `--to`."""
    from kip33.records.written_records import WriteRequest, write_new_records

    if run.options.output_format not in (None, "table", "json"):
        left_out = f"--format {run.options.output_format}"
        raise click.UsageError(f"--to writes all records, as they are: leave out {left_out}")
    read = command.read
    if command.shown_columns:
        read = {**read, "columns": command.shown_columns}
    read_from = [command.source, *([command.remote] if command.remote else [])]
    asked = WriteRequest.of(read_from, to, **read)
    with progress_line("records") as on_progress:
        run.on_progress = on_progress
        written = write_new_records(asked, run.open_engine(), now_ms=run.started_ms, warn=warn)
    warn(*problem_lines(written.problems, written.damaged))
    record = asdict(written)
    del record["problems"]
    return Output(page=lambda summary: [_facts_of_files(summary)], summary=record)


def _facts_of_files(record: Row) -> Table:
    return facts(
        "records",
        ("folder", record["to"]),
        ("commit", record["commit"] or "none: there are no new records"),
        ("records", f"{record['records']:,} of {counted(record['topics'], 'topic')}"),
        ("files", f"{record['files']:,}, {human_bytes(record['bytes'])}"),
        ("problems", some(record["damaged"], "{:,} in the logs")),
        ("engine", f"{record['engine']}, {counted(record['workers'], 'worker')}"),
        ("seconds", f"{record['seconds']:.1f}"),
    )


class ShownTable:
    """Collects records for a table; `finish` prints it."""

    def __init__(self, schema: pa.Schema) -> None:
        """Show these columns."""
        self._names = schema.names
        self._rows: list[list[Any]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep the cells of records."""
        rows = rows_of_batch(batch)  # few: a table has a limit
        self._rows += [[_shown(name, row[name]) for name in self._names] for row in rows]

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Print the table."""
        columns = [_column(name, number) for number, name in enumerate(self._names)]
        Table(columns, self._rows, most=None).print()


def _column(name: str, number: int) -> Column:
    """Return a column of the table, which shows a cell made by `_shown`."""
    return Column(
        "time" if name == "timestamp" else name,
        number,
        none="",
        rank=0 if name in _PLACE else 1,
        is_name=name in _NAMES,
        is_remark=name in (*_PAYLOAD, "headers") or name.startswith("_"),
    )


def _shown(name: str, value: Any) -> Any:
    """Return a cell of the table."""
    if name in _PAYLOAD:
        return shown_bytes(value)
    if name == "timestamp":
        return iso_time(value)
    if name == "headers":
        pairs = (f"{one['key']}={shown_bytes(one['value'])}" for one in value or ())
        return shown_bytes(", ".join(pairs).encode()) if value else "-"
    return value
