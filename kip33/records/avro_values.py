"""Avro values to Arrow: by the writer's schema, resolved to the reader's.

A library that decodes takes a negative index of a union or an enum from the end, rounds a decimal
with too many digits, follows a linked list until the stack overflows, and fills the memory with an
array of nulls. So bytes are checked first.
"""

import io
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa

from kip33.records.avro_resolution import (
    PRIMITIVES,
    TIME_LIMITS,
    AvroSchema,
    avro_schema,
    parsed_schema,
    require_time,
)
from kip33.records.json_values import (
    JSON_TEXT,
    MOST_FIELDS,
    Shape,
    list_of,
    map_of,
    struct_of,
)
from kip33.records.schema_text import SchemaText, UndecodableError, needed
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
_MOST_DEPTH: Final = 300  # of types inside types
_INT: Final = (-(1 << 31), (1 << 31) - 1)
_LONG: Final = (-(1 << 63), (1 << 63) - 1)


class AvroValues:
    """Decodes Avro; without a reader schema to JSON text."""

    def __init__(self, schemas: Schemas, reader: SchemaText | None) -> None:
        """Prepare the reader schema; UndecodableError if it is wrong."""
        self._avro = needed("fastavro")
        self._schemas = schemas
        self._writers: dict[int, tuple[_AvroCheck | None, Any]] = {}
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
            self._writers[writer.schema_id] = _AvroCheck(schema), parsed

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


Check: TypeAlias = Callable[[bytes, int, int], int]
"""Takes bytes, a position and the depth; returns the position after the value."""


class _AvroCheck:
    """Checks values of one schema."""

    def __init__(self, schema: AvroSchema) -> None:
        """Prepare the check of a schema; UndecodableError or another error for a wrong one."""
        self._types = schema.types
        self._checks: dict[str, Check] = {}
        self._check = self._of(schema.schema)

    def __call__(self, data: bytes) -> None:
        """Raise UndecodableError if bytes are not one value, from the first to the last byte."""
        try:
            end = self._check(data, 0, 0)
        except IndexError:
            end = len(data) + 1
        if end > len(data):
            raise UndecodableError(f"{len(data)} bytes found, the Avro value is longer")
        if end < len(data):
            raise UndecodableError(f"{len(data) - end} bytes found after the Avro value")

    def _of(self, schema: Any) -> Check:
        if isinstance(schema, list):
            return _union([self._of(one) for one in schema])
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self._later(schema)
        kind = schema["type"]
        if kind == "record":
            return self._record(schema)
        if kind == "array":
            return _blocks(self._of(schema["items"]), None)
        if kind == "map":
            return _blocks(self._of(schema["values"]), _sized)
        if kind == "enum":
            return self._named(schema, _enum(len(schema["symbols"])))
        if kind == "fixed":
            return self._named(schema, _decimal_check(schema, _fixed(schema["size"])))
        return _decimal_check(schema, _PRIMITIVES[kind])

    def _named(self, schema: dict[str, Any], check: Check) -> Check:
        self._checks[schema["name"]] = check
        return check

    def _later(self, name: str) -> Check:
        """Return the check of a type that may still be in the making."""
        checks = self._checks
        return lambda data, at, depth: checks[name](data, at, depth)

    def _record(self, schema: dict[str, Any]) -> Check:
        fields = [self._of(field["type"]) for field in schema["fields"]]

        def check(data: bytes, at: int, depth: int) -> int:
            if depth > _MOST_DEPTH:
                raise UndecodableError(f"more than {_MOST_DEPTH} levels of types found")
            for field in fields:
                at = field(data, at, depth + 1)
            return at

        return self._named(schema, check)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag number and the position after it."""
    byte = data[at]
    at += 1
    number, shift = byte & 0x7F, 7
    while byte > 0x7F:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise UndecodableError("a number of more than 10 bytes found")
    return (number >> 1) ^ -(number & 1), at


def _number(least: int, most: int) -> Check:
    def check(data: bytes, at: int, depth: int) -> int:
        if data[at] < 0x80:
            return at + 1
        number, at = _varint(data, at)
        if not least <= number <= most:
            raise UndecodableError(f"number {number} found, expected {least} to {most}")
        return at

    return check


def _sized(data: bytes, at: int, depth: int) -> int:
    size, at = _varint(data, at)
    if not 0 <= size <= len(data) - at:
        raise UndecodableError(f"a length of {size} found, {len(data) - at} bytes are left")
    return at + size


def _boolean(data: bytes, at: int, depth: int) -> int:
    if data[at] > 1:
        raise UndecodableError(f"boolean {data[at]} found, expected 0 or 1")
    return at + 1


def _null(data: bytes, at: int, depth: int) -> int:
    return at


def _fixed(size: int) -> Check:
    def check(data: bytes, at: int, depth: int) -> int:
        if size > len(data) - at:
            raise UndecodableError(f"a length of {size} found, {len(data) - at} bytes are left")
        return at + size

    return check


def _enum(count: int) -> Check:
    def check(data: bytes, at: int, depth: int) -> int:
        index, at = _varint(data, at)
        if not 0 <= index < count:
            raise UndecodableError(f"index {index} of an enum found, it has {count} symbols")
        return at

    return check


def _union(branches: list[Check]) -> Check:
    def check(data: bytes, at: int, depth: int) -> int:
        index, at = _varint(data, at)
        if not 0 <= index < len(branches):
            raise UndecodableError(f"branch {index} of a union found, it has {len(branches)}")
        return branches[index](data, at, depth + 1)

    return check


def _blocks(item: Check, key: Check | None) -> Check:
    """Return the check of an array, or with `key` of a map."""

    def check(data: bytes, at: int, depth: int) -> int:
        while True:
            count, at = _varint(data, at)
            if count == 0:
                return at
            if count < 0:
                count = -count
                _, at = _varint(data, at)  # bytes of the block
            for _ in _at_most(count, len(data) - at):
                start = at
                if key:
                    at = key(data, at, depth)
                at = item(data, at, depth + 1)
                if at == start:
                    raise UndecodableError("an array of items without bytes found")

    return check


def _at_most(count: int, bytes_left: int) -> Iterable[int]:
    """Return a range of `count`, if each item may have a byte."""
    if count > max(bytes_left, 1):
        raise UndecodableError(f"{count} items found, {bytes_left} bytes are left")
    return range(count)


def _decimal_check(schema: dict[str, Any], check: Check) -> Check:
    """Return a check that also counts the digits, if the type is a decimal."""
    if schema.get("logicalType") != "decimal" or schema["type"] not in ("bytes", "fixed"):
        return check
    most, is_sized = 10 ** int(schema["precision"]), schema["type"] == "bytes"

    def checked(data: bytes, at: int, depth: int) -> int:
        end = check(data, at, depth)
        if is_sized:
            _, at = _varint(data, at)
        if not -most < int.from_bytes(data[at:end], signed=True) < most:
            raise UndecodableError(
                f"a decimal of more digits than its precision {schema['precision']} found"
            )
        return end

    return checked


_PRIMITIVES: Final[dict[str, Check]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _number(*_INT),
    "long": _number(*_LONG),
    "float": _fixed(4),
    "double": _fixed(8),
    "bytes": _sized,
    "string": _sized,
}
