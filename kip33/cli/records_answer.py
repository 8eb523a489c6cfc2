"""The answer of `kip33 records`: to standard output, or to a new file."""

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict
from functools import cache, partial
from typing import Any, Final, TypeAlias

import click
import pyarrow as pa

from kip33.archive.output_files import require_free
from kip33.cli.engine_option import open_engine
from kip33.cli.options import publish_summary
from kip33.cli.output import (
    MOST_TABLE_ROWS,
    Output,
    Table,
    counted,
    facts,
    human_bytes,
    print_result,
    show,
    some,
    warn,
)
from kip33.cli.progress import progress_line
from kip33.cli.records_options import RecordsCommand, problems_text
from kip33.cli.records_selection import RecordSelection, ValueDecoding
from kip33.cli.records_writers import (
    TEXTS,
    RecordTexts,
    RecordWriter,
    ShownTable,
    file_writer,
    record_text,
)
from kip33.cli.standard_output import exact_output
from kip33.errors import without_secrets
from kip33.records.record_request import MOST_PROBLEMS, problem_lines
from kip33.stores.locations import Location
from kip33.stores.own_files import streamed_file
from kip33.stores.progress import OnProgress, Phase, Progress, tell_nobody

_IN_TABLE: Final = ("topic", "partition", "offset", "timestamp", "key", "value")
_FILES: Final = ("json", "jsonl", "csv", "parquet")
Summary: TypeAlias = Callable[[], dict[str, Any]]


def show_records(request: RecordsCommand) -> None:
    """Print or write the records that the options select."""
    started = time.monotonic()
    output_format = _format_of(request)
    is_table = output_format == "table"
    limit = min(request.limit or MOST_TABLE_ROWS, MOST_TABLE_ROWS) if is_table else request.limit
    if request.output is not None:
        require_free(Location.of(request.output), "--output")
    selection = RecordSelection(request, _IN_TABLE if is_table else None, limit)
    schema, decoding = selection.schema, None

    @cache
    def summary() -> dict[str, Any]:
        return _result(selection, request, time.monotonic() - started)

    try:
        if request.decode:
            is_parquet = output_format == "parquet"
            decoding = ValueDecoding(
                request, selection.source, selection.topics, to_columns=is_parquet
            )
            schema = decoding.schema(schema)
        text_of = partial(record_text, output_format) if output_format in TEXTS else None
        with closing(selection.read(MOST_PROBLEMS, decoding, text_of)) as shown:
            if request.output is None:
                _print(shown, schema, selection, output_format, summary)
            else:
                place = Location.of(request.output)
                _write(shown, schema, selection, output_format, place, summary)
    except ModuleNotFoundError as error:  # of the extra `schemas`
        raise click.ClickException(str(error)) from None
    for line in problem_lines(selection.problems, selection.damaged):
        warn(line)
    if selection.logs.unreadable:
        warn(selection.logs.unreadable_text())
    publish_summary(request.summary_file, summary())
    if is_table and limit != request.limit and selection.records >= MOST_TABLE_ROWS:
        click.echo(f"a table ends after {MOST_TABLE_ROWS:,} records; --format jsonl has all")
    if is_table or request.output is not None:
        _print_summary(selection, summary()["seconds"])
    print_result(summary())


def add_records(request: RecordsCommand) -> None:
    """Add the new records to the folder of `--to`."""
    from kip33.records.written_records import WriteRequest, write_new_records

    assert request.to is not None
    started = time.time()
    read = request.read
    if request.shown_columns:
        read = {**read, "columns": request.shown_columns}
    places = [request.source, *([request.remote] if request.remote else [])]
    with progress_line("records") as on_progress:
        engine = open_engine(request.engine, on_progress)
        asked = WriteRequest.of(places, request.to, **read)
        written = write_new_records(asked, engine, now_ms=int(started * 1000), warn=warn)
    for line in problem_lines(written.problems, written.damaged):
        warn(line)
    record = asdict(written) | {
        "engine": engine.name,
        "workers": engine.workers,
        "seconds": round(time.time() - started, 3),
    }
    del record["problems"]
    publish_summary(request.summary_file, record)
    page = [_facts_of_files(record)]
    show(Output(page=page, summary=record), request.output_format or "table")


def _facts_of_files(record: dict[str, Any]) -> Table:
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


def _result(selection: RecordSelection, request: RecordsCommand, seconds: float) -> dict[str, Any]:
    return {
        "output": request.output and Location.of(request.output).uri,
        "records": selection.records,
        "payload_bytes": selection.payload_bytes,
        "segments": selection.segments,
        "damaged": selection.damaged,
        **({} if selection.undecided is None else {"undecided": selection.undecided}),
        **({"undecoded": selection.undecoded} if request.decode else {}),
        "seconds": round(seconds, 3),
    }


def _format_of(request: RecordsCommand) -> str:
    """Return the format; UsageError, one line, for options that contradict each other."""
    wanted = request.output_format
    if request.output is None:
        if wanted == "parquet":
            raise click.UsageError("--format parquet requires --output FILE")
        return wanted or "table"
    ending = request.output.rpartition(".")[2]
    if ending not in _FILES:
        raise click.UsageError(
            f"--output: {without_secrets(request.output)!r} found, expected a name that ends in "
            + " or ".join(f".{name}" for name in _FILES)
        )
    if wanted not in (None, ending):
        raise click.UsageError(
            f"--format {wanted} contradicts --output, whose name ends in .{ending}"
        )
    return ending


def _print(
    shown: Iterable[Any],
    schema: pa.Schema,
    selection: RecordSelection,
    output_format: str,
    summary: Summary,
) -> None:
    """Write records to standard output."""

    def write(text: str) -> None:
        click.echo(text, exact_output(), nl=False, color=True)  # with its control characters

    if output_format == "table":
        table = ShownTable(schema)
        with progress_line("records") as on_progress:
            _take(shown, table, selection, on_progress)
        table.finish(summary())
    else:
        writer = RecordTexts(output_format, schema, write)
        if sys.stdout.isatty():
            _take(shown, writer, selection, tell_nobody)
        else:
            with progress_line("records") as on_progress:
                _take(shown, writer, selection, on_progress)
        writer.finish(summary())


def _write(
    shown: Iterable[Any],
    schema: pa.Schema,
    selection: RecordSelection,
    output_format: str,
    place: Location,
    summary: Summary,
) -> None:
    """Write records to a new file."""
    with (
        progress_line("records") as on_progress,
        streamed_file(place) as file,
        file_writer(output_format, schema, file) as writer,
    ):
        _take(shown, writer, selection, on_progress)
        writer.finish(summary())


def _take(
    shown: Iterable[Any],
    writer: RecordWriter,
    selection: RecordSelection,
    on_progress: OnProgress,
) -> None:
    for records in shown:
        writer.write(records)
        on_progress(Progress(Phase.READING_LOGS, selection.records, unit="record"))


def _print_summary(selection: RecordSelection, seconds: float) -> None:
    click.echo(
        f"{counted(selection.records, 'record')} of {counted(selection.segments, 'segment')}, "
        f"{human_bytes(selection.payload_bytes)} of keys and values; "
        f"{problems_text(selection.damaged, selection.undecided, selection.undecoded)}"
        f"read in {seconds:.1f} s"
    )
