"""The answer of `kip33 records`: to standard output, or to a new file.

With --decode, values are JSON text, or in Parquet have the type of one schema.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import click
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.output_files import require_free
from kip33.cli.engine_option import leave_pandas_out
from kip33.cli.options import publish_summary
from kip33.cli.output import MOST_TABLE_ROWS, counted, human_bytes, print_result, warn
from kip33.cli.progress import progress_line
from kip33.cli.records_options import ON_ERROR_FAILS, RecordsCommand
from kip33.cli.records_writers import (
    RecordWriter,
    ShownTable,
    file_writer,
    text_writer,
)
from kip33.cli.standard_output import exact_output
from kip33.errors import LocationError, without_secrets
from kip33.formats.names import parse_partition_dir
from kip33.records.columns import CORRUPT, UNDECIDED, chosen
from kip33.records.decode import decode
from kip33.records.reading import Reading
from kip33.records.record_request import LogsRead
from kip33.records.schemas import SCHEMAS_TOPIC, Schemas
from kip33.stores.locations import Location
from kip33.stores.own_files import streamed_file
from kip33.stores.progress import OnProgress, Phase, Progress, tell_nobody

MOST_DAMAGE_WARNINGS: Final = 20  # about what cannot be read
_IN_TABLE: Final = ("topic", "partition", "offset", "timestamp", "key", "value")
_FILES: Final = ("json", "jsonl", "csv", "parquet")
_NO_BYTES: Final = pa.scalar(None, pa.binary())
_SEGMENT: Final = ("log_dir", "topic", "partition", "base_offset")
_PAYLOAD: Final = ("key", "value")
Summary: TypeAlias = Callable[[], dict[str, Any]]


def show_records(request: RecordsCommand) -> None:
    """Print or write the records that the options select."""
    leave_pandas_out()
    started = time.monotonic()
    output_format = _format_of(request)
    is_table = output_format == "table"
    limit = min(request.limit or MOST_TABLE_ROWS, MOST_TABLE_ROWS) if is_table else request.limit
    if request.output is not None:
        require_free(Location.of(request.output), "--output")
    selection = RecordSelection(request, _IN_TABLE if is_table else None, limit)
    batches = selection.read(MOST_DAMAGE_WARNINGS)
    decoding = _decoding(request, selection, output_format) if request.decode else None

    @cache
    def summary() -> dict[str, Any]:
        return _result(selection, decoding, request.output, time.monotonic() - started)

    try:
        if decoding:
            batches = decoding.of(batches)
        if request.output is None:
            _print(batches, selection, output_format, summary)
        else:
            _write(batches, selection, output_format, Location.of(request.output), summary)
    except ModuleNotFoundError as error:  # of the extra `schemas`
        raise click.ClickException(str(error)) from None
    warn_of_damage(selection.problems, selection.damaged)
    if selection.logs.unreadable:
        warn(selection.logs.unreadable_text())
    publish_summary(request.summary_file, summary())
    if is_table and limit != request.limit and selection.records >= MOST_TABLE_ROWS:
        click.echo(f"a table ends after {MOST_TABLE_ROWS:,} records; --format jsonl has all")
    if is_table or request.output is not None:
        _print_summary(selection, decoding, summary()["seconds"])
    print_result(summary())


class RecordSelection:
    """Reads the selected records; `records` and the other numbers are counted meanwhile.

    `undecided` of the records may be of aborted transactions; None if these were not left out.
    `topics` are those of the partitions that are read, None for an unknown one.
    """

    def __init__(
        self, request: RecordsCommand, default_columns: Sequence[str] | None, limit: int | None
    ) -> None:
        """Choose the columns; ValueError, one line, for an unknown one. `limit`: None or rows."""
        self._request = request
        self._reading = Reading.of(**request.read)
        names = self._reading.schema.names
        if wanted := request.shown_columns or default_columns:
            problems = [name for name in names if name.startswith("_")]
            names = list(dict.fromkeys([*wanted, *problems]))
        self._schema = chosen(self._reading.schema, names)
        self._limit, self._rows = limit, 0
        self.records = self.payload_bytes = self.damaged = 0
        self.undecided = 0 if UNDECIDED in self._reading.schema.names else None
        self.problems: list[str] = []  # the first of them, unless they are rows
        self.topics: set[str | None] = set()
        self.logs = LogsRead()
        self._segments: set[tuple[Any, ...]] = set()

    @property
    def segments(self) -> int:
        """Return how many segments had records between the times."""
        return len(self._segments)

    def read(self, most_problems: int) -> pa.RecordBatchReader:
        """Return the selected records until the limit; keep the first `most_problems` lines."""
        skipped: list[str] = []
        partitions = self._reading.partitions(
            self._request.source, warn=warn, choice=ON_ERROR_FAILS
        )
        self.topics = {segments[0].topic for segments in partitions}
        reading = self._reading.with_columns(self._columns_to_read())
        reader = reading.read(partitions, skipped, self.logs)
        batches = self._batches(reader, skipped, most_problems)
        return pa.RecordBatchReader.from_batches(self._schema, batches)

    def _batches(
        self, reader: pa.RecordBatchReader, skipped: list[str], most_problems: int
    ) -> Iterator[pa.RecordBatch]:
        try:
            for batch in reader:
                self._count_problems(skipped, most_problems)
                found = self._selected(batch)
                if found.num_rows:
                    self._rows += found.num_rows
                    yield found
                if self._rows == self._limit:
                    return
            self._count_problems(skipped, most_problems)
            self.logs.require_one()
        finally:
            reader.close()

    def _columns_to_read(self) -> list[str]:
        """Return the columns to show, those of the filter, and those that name the segment."""
        filtered = _PAYLOAD if self._request.grep is not None else ()
        by_key = ("key",) if self._request.where_key is not None else ()
        return list(dict.fromkeys((*self._schema.names, *filtered, *by_key, *_SEGMENT)))

    def _count_problems(self, skipped: list[str], most: int) -> None:
        self.damaged += len(skipped)
        self.problems += skipped[: most - len(self.problems)]
        skipped.clear()

    def _selected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the selected records of a batch, with the columns to show."""
        is_corrupt = batch.column(CORRUPT).is_valid() if CORRUPT in batch.schema.names else None
        if is_corrupt is not None and pc.any(is_corrupt).as_py():  # one row that is no record
            self.damaged += 1
            return batch.select(self._schema.names)
        if batch.num_rows:
            self._segments.add(tuple(batch.column(name)[0].as_py() for name in _SEGMENT))
        batch = self._matching(batch)
        if self._limit is not None:
            batch = batch.slice(0, self._limit - self._rows)
        batch = batch.select(self._schema.names)
        self.records += batch.num_rows
        if self.undecided is not None:
            self.undecided += batch.num_rows - batch.column(UNDECIDED).null_count
        for name in set(_PAYLOAD) & set(batch.schema.names):
            self.payload_bytes += pc.sum(pc.binary_length(batch.column(name))).as_py() or 0
        return batch

    def _matching(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        where_key, grep = self._request.where_key, self._request.grep
        if where_key is not None:
            wanted = pa.scalar(where_key.encode(), pa.binary())
            batch = batch.filter(pc.equal(batch.column("key"), wanted))
        if grep is not None:
            found = [
                pc.fill_null(pc.match_substring(batch.column(name), grep.encode()), False)
                for name in _PAYLOAD
            ]
            batch = batch.filter(pc.or_(*found))
        return batch


def _decoding(
    request: RecordsCommand, selection: RecordSelection, output_format: str
) -> "_ValueDecoding":
    """Return what decodes the values; errors as those of `kip33.Schemas`."""
    schemas = _schemas_of(request.source, request.schemas, layout=request.read["layout"])
    return _ValueDecoding(schemas, selection.topics, to_columns=output_format == "parquet")


def _result(
    selection: RecordSelection,
    decoding: "_ValueDecoding | None",
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
    batches: pa.RecordBatchReader,
    selection: RecordSelection,
    output_format: str,
    summary: Summary,
) -> None:
    """Write records to standard output."""

    def write(text: str) -> None:
        click.echo(text, exact_output(), nl=False, color=True)  # with its control characters

    if output_format == "table":
        table = ShownTable(batches.schema)
        with progress_line("records") as on_progress:
            _take(batches, table, selection, on_progress)
        table.finish(summary())
    else:
        writer = text_writer(output_format, batches.schema, write)
        if sys.stdout.isatty():
            _take(batches, writer, selection, tell_nobody)
        else:
            with progress_line("records") as on_progress:
                _take(batches, writer, selection, on_progress)
        writer.finish(summary())


def _write(
    batches: pa.RecordBatchReader,
    selection: RecordSelection,
    output_format: str,
    place: Location,
    summary: Summary,
) -> None:
    """Write records to a new file."""
    with (
        progress_line("records") as on_progress,
        streamed_file(place) as file,
        file_writer(output_format, batches.schema, file) as writer,
    ):
        _take(batches, writer, selection, on_progress)
        writer.finish(summary())


def _take(
    batches: pa.RecordBatchReader,
    writer: RecordWriter,
    selection: RecordSelection,
    on_progress: OnProgress,
) -> None:
    for batch in batches:
        writer.write(batch)
        on_progress(Progress(Phase.READING_LOGS, selection.records, unit="record"))


def warn_of_damage(problems: Sequence[str], damaged: int) -> None:
    """Print the first problems, each on one line, and how many more there are."""
    for problem in problems:
        warn(problem)
    if damaged > len(problems) > 0:
        warn(f"and {damaged - len(problems):,} more places that cannot be read")


def _print_summary(
    selection: RecordSelection, decoding: "_ValueDecoding | None", seconds: float
) -> None:
    undecoded = decoding.undecoded if decoding else 0
    click.echo(
        f"{counted(selection.records, 'record')} of {counted(selection.segments, 'segment')}, "
        f"{human_bytes(selection.payload_bytes)} of keys and values; "
        f"{problems_text(selection.damaged, selection.undecided, undecoded)}"
        f"read in {seconds:.1f} s"
    )


def problems_text(damaged: int, undecided: int | None, undecoded: int = 0) -> str:
    """Return how much cannot be read, is of unknown outcome or cannot be decoded; empty for 0."""
    found = (
        (damaged, "place", "cannot be read"),
        (undecided, "record", "may be of aborted transactions"),
        (undecoded, "value", "cannot be decoded"),
    )
    return "".join(f"{counted(number, what)} {why}; " for number, what, why in found if number)


def _schemas_of(source: str, place: str | None, *, layout: str) -> Schemas:
    """Return the schemas in the place of --schemas, by default those of SOURCE itself."""
    if place is not None:
        return Schemas.of(place, layout=layout)
    given = Location.of(source)
    try:
        if given.name.endswith(".log") or parse_partition_dir(given.name):
            raise LocationError(f"{given.uri}: has no topic {SCHEMAS_TOPIC}")
        return Schemas.from_archive(source, layout=layout)
    except LocationError as error:
        raise LocationError(
            f"--decode: {error}; give --schemas an archive, a directory of schemas or a registry's "
            "URL"
        ) from None


class _ValueDecoding:
    """Decodes the values of records; `undecoded` counts those that cannot be decoded."""

    def __init__(self, schemas: Schemas, topics: set[str | None], *, to_columns: bool) -> None:
        """Choose JSON text, or a column of the one schema that values of these topics have.

        `to_columns` is for Parquet; it keeps the bytes that cannot be decoded in `value_bytes`.
        """
        self._schemas, self._to_columns = schemas, to_columns
        self._reader_schema = _one_schema(schemas, topics) if to_columns else None
        self.undecoded = 0

    def of(self, records: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """Return records whose `value` is decoded, with `schema_id` and `decode_error` after it.

        JSON text is binary, because a value that cannot be decoded keeps its bytes.
        """
        decoded = decode(
            records,
            self._schemas,
            reader_schema=self._reader_schema,
            as_json=self._reader_schema is None,
        )
        schema = self._schema(records.schema, decoded.schema.field("decoded").type)
        return pa.RecordBatchReader.from_batches(schema, self._batches(decoded, schema))

    def _schema(self, schema: pa.Schema, kind: pa.DataType) -> pa.Schema:
        place = schema.get_field_index("value")
        added = [
            pa.field("value", kind if self._to_columns else pa.binary()),
            pa.field("schema_id", pa.int32()),
            pa.field("decode_error", pa.string()),
            *([pa.field("value_bytes", pa.binary())] if self._to_columns else []),
        ]
        fields = list(schema)
        return pa.schema([*fields[:place], *added, *fields[place + 1 :]])

    def _batches(
        self, decoded: pa.RecordBatchReader, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        for batch in decoded:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            sent, found = columns["value"], columns["decoded"]
            is_wrong = columns["decode_error"].is_valid()
            self.undecoded += pc.sum(is_wrong).as_py() or 0
            if self._to_columns:
                columns["value"] = found
                columns["value_bytes"] = pc.if_else(is_wrong, sent, _NO_BYTES)
            else:
                columns["value"] = pc.if_else(is_wrong, sent, found.cast(pa.binary()))
            yield pa.RecordBatch.from_arrays(
                [columns[name] for name in schema.names], schema=schema
            )


def _one_schema(schemas: Schemas, topics: set[str | None]) -> int | None:
    """Return the id of the schema whose type all values get, None if there is no such schema."""
    schema_id = schemas.only()
    if schema_id is not None or len(topics) != 1 or None in topics:
        return schema_id
    [topic] = topics
    return schemas.newest(f"{topic}-value")
