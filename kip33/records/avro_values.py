"""Avro values to Arrow: by the writer's schema, resolved to the reader's."""

import io
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from kip33.records.avro_check import AvroCheck
from kip33.records.avro_resolution import TIME_LIMITS, parsed_schema, require_time
from kip33.records.avro_schema import PRIMITIVES, AvroSchema, avro_schema
from kip33.records.column_shape import (
    JSON_TEXT,
    MOST_FIELDS,
    Shape,
    list_of,
    map_of,
    struct_of,
)
from kip33.records.extras import needed
from kip33.records.schema_text import SchemaText, UndecodableError
from kip33.records.schemas import Schemas

_SIMPLE: Final[dict[str, "pa.DataType"]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final[dict[tuple[str, str], "pa.DataType"]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_MOST_DIGITS: Final = 76  # of Arrow's decimals


class AvroValues:
    """Decodes Avro; without a reader schema to JSON text."""

    def __init__(self, schemas: Schemas, reader: SchemaText | None) -> None:
        """Prepare the reader schema; UndecodableError if it is wrong."""
        self._avro = needed("fastavro")
        self._schemas = schemas
        self._writers: dict[int, tuple[AvroCheck | None, Any]] = {}
        self._reader_id = reader.schema_id if reader else None
        self._reader = None
        self._takes_bytes = True
        self._shape = JSON_TEXT
        if reader:
            schema = self._resolved(reader)
            self._reader = parsed_schema(schema, is_reader=True)
            self._takes_bytes = _is_bytes(schema)
            self._shape = _AvroShapes(schema).of(schema.schema)
        self.type = self._shape.type

    def _resolved(self, schema: SchemaText) -> AvroSchema:
        return avro_schema(schema.text, self._schemas.imports_of(schema))

    def prepare(self, writer: SchemaText) -> None:
        """Prepare the check and the schema; no check for `bytes`, which are written as they are."""
        schema = self._resolved(writer)
        if _is_bytes(schema):
            self._writers[writer.schema_id] = None, None
        else:
            parsed = parsed_schema(schema, is_reader=False)
            self._writers[writer.schema_id] = AvroCheck(schema), parsed

    def read(self, writer: SchemaText, payload: bytes) -> Any:
        """Return a value as Arrow takes it; raises an error that says why it cannot be decoded."""
        check, parsed = self._writers[writer.schema_id]
        if check is None:
            if not self._takes_bytes:
                raise UndecodableError("bytes found, the reader schema has another type")
            return self._shape.fitted(payload)
        check(payload)
        value = self._avro.schemaless_reader(
            io.BytesIO(payload),
            parsed,
            None if writer.schema_id == self._reader_id else self._reader,
            return_record_name=True,
            return_record_name_override=True,
        )
        return self._shape.fitted(value)


def _is_bytes(schema: AvroSchema) -> bool:
    return schema.schema in ("bytes", {"type": "bytes"})


class _AvroShapes:
    """The shapes of one schema."""

    def __init__(self, schema: AvroSchema) -> None:
        self._types = schema.types
        self._inside: set[str] = set()  # records around this place
        self._count = 0

    def of(self, schema: Any) -> Shape:
        """Return the shape of a type."""
        self._count += 1
        if self._count > MOST_FIELDS:
            raise UndecodableError(f"the Avro schema has more than {MOST_FIELDS} fields")
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return Shape(_SIMPLE[schema])
            return JSON_TEXT if schema in self._inside else self.of(self._types[schema])
        kind = schema["type"]
        if kind == "record":
            return self._record(schema)
        if kind == "array":
            return list_of(self.of(schema["items"]))
        if kind == "map":
            return map_of(pa.string(), self.of(schema["values"]))
        if kind == "enum":
            return Shape(pa.string())
        return _logical(schema, kind)

    def _union(self, branches: list[Any]) -> Shape:
        others = [one for one in branches if one not in ("null", {"type": "null"})]
        if not others:
            return Shape(pa.null())
        return self.of(others[0]) if len(others) == 1 else JSON_TEXT

    def _record(self, schema: dict[str, Any]) -> Shape:
        name = schema["name"]
        if name in self._inside:
            return JSON_TEXT
        self._inside.add(name)
        fields = [(field["name"], self.of(field["type"])) for field in schema["fields"]]
        self._inside.remove(name)
        record = struct_of(fields)
        # A writer's union with several records gives a record with its name.
        return Shape(
            record.type,
            lambda value: record.fitted(value[1] if isinstance(value, tuple) else value),
        )


def _logical(schema: dict[str, Any], kind: str) -> Shape:
    """Return the shape of a primitive or fixed type, with its logical type if it is known."""
    logical = schema.get("logicalType", "")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        digits, scale = int(schema["precision"]), int(schema.get("scale", 0))
        if digits > _MOST_DIGITS:
            return Shape(pa.string(), lambda value: format(_decimal(value, scale), "f"))
        decimal = pa.decimal128 if digits <= 38 else pa.decimal256
        return Shape(decimal(digits, scale), lambda value: _decimal(value, scale))
    if logical == "uuid" and kind == "string":
        return Shape(pa.string(), str)
    if kind == "fixed":
        return Shape(pa.binary(int(schema["size"])))
    if logical in TIME_LIMITS and (kind, logical) in _LOGICAL:
        return Shape(
            _LOGICAL[kind, logical],
            lambda value: require_time(value, logical) if isinstance(value, int) else value,
        )
    return Shape(_LOGICAL.get((kind, logical), _SIMPLE[kind]))


def _decimal(value: Any, scale: int) -> Decimal:
    """Return a decimal; the writer's schema may have bytes without a logical type."""
    if isinstance(value, Decimal):
        return value
    number = int.from_bytes(value, signed=True)
    return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))
