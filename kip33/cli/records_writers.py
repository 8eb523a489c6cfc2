"""Record batches as JSON, lines of JSON, CSV, a Parquet file, or a table for people."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from kip33.cli.output import Column, Row, Table, csv_cell, iso_time
from kip33.cli.standard_output import BASE64, header_field, shown_bytes, text_field
from kip33.formats.records import NO_TYPE

_ROWS_AT_ONCE: Final = 1_024  # are Python's values at one time
_GROUP_ROWS: Final = 1 << 17  # of a Parquet row group, at most
_GROUP_BYTES: Final = 1 << 26
_PAYLOAD: Final = ("key", "value")
_NAMES: Final = ("log_dir", "topic", "log_uri")  # of columns that name something
_PLACE: Final = ("partition", "offset", "timestamp")
_OF_SEGMENT: Final = ("log_dir", "topic", "partition", "base_offset")
_ERROR: Final = "decode_error"  # a value without it is JSON, in a batch with this column
_ON_ONE_LINE: Final = str.maketrans(
    {"\n": " ", "\r": " ", "\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
_encode = json.JSONEncoder().encode

Write = Callable[[str], object]


class RecordWriter(Protocol):
    """Takes record batches of one schema."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the records of a batch."""

    def finish(self, summary: Row) -> None:
        """Write what comes after the records."""


class JsonLines:
    """One object a record; bytes as `text_field` gives them, a timestamp in ms."""

    def __init__(self, write: Write) -> None:
        """Write texts with `write`."""
        self._write = write

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the records of a batch."""
        for objects in _json_objects(batch):
            self._write("\n".join([*objects, ""]))

    def finish(self, summary: Row) -> None:
        """Write nothing."""


class JsonObject:
    """An object with the records, as `JsonLines` writes them, and the summary."""

    def __init__(self, write: Write) -> None:
        """Write texts with `write`."""
        self._write, self._before = write, '{"records": ['

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the records of a batch."""
        for objects in _json_objects(batch):
            self._write(self._before + ", ".join(objects))
            self._before = ", "

    def finish(self, summary: Row) -> None:
        """End the list, and write the summary."""
        before = "" if self._before == ", " else self._before
        self._write(f'{before}], "summary": {json.dumps(summary)}}}\n')


class CsvLines:
    """A header, then one line a record; `key` and `value` each also have a column in base64."""

    def __init__(self, schema: pa.Schema, write: Write) -> None:
        """Write the header with `write`."""
        names = [
            column
            for name in schema.names
            for column in ((name, name + BASE64) if name in _PAYLOAD else (name,))
        ]
        self._names, self._write = names, write
        self._write(self._text([dict(zip(names, names, strict=True))]))

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the records of a batch."""
        for rows in _pieces(batch):
            self._write(self._text([_csv_row(row) for row in rows]))

    def finish(self, summary: Row) -> None:
        """Write nothing."""

    def _text(self, rows: Sequence[dict[str, Any]]) -> str:
        text = io.StringIO()
        csv.DictWriter(text, self._names, lineterminator="\n").writerows(rows)
        return text.getvalue()


class ParquetRecords:
    """A Parquet file; a row group is written as soon as it has enough rows or bytes."""

    def __init__(self, schema: pa.Schema, file: BinaryIO) -> None:
        """Write to an open file, which stays open."""
        self._writer = pq.ParquetWriter(file, schema, compression="zstd")
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the records of a batch."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._flush()

    def finish(self, summary: Row) -> None:
        """Write the rest and the footer."""
        self._flush()
        self._writer.close()

    def end(self) -> None:
        """Keep pyarrow from writing a footer later, after an error."""
        self._writer.is_open = False

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._batches, self._schema))
        self._batches = []
        self._rows = self._bytes = 0


class ShownTable:
    """Collects records for a table; `finish` prints it."""

    def __init__(self, schema: pa.Schema) -> None:
        """Show these columns."""
        self._names = schema.names
        self._rows: list[list[Any]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep the cells of records."""
        for rows in _pieces(batch):
            self._rows += [[_shown(name, row[name]) for name in self._names] for row in rows]

    def finish(self, summary: Row) -> None:
        """Print the table."""
        columns = [_column(name, number) for number, name in enumerate(self._names)]
        Table(columns, self._rows, most=None).print()


