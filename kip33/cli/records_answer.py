"""The answer of `kip33 records`: to standard output, or to a new file."""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

import click
import pyarrow as pa

from kip33.archive.output_files import require_free
from kip33.cli.output import MOST_TABLE_ROWS, RESULT, human_bytes, warn
from kip33.cli.pandas_free import leave_pandas_out
from kip33.cli.progress import ProgressBar, progress_bar
from kip33.cli.records_options import RecordsRequest
from kip33.cli.records_selection import RecordSelection
from kip33.cli.records_writers import (
    RecordWriter,
    ShownTable,
    file_writer,
    text_writer,
)
from kip33.cli.standard_output import exact_output
from kip33.stores.locations import Location, without_secrets
from kip33.stores.own_files import streamed_file

if TYPE_CHECKING:
    from kip33.cli.records_decoding import ValueDecoding

MOST_DAMAGE_WARNINGS: Final = 20  # about what cannot be read
_IN_TABLE: Final = ("topic", "partition", "offset", "timestamp", "key", "value")
_FILES: Final = ("jsonl", "csv", "parquet")


def show_records(request: RecordsRequest) -> None:
    """Print or write the records that the options select."""
    leave_pandas_out()
    started = time.monotonic()
    request.check()
    output_format = _format_of(request)
    is_table = output_format == "table"
    limit = min(request.limit or MOST_TABLE_ROWS, MOST_TABLE_ROWS) if is_table else request.limit
    if request.output is not None:
        require_free(Location.of(request.output), "--output")
    selection = RecordSelection(request, _IN_TABLE if is_table else None, limit)
    batches = selection.read(MOST_DAMAGE_WARNINGS)
    decoding = _decoding(request, selection, output_format) if request.decode else None
    try:
        if decoding:
            batches = decoding.of(batches)
        if request.output is None:
            _print(batches, selection, output_format)
        else:
            _write(batches, selection, output_format, Location.of(request.output))
    except ModuleNotFoundError as error:  # of the extra `schemas`
        raise click.ClickException(str(error)) from None
    warn_of_damage(selection.problems, selection.damaged)
    if selection.logs.unreadable:
        warn(selection.logs.unreadable_text())
    seconds = time.monotonic() - started
    if is_table and limit != request.limit and selection.records >= MOST_TABLE_ROWS:
        click.echo(f"a table ends after {MOST_TABLE_ROWS:,} records; --format jsonl has all")
    if is_table or request.output is not None:
        _print_summary(selection, decoding, seconds)
    if not is_table:
        result = _result(selection, decoding, request.output, seconds)
        click.echo(RESULT + json.dumps(result), err=request.output is None)


def _decoding(
    request: RecordsRequest, selection: RecordSelection, output_format: str
) -> "ValueDecoding":
    """Return what decodes the values; errors as those of `kip33.Schemas`."""
    from kip33.cli.records_decoding import ValueDecoding, schemas_of

    schemas = schemas_of(request.source, request.schemas, layout=request.layout)
    return ValueDecoding(schemas, selection.topics, to_columns=output_format == "parquet")


def _result(
    selection: RecordSelection,
    decoding: "ValueDecoding | None",
    output: str | None,
    seconds: float,
) -> dict[str, Any]:
    return {
        "output": output and Location.of(output).uri,
        "records": selection.records,
        "payload_bytes": selection.payload_bytes,
        "segments": selection.segments,
        "damaged": selection.damaged,
        **({} if selection.undecided is None else {"undecided": selection.undecided}),
        **({"undecoded": decoding.undecoded} if decoding else {}),
        "seconds": round(seconds, 3),
    }


def _format_of(request: RecordsRequest) -> str:
    """Return the format; UsageError, one line, for options that contradict each other."""
    wanted = request.output_format
    context = click.get_current_context()
    if request.output is None:
        if wanted == "parquet":
            raise click.UsageError("--format parquet requires --output FILE", context)
        return wanted or "table"
    ending = request.output.rpartition(".")[2]
    if ending not in _FILES:
        raise click.UsageError(
            f"--output: {without_secrets(request.output)!r} found, expected a name that ends in "
            + " or ".join(f".{name}" for name in _FILES),
            context,
        )
    if wanted not in (None, ending):
        raise click.UsageError(
            f"--format {wanted} contradicts --output, whose name ends in .{ending}", context
        )
    return ending


def _print(batches: pa.RecordBatchReader, selection: RecordSelection, output_format: str) -> None:
    """Write records to standard output."""

    def write(text: str) -> None:
        click.echo(text, exact_output(), nl=False, color=True)  # with its control characters

    if output_format == "table":
        table = ShownTable(batches.schema)
        with progress_bar("records") as bar:
            _take(batches, table, selection, bar)
        table.finish()
    else:
        writer = text_writer(output_format, batches.schema, write)
        with nullcontext() if sys.stdout.isatty() else progress_bar("records") as bar:
            _take(batches, writer, selection, bar)


def _write(
    batches: pa.RecordBatchReader, selection: RecordSelection, output_format: str, place: Location
) -> None:
    """Write records to a new file."""
    with (
        progress_bar("records") as bar,
        streamed_file(place) as file,
        file_writer(output_format, batches.schema, file) as writer,
    ):
        _take(batches, writer, selection, bar)


def _take(
    batches: pa.RecordBatchReader,
    writer: RecordWriter,
    selection: RecordSelection,
    bar: ProgressBar | None,
) -> None:
    for batch in batches:
        writer.write(batch)
        if bar:
            bar.counted(selection.records)


def warn_of_damage(problems: Sequence[str], damaged: int) -> None:
    """Print the first problems, each on one line, and how many more there are."""
    for problem in problems:
        warn(problem)
    if damaged > len(problems) > 0:
        warn(f"and {damaged - len(problems):,} more places that cannot be read")


def _print_summary(
    selection: RecordSelection, decoding: "ValueDecoding | None", seconds: float
) -> None:
    records = f"{selection.records:,} record{'' if selection.records == 1 else 's'}"
    segments = f"{selection.segments:,} segment{'' if selection.segments == 1 else 's'}"
    size = human_bytes(selection.payload_bytes)
    click.echo(
        f"{records} of {segments}, {size} of keys and values; {damage_text(selection.damaged)}"
        f"{undecided_text(selection.undecided)}"
        f"{_undecoded_text(decoding.undecoded) if decoding else ''}read in {seconds:.1f} s"
    )


def _undecoded_text(undecoded: int) -> str:
    if not undecoded:
        return ""
    return f"{undecoded:,} value{'' if undecoded == 1 else 's'} cannot be decoded; "


def undecided_text(undecided: int | None) -> str:
    """Return how many records may be of aborted transactions, for a summary; empty for 0."""
    if not undecided:
        return ""
    return f"{undecided:,} record{'' if undecided == 1 else 's'} may be of aborted transactions; "


def damage_text(damaged: int) -> str:
    """Return how many places cannot be read, for a summary; empty for 0."""
    if not damaged:
        return ""
    return f"{damaged:,} place{'' if damaged == 1 else 's'} cannot be read; "
