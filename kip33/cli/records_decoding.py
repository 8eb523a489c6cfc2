"""The values of `kip33 records --decode`: JSON text, or in Parquet the type of one schema."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kip33.errors import LocationError
from kip33.formats.names import parse_partition_dir
from kip33.records.decode import decode
from kip33.records.schemas import SCHEMAS_TOPIC, Schemas
from kip33.stores.locations import Location

_NO_BYTES: Final = pa.scalar(None, pa.binary())


def schemas_of(source: str, place: str | None, *, layout: str) -> Schemas:
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


class ValueDecoding:
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
