"""`kip33.decode`: values by Avro, JSON Schema or Protobuf to columns."""

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.errors import Kip33Error
from kip33.records.avro_values import AvroValues
from kip33.records.json_values import JsonValues
from kip33.records.protobuf_values import ProtobufValues
from kip33.records.schema_text import SchemaKind, SchemaText, UndecodableError, cut, split_value
from kip33.records.schemas import Schemas
from kip33.stores.filesystem_option import Filesystem, StorageOptions

_Values: TypeAlias = AvroValues | JsonValues | ProtobufValues
Records = TypeVar("Records", pa.Table, pa.RecordBatchReader)

_MOST_ROWS: Final = 4096  # that are decoded at once
_MOST_BYTES: Final = 1 << 20  # of values that are decoded at once, unless one has more
_ADVICE: Final = "pass reader_schema= with an id or a subject, or as_json=True"


def decode(  # parameters: each says what is decoded, by which schema, or where schemas are
    records: Records,
    schemas: Schemas | str | os.PathLike[str],
    *,
    column: str = "value",
    reader_schema: int | str | None = None,
    message: str | None = None,
    as_json: bool = False,
    prefix: str = "",
    layout: str = "kafka",
    storage_options: StorageOptions | None = None,
    filesystem: Filesystem | None = None,
) -> Records:
    """Return the table or reader with three more columns: `decoded`, `schema_id`, `decode_error`.

    >>> from kip33 import read_arrow
    >>> rows = read_arrow("archive", topic="orders", end_offset=2).read_all()
    >>> decode(rows, "strings").column_names[-3:]
    ['decoded', 'schema_id', 'decode_error']

    - `records`: a table or reader with a binary column; `column`: its name, `value` or `key`
    - `schemas`: where schemas are, or "strings" or "json"
    - `reader_schema`: the id of the reader schema, or the subject whose newest version it is
    - `message`: the name of the Protobuf message, if it is not the first of its file
    - `as_json`: `decoded` is JSON text, by the schema of each value
    - `prefix`: a text before the names of the new columns, like "key_"

    A reader, for example of `read_arrow`, is decoded while it is used, 1 MiB of values at once.

    `schemas` is `Schemas`; or the path or URI of an archive with a `_schemas` topic, or of a
    directory of schemas; or a registry's URL. Values are then in Confluent's wire format. "strings"
    takes values as UTF-8 text and "json" as JSON text, both without a schema.

    `decoded` has the type of one schema, the reader schema: the one with the id `reader_schema`, or
    the newest version of the subject `reader_schema`; without it, the newest of the subject
    `<topic>-value` (`<topic>-key` for the column `key`), or the one schema of a directory. Values
    of other versions are brought to it: Avro by its rules of resolution, Protobuf by field numbers,
    JSON by property names. With `as_json=True`, topics and languages may be mixed. See
    `kip33/records/README.md` for the types.

    A null value stays null. A value that cannot be decoded has null in `decoded` and the reason in
    `decode_error`; the row and its bytes are kept.

    Raises ValueError for a wrong argument, if there is no reader schema, or if records of several
    topics would need several; LocationError if the schemas cannot be read; ModuleNotFoundError
    without the extra `schemas` where Avro or Protobuf needs it.
    """
    names = [f"{prefix}{name}" for name in ("decoded", "schema_id", "decode_error")]
    _require_columns(records.schema, column, names)
    batches: Iterator[pa.RecordBatch] = iter(
        records.to_batches() if isinstance(records, pa.Table) else records
    )
    guard = None
    if schemas in ("strings", "json"):
        decoder = ValueDecoder(_PlainText(is_json=schemas == "json"), pa.string())
    else:
        found = schemas
        if not isinstance(found, Schemas):
            found = Schemas.of(
                found, layout=layout, storage_options=storage_options, filesystem=filesystem
            )
        reader = None
        if not as_json:
            guard, batches = _first_topic(found, reader_schema, column, batches)
            reader = _reader_schema(found, reader_schema, column, guard)
        decoder = decoder_of(found, reader, message, is_empty=not as_json and reader is None)
    kinds: list[pa.DataType] = [decoder.type, pa.int32(), pa.string()]
    schema = records.schema
    for name, kind in zip(names, kinds, strict=True):
        schema = schema.append(pa.field(name, kind))
    decoded = _decoded(batches, decoder, column, schema, guard)
    if isinstance(records, pa.Table):
        return pa.Table.from_batches(list(decoded), schema)
    return pa.RecordBatchReader.from_batches(schema, decoded)


