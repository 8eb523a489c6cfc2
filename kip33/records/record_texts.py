"""Record batches as JSON, lines of JSON, CSV, or a Parquet file."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, Protocol

import pyarrow as pa

from kip33.formats.printed_fields import BASE64, csv_line, header_field, json_text, text_field
from kip33.formats.records import NO_TYPE
from kip33.formats.times import iso_time
from kip33.records.parquet_records import ParquetRecords

TEXTS: Final = ("json", "jsonl", "csv")  # of FORMATS
_PAYLOAD: Final = ("key", "value")
_OF_SEGMENT: Final = ("log_dir", "topic", "partition", "base_offset")
_ERROR: Final = "decode_error"  # a value without it is JSON, in a batch with this column
_ON_ONE_LINE: Final = str.maketrans(
    {"\n": " ", "\r": " ", "\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
Write = Callable[[str], object]


class RecordWriter(Protocol):
    """Takes record batches of one schema, or their texts."""

    def write(self, records: Any) -> None:
        """Write some records."""

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write what comes after the records."""


def record_text(
    output_format: str, batch: pa.RecordBatch, *, times: str, guard_formulas: bool
) -> pa.Buffer:
    """Return some records as text in UTF-8, without what stands before and after them.

    In `TEXTS`, bytes are as `text_field` gives them, a timestamp is in ms, or with `times` "iso" in
    ISO 8601. `guard_formulas` is of csv. As a buffer a text is not copied on its way from a worker.
    """
    if times == "iso":
        batch = _with_iso_times(batch)
    if output_format == "csv":
        rows = zip(*_csv_columns(batch), strict=True)
        text = "".join(f"{csv_line(row, guard_formulas=guard_formulas)}\n" for row in rows)
    elif output_format == "jsonl":
        text = "\n".join([*_json_objects(batch), ""])
    else:
        text = ", ".join(_json_objects(batch))
    return pa.py_buffer(text.encode())


class RecordTexts:
    """Takes the texts of `record_text`, and writes what stands around them.

    `json` is an object with the records and the summary. `csv` begins with a header, in which key
    and value each also have a column in base64.
    """

    def __init__(self, output_format: str, schema: pa.Schema, write: Write) -> None:
        """Write the header with `write`."""
        self._is_json, self._write = output_format == "json", write
        self._before = '{"records": [' if self._is_json else ""
        if output_format == "csv":
            write(f"{csv_line(_csv_names(schema.names))}\n")

    def write(self, text: pa.Buffer) -> None:
        """Write the text of records."""
        self._write(self._before + str(text, "utf-8"))
        self._before = ", " if self._is_json else ""

    def finish(self, summary: Mapping[str, Any]) -> None:
        """End the list of json, and write the summary."""
        if self._is_json:
            before = "" if self._before == ", " else self._before
            self._write(f'{before}], "summary": {json_text(summary)}}}\n')


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
        yield RecordTexts(output_format, schema, write)


def _with_iso_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose times are texts."""
    columns = [
        pa.array(map(iso_time, one.cast(pa.int64()).to_pylist()), pa.string()) if is_time else one
        for one, is_time in ((one, pa.types.is_timestamp(one.type)) for one in batch.columns)
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _json_objects(batch: pa.RecordBatch) -> list[str]:
    columns = [_json_fields(name, batch) for name in batch.schema.names]
    return [f"{{{fields}}}" for fields in map(", ".join, zip(*columns, strict=True))]


def _csv_names(names: Sequence[str]) -> list[str]:
    return [
        column
        for name in names
        for column in ((name, name + BASE64) if name in _PAYLOAD else (name,))
    ]


def _csv_columns(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    """Yield the cells of each column of `_csv_names`."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = _values(name, column)
        if name in _PAYLOAD:
            fields = [text_field(name, data) for data in values]
            for shown in (name, name + BASE64):
                yield [text if field == shown else None for field, text in fields]
        elif name == "headers":
            yield [None if one is None else json_text(one) for one in _header_fields(values)]
        else:
            yield values


def rows_of_batch(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return records as Python's values; a timestamp is an integer."""
    names = batch.schema.names
    columns = [_values(name, column) for name, column in zip(names, batch.columns, strict=True)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _values(name: str, column: "pa.Array[Any]") -> list[Any]:
    """Return a column's values; a timestamp is an integer, and no type of one is None."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values = column.to_pylist()
    return (
        [None if one == NO_TYPE else one for one in values] if name == "timestampType" else values
    )


def _header_fields(values: Sequence[Any]) -> list[Any]:
    return [value and [header_field(header) for header in value] for value in values]


def _json(value: Any) -> str:
    """Return `json_text(value)`, faster for the values that most columns have."""
    if value is None:
        return "null"
    return str(value) if type(value) is int else json_text(value)


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
        values = _header_fields(values)
    return [f'"{name}": {_json(value)}' for value in values]


def _decoded_field(data: bytes | None, error: str | None) -> str:
    """Return a field `value` with JSON as it is; what was not decoded as `text_field` gives it."""
    if error is None and data is not None:
        return f'"value": {data.decode().translate(_ON_ONE_LINE)}'
    field, text = text_field("value", data)
    return f'"{field}": {_json(text)}'