@contextmanager
def file_writer(output_format: str, schema: pa.Schema, file: BinaryIO) -> Iterator[RecordWriter]:
    """Yield what writes records to a file."""

    def write(text: str) -> None:
        file.write(text.encode())

    if output_format == "parquet":
        parquet = ParquetRecords(schema, file)
        try:
            yield parquet
        finally:
            parquet.end()
    else:
        yield text_writer(output_format, schema, write)


def text_writer(output_format: str, schema: pa.Schema, write: Write) -> RecordWriter:
    """Return what writes records as json, jsonl or csv."""
    match output_format:
        case "json":
            return JsonObject(write)
        case "jsonl":
            return JsonLines(write)
    return CsvLines(schema, write)


def _json_objects(batch: pa.RecordBatch) -> Iterator[list[str]]:
    """Yield the objects of some records at a time."""
    for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
        piece = batch.slice(start, _ROWS_AT_ONCE)
        columns = [_json_fields(name, piece) for name in piece.schema.names]
        yield [f"{{{fields}}}" for fields in map(", ".join, zip(*columns, strict=True))]


def _pieces(batch: pa.RecordBatch) -> Iterator[list[dict[str, Any]]]:
    """Yield some rows at a time as Python's values; a timestamp is an integer."""
    for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
        piece = batch.slice(start, _ROWS_AT_ONCE)
        columns = [
            _values(name, column)
            for name, column in zip(piece.schema.names, piece.columns, strict=True)
        ]
        names = piece.schema.names
        yield [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _values(name: str, column: "pa.Array[Any]") -> list[Any]:
    """Return a column's values; a timestamp is an integer, and no type of one is None."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values = column.to_pylist()
    return (
        [None if one == NO_TYPE else one for one in values] if name == "timestampType" else values
    )


def _json(value: Any) -> str:
    """Return `json.dumps(value)`, faster for the values that most columns have."""
    if value is None:
        return "null"
    return str(value) if type(value) is int else _encode(value)


def _json_fields(name: str, batch: pa.RecordBatch) -> list[str]:
    """Return a field of each row's JSON object, a column at a time, which takes half the time."""
    column: pa.Array[Any] = batch.column(name)
    if name in _OF_SEGMENT:  # a batch has rows of one segment
        return [f'"{name}": {_json(column[0].as_py())}'] * len(column)
    if name == "value" and _ERROR in batch.schema.names:
        return [*map(_decoded_field, column.to_pylist(), batch.column(_ERROR).to_pylist())]
    if name in _PAYLOAD:
        try:
            texts = column.cast(pa.string()).to_pylist()
        except pa.ArrowInvalid:
            pairs = (text_field(name, data) for data in column.to_pylist())
            return [f'"{field}": {_json(text)}' for field, text in pairs]
        return [f'"{name}": {_json(text)}' for text in texts]
    values = _values(name, column)
    if name == "headers":
        values = [value and [header_field(header) for header in value] for value in values]
    return [f'"{name}": {_json(value)}' for value in values]


def _decoded_field(data: bytes | None, error: str | None) -> str:
    """Return a field `value` with JSON as it is; what was not decoded as `text_field` gives it."""
    if error is None and data is not None:
        return f'"value": {data.decode().translate(_ON_ONE_LINE)}'
    field, text = text_field("value", data)
    return f'"{field}": {_json(text)}'


def _json_row(row: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        if name in _PAYLOAD:
            field, text = text_field(name, value)
            found[field] = text
        elif name == "headers" and value is not None:
            found[name] = [header_field(header) for header in value]
        else:
            found[name] = value
    return found


def _csv_row(row: dict[str, Any]) -> dict[str, Any]:
    found = _json_row(row)
    if found.get("headers") is not None:
        found["headers"] = json.dumps(found["headers"])
    return {name: csv_cell(value) for name, value in found.items()}


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