def _require_columns(schema: pa.Schema, column: str, names: list[str]) -> None:
    if column not in schema.names:
        raise ValueError(f"column: {column!r} found, expected one of {', '.join(schema.names)}")
    kind = schema.field(column).type
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise ValueError(f"column: {column!r} is {kind}, expected binary")
    taken = [name for name in names if name in schema.names]
    if taken:
        raise ValueError(f"columns {', '.join(taken)} found already: pass prefix= for other names")


class ValueDecoder:
    """Decodes values in Confluent's wire format, or values without it."""

    def __init__(self, read: "_PlainText | _SchemaValues", kind: "pa.DataType") -> None:
        self._read, self.type = read, kind

    def columns(self, values: Sequence[bytes | None]) -> list["pa.Array[Any]"]:
        """Return values, schema ids and errors; an error in one value stays in its row."""
        decoded: list[Any] = []
        ids: list[int | None] = []
        errors: list[str | None] = []
        for value in values:
            schema_id, found, why = None, None, None
            if value is not None:
                try:
                    schema_id, payload = self._read.split(value)
                    found = self._read.value(schema_id, payload)
                except (Kip33Error, ImportError, MemoryError):
                    raise
                except Exception as error:  # libraries raise many kinds of errors for wrong bytes
                    why = cut(error)
            decoded.append(found)
            ids.append(schema_id)
            errors.append(why)
        array = self._array(decoded, errors)
        return [array, pa.array(ids, pa.int32()), pa.array(errors, pa.string())]

    def _array(self, decoded: list[Any], errors: list[str | None]) -> "pa.Array[Any]":
        """Return the values as one array; what Arrow does not take becomes an error of its row."""
        try:
            return pa.array(decoded, self.type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            pass
        for row, found in enumerate(decoded):
            try:
                pa.array([found], self.type)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                decoded[row], errors[row] = None, cut(error)
        return pa.array(decoded, self.type)


def decoder_of(
    schemas: Schemas,
    reader: SchemaText | None,
    message: str | None = None,
    *,
    is_empty: bool = False,
) -> ValueDecoder:
    """Return what decodes values to the type of a reader schema, or without one to JSON text."""
    try:
        values = _SchemaValues(schemas, reader, message)
    except (Kip33Error, ImportError, MemoryError):
        raise
    except Exception as error:  # libraries raise many kinds of errors for wrong schemas
        schema_id = reader.schema_id if reader else None
        raise ValueError(f"reader schema {schema_id} of {schemas.name}: {cut(error)}") from None
    return ValueDecoder(values, pa.null() if is_empty else values.type)


def _first_topic(
    schemas: Schemas,
    reader_schema: int | str | None,
    column: str,
    batches: Iterator[pa.RecordBatch],
) -> tuple[str | None, Iterator[pa.RecordBatch]]:
    """Return the topic that decides about the reader schema, None if none does; and all batches."""
    if reader_schema is not None or schemas.only() is not None:
        return None, batches
    seen = []
    for batch in batches:
        seen.append(batch)
        if "topic" not in batch.schema.names:
            raise ValueError(f"records without a column 'topic' found: {_ADVICE}")
        topics = _topics(batch)
        if topics:
            return topics[0], chain(seen, batches)
        if batch.column(column).null_count < batch.num_rows:
            raise ValueError(f"records whose topic is not known found: {_ADVICE}")
    return None, iter(seen)


def _topics(batch: pa.RecordBatch) -> list[str]:
    found: list[str] = pc.unique(batch.column("topic").drop_null()).to_pylist()
    return found


def _reader_schema(
    schemas: Schemas, wanted: int | str | None, column: str, topic: str | None
) -> SchemaText | None:
    """Return the reader schema; None only if there are no records that could need one."""
    schema_id = wanted if isinstance(wanted, int) else None
    if wanted is None:
        schema_id = schemas.only()
        if schema_id is None and topic is None:
            return None
    if schema_id is None:
        subject = wanted or f"{topic}-{'key' if column == 'key' else 'value'}"
        schema_id = schemas.newest(str(subject))
        if schema_id is None:
            raise ValueError(f"subject {subject!r} is not in {schemas.name}: {_ADVICE}")
    found = schemas.get(schema_id)
    if found is None:
        raise ValueError(f"reader_schema: {schema_id} found, it is not in {schemas.name}")
    return found


def _decoded(
    batches: Iterator[pa.RecordBatch],
    decoder: ValueDecoder,
    column: str,
    schema: pa.Schema,
    topic: str | None,
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        others = [one for one in _topics(batch) if one != topic] if topic else []
        if others:
            raise ValueError(
                f"topics {topic!r} and {others[0]!r} found, the reader schema is for one: {_ADVICE}"
            )
        for piece in pieces_to_decode(batch, column):
            values: Any = piece.column(column).to_pylist()
            yield pa.RecordBatch.from_arrays(
                [*piece.columns, *decoder.columns(values)], schema=schema
            )


def pieces_to_decode(batch: pa.RecordBatch, column: str) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces of few rows and bytes; without a copy."""
    lengths = pc.fill_null(pc.binary_length(batch.column(column)), 0)
    ends = np.cumsum(lengths.to_numpy(zero_copy_only=False).astype(np.int64))
    start = 0
    while start < batch.num_rows:
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + _MOST_BYTES, side="right"))
        end = min(max(end, start + 1), start + _MOST_ROWS)
        yield batch.slice(start, end - start)
        start = end


class _PlainText:
    """Reads values without a schema: UTF-8 text, which may have to be JSON."""

    def __init__(self, *, is_json: bool) -> None:
        self._json = JsonValues() if is_json else None

    def split(self, value: bytes) -> tuple[int | None, bytes]:
        return None, value

    def value(self, schema_id: int | None, payload: bytes) -> Any:
        return self._json.read(None, payload) if self._json else payload.decode()


class _SchemaValues:
    """Reads values in Confluent's wire format."""

    def __init__(self, schemas: Schemas, reader: SchemaText | None, message: str | None) -> None:
        """Prepare the reader schema, None for JSON text; UndecodableError if it is wrong."""
        self._schemas, self._reader = schemas, reader
        self._readers: dict[SchemaKind, _Values] = {}
        self._faults: dict[int, str | None] = {}  # why a schema cannot be used
        self.type: pa.DataType = pa.string()
        if reader:
            self.type = self._reader_of(reader.kind, message).type

    def _reader_of(self, kind: SchemaKind, message: str | None = None) -> _Values:
        if kind not in self._readers:
            if kind == SchemaKind.AVRO:
                self._readers[kind] = AvroValues(self._schemas, self._reader)
            elif kind == SchemaKind.PROTOBUF:
                self._readers[kind] = ProtobufValues(self._schemas, self._reader, message)
            else:
                self._readers[kind] = JsonValues(self._schemas, self._reader)
        return self._readers[kind]

    def split(self, value: bytes) -> tuple[int | None, bytes]:
        return split_value(value)

    def value(self, schema_id: int | None, payload: bytes) -> Any:
        assert schema_id is not None
        writer = self._schemas.get(schema_id)
        if writer is None:
            raise UndecodableError(f"schema {schema_id} is not in {self._schemas.name}")
        if self._reader and self._reader.kind != writer.kind:
            raise UndecodableError(
                f"schema {schema_id} is {writer.kind}, the reader schema "
                f"{self._reader.schema_id} is {self._reader.kind}"
            )
        reader = self._reader_of(writer.kind)
        if schema_id not in self._faults:
            self._faults[schema_id] = _fault_of(reader, writer)
        if why := self._faults[schema_id]:
            raise UndecodableError(why)
        return reader.read(writer, payload)


def _fault_of(reader: _Values, writer: SchemaText) -> str | None:
    try:
        reader.prepare(writer)
    except (Kip33Error, ImportError, MemoryError):
        raise
    except Exception as error:  # libraries raise many kinds of errors for wrong schemas
        return f"schema {writer.schema_id}: {cut(error)}"
    return None
