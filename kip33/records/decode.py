"""`kip33.decode`: values by Avro, JSON Schema or Protobuf to columns."""

import os
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.errors import Kip33Error
from kip33.records.schema_text import SchemaText, cut
from kip33.records.schemas import Schemas
from kip33.records.value_decoder import PlainText, SchemaValues, ValueDecoder
from kip33.stores.filesystem_option import Filesystem, StorageOptions

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

    `records` is a `pyarrow.Table` or a `RecordBatchReader`, for example of `read_arrow`. A reader
    is decoded while it is used, 1 MiB of values at once. `column` is binary: `value` or `key`. A
    `prefix` like "key_" is put before the names of the new columns.

    `schemas` is `Schemas`; or the path or URI of an archive with a `_schemas` topic, or of a
    directory of schemas; or a registry's URL. Values are then in Confluent's wire format. "strings"
    takes values as UTF-8 text and "json" as JSON text, both without a schema.

    `decoded` has the type of one schema, the reader schema: the one with the id `reader_schema`, or
    the newest version of the subject `reader_schema`; without it, the newest of the subject
    `<topic>-value` (`<topic>-key` for the column `key`), or the one schema of a directory. Values
    of other versions are brought to it: Avro by its rules of resolution, Protobuf by field numbers,
    JSON by property names. `message` is the name of the Protobuf message, if it is not the first of
    its file. With `as_json=True`, `decoded` is JSON text by the schema of each value, so topics and
    languages may be mixed. See `kip33/records/README.md` for the types.

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
        decoder = ValueDecoder(PlainText(is_json=schemas == "json"), pa.string())
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
        decoder = _decoder(found, reader, message, is_empty=not as_json and reader is None)
    kinds: list[pa.DataType] = [decoder.type, pa.int32(), pa.string()]
    schema = records.schema
    for name, kind in zip(names, kinds, strict=True):
        schema = schema.append(pa.field(name, kind))
    decoded = _decoded(batches, decoder, column, schema, guard)
    if isinstance(records, pa.Table):
        return pa.Table.from_batches(list(decoded), schema)
    return pa.RecordBatchReader.from_batches(schema, decoded)


def _require_columns(schema: pa.Schema, column: str, names: list[str]) -> None:
    """Raise ValueError for a column that cannot be decoded, or names that are taken."""
    if column not in schema.names:
        raise ValueError(f"column: {column!r} found, expected one of {', '.join(schema.names)}")
    kind = schema.field(column).type
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise ValueError(f"column: {column!r} is {kind}, expected binary")
    taken = [name for name in names if name in schema.names]
    if taken:
        raise ValueError(f"columns {', '.join(taken)} found already: pass prefix= for other names")


def _decoder(
    schemas: Schemas, reader: SchemaText | None, message: str | None, *, is_empty: bool
) -> ValueDecoder:
    try:
        values = SchemaValues(schemas, reader, message)
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
        for piece in _pieces(batch, column):
            values: Any = piece.column(column).to_pylist()
            yield pa.RecordBatch.from_arrays(
                [*piece.columns, *decoder.columns(values)], schema=schema
            )


def _pieces(batch: pa.RecordBatch, column: str) -> Iterator[pa.RecordBatch]:
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
