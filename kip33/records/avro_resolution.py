"""Avro schemas with full names, and what their resolution gives where fastavro is wrong.

fastavro takes the JSON of a default as the value: text for bytes, records without their own
defaults. It takes the writer's logical type even where the reader's schema has the number, and a
time of -5 µs as 00:00:00.999995. So defaults are converted before values are read, and logical
types have names of our own with our own functions.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kip33.records.schema_text import UndecodableError, needed

PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
_NAMED: Final = ("record", "error", "enum", "fixed")
_OF_INNER: Final = {"array": "items", "map": "values"}  # where the type of what is inside stands
_MOST_TYPES: Final = 10_000
_OWN: Final = "kip33-"  # before the names of logical types
_MOST_DEFAULTS: Final = 100_000  # values in the defaults of one schema
_MOST_DEPTH: Final = 100
_FAMILIES: Final = {  # logical types that are brought to each other
    ("int", "date"): "date",
    ("int", "time-millis"): "time",
    ("long", "time-micros"): "time",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp",
    ("long", "local-timestamp-micros"): "timestamp",
    ("bytes", "decimal"): "decimal",
    ("fixed", "decimal"): "decimal",
    ("string", "uuid"): "uuid",
}
TIME_LIMITS: Final = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
_RANGES: Final = {"int": 1 << 31, "long": 1 << 63}

LogicalReader = Callable[[Any, dict[str, Any], Any], Any]


class AvroSchema(NamedTuple):
    """A schema that needs no other; `types` has its named types by full name."""

    schema: Any
    types: dict[str, dict[str, Any]]


def parsed_schema(schema: AvroSchema, *, is_reader: bool) -> Any:
    """Return a schema as fastavro takes it; UndecodableError for a default of another type.

    Only defaults of a reader's schema are used.
    """
    readers = needed("fastavro.read").LOGICAL_READERS
    for kind, logical in _FAMILIES:
        name = f"{kind}-{_OWN}{logical}"
        if name not in readers:
            readers[name] = _logical_reader(logical, readers[f"{kind}-{logical}"])
    named: dict[str, Any] = {}
    parsed = needed("fastavro").parse_schema(_prepared(schema.schema), named)
    if is_reader:
        defaults = _Defaults(schema)
        for name, definition in schema.types.items():
            for place, field in enumerate(definition.get("fields", ())):
                if "default" in field:
                    value = defaults.value(field["type"], field["default"])
                    named[name]["fields"][place]["default"] = value
    return parsed


def require_time(number: int, logical: str) -> int:
    """Return a time of day; UndecodableError for one outside a day."""
    if not 0 <= number < TIME_LIMITS[logical]:
        raise UndecodableError(
            f"{logical} {number} found, expected 0 to {TIME_LIMITS[logical] - 1}: a time of day"
        )
    return number


def _prepared(schema: Any) -> Any:
    """Return a schema without defaults of fields, and with our names of logical types."""
    if isinstance(schema, list):
        return [_prepared(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    prepared = dict(schema)
    if inner := _OF_INNER.get(schema["type"]):
        prepared[inner] = _prepared(schema[inner])
    if schema["type"] == "record":
        prepared["fields"] = [
            {key: value for key, value in field.items() if key != "default"}
            | {"type": _prepared(field["type"])}
            for field in schema["fields"]
        ]
    if _family(schema):
        prepared["logicalType"] = _OWN + schema["logicalType"]
    return prepared


def _family(schema: Any) -> str | None:
    if not isinstance(schema, dict) or not isinstance(schema.get("logicalType"), str):
        return None
    return _FAMILIES.get((schema["type"], schema["logicalType"].removeprefix(_OWN)))


def _logical_reader(logical: str, convert: LogicalReader) -> LogicalReader:
    """Return a reader of a logical type; the raw value if the reader's schema has another one."""

    def read(value: Any, writer: dict[str, Any], reader: Any = None) -> Any:
        if reader is not None and _family(reader) != _family(writer):
            return _promoted(value, reader)
        if logical in TIME_LIMITS:
            require_time(value, logical)
        return convert(value, writer, reader)

    return read


def _promoted(value: Any, reader: Any) -> Any:
    kind = reader["type"] if isinstance(reader, dict) else reader
    if kind in ("float", "double"):
        return float(value)
    if kind == "bytes" and isinstance(value, str):
        return value.encode()
    return value.decode() if kind == "string" and isinstance(value, bytes) else value


class _Defaults:
    """Converts defaults of one schema from JSON to what reading gives."""

    def __init__(self, schema: AvroSchema) -> None:
        self._types = schema.types
        self._count = 0

    def value(self, schema: Any, found: Any, depth: int = 0) -> Any:
        """Return a default's value; UndecodableError for one that the type cannot have."""
        self._count += 1
        if depth > _MOST_DEPTH or self._count > _MOST_DEFAULTS:
            raise UndecodableError(
                f"the defaults of the Avro schema have more than {_MOST_DEPTH} levels or "
                f"{_MOST_DEFAULTS} values"
            )
        if isinstance(schema, list):
            return self._of_union(schema, found, depth)
        if schema in self._types if isinstance(schema, str) else False:
            schema = self._types[schema]
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind == "record" and isinstance(found, dict):
            return {
                field["name"]: self._of_field(field, found, depth) for field in schema["fields"]
            }
        if kind == "array" and isinstance(found, list):
            return [self.value(schema["items"], item, depth + 1) for item in found]
        if kind == "map" and isinstance(found, dict):
            return {
                key: self.value(schema["values"], item, depth + 1) for key, item in found.items()
            }
        value = _simple(schema, kind, found)
        if _family(schema):
            reader = needed("fastavro.read").LOGICAL_READERS
            return reader[f"{kind}-{_OWN}{schema['logicalType']}"](value, schema, None)
        return value

    def _of_field(self, field: dict[str, Any], found: dict[str, Any], depth: int) -> Any:
        if field["name"] not in found and "default" not in field:
            raise UndecodableError(f"a default without field {field['name']!r} found")
        value = found[field["name"]] if field["name"] in found else field["default"]
        return self.value(field["type"], value, depth + 1)

    def _of_union(self, branches: list[Any], found: Any, depth: int) -> Any:
        """Return the value of the first branch that takes a default."""
        records = [branch for branch in branches if self._is_record(branch)]
        for branch in branches:
            try:
                value = self.value(branch, found, depth + 1)
            except UndecodableError:
                if self._count > _MOST_DEFAULTS:
                    raise
                continue
            if branch not in records or len(records) == 1:
                return value
            return branch if isinstance(branch, str) else branch["name"], value
        raise _wrong(found, "a type of the union")

    def _is_record(self, branch: Any) -> bool:
        definition = self._types.get(branch) if isinstance(branch, str) else branch
        return definition is not None and definition["type"] == "record"


def _simple(schema: Any, kind: str, found: Any) -> Any:
    """Return the default of a type without others inside."""
    if kind in ("bytes", "fixed") and isinstance(found, str):
        try:
            value = found.encode("latin-1")
        except UnicodeEncodeError:
            raise _wrong(found, "characters up to \\u00ff, one for each byte") from None
        if kind == "fixed" and len(value) != schema["size"]:
            raise _wrong(found, f"{schema['size']} bytes")
        return value
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if kind in ("float", "double") and is_number:
        return float(found)
    if kind in _RANGES and is_number and isinstance(found, int):
        if -_RANGES[kind] <= found < _RANGES[kind]:
            return found
    elif (
        (kind == "null" and found is None)
        or (kind == "boolean" and isinstance(found, bool))
        or (kind == "string" and isinstance(found, str))
        or (kind == "enum" and found in schema["symbols"])
    ):
        return found
    raise _wrong(found, f"a default of type {kind}")


def _wrong(found: Any, expected: str) -> UndecodableError:
    return UndecodableError(f"default {str(found)[:40]!r} found, expected {expected}")


def avro_schema(text: str, imports: Mapping[str, str]) -> AvroSchema:
    """Return a schema with full names; each imported type is defined where it is first used.

    UndecodableError for text that is not an Avro schema, or uses an unknown type.
    """
    resolver = _Resolver(imports)
    return AvroSchema(resolver.resolved(_parsed(text), "", 0), resolver.types)


def _parsed(text: str) -> Any:
    if text.strip() in PRIMITIVES:  # without quotes, as a file may have it
        return text.strip()
    try:
        return json.loads(text)
    except RecursionError:
        raise UndecodableError("the Avro schema is nested too deeply") from None
    except ValueError:
        raise UndecodableError("the Avro schema is not JSON") from None


class _Resolver:
    """Gives the types of one schema their full names."""

    def __init__(self, imports: Mapping[str, str]) -> None:
        self._imports = imports
        self._count = 0
        self.types: dict[str, dict[str, Any]] = {}

    def resolved(self, schema: Any, namespace: str, depth: int) -> Any:
        self._count += 1
        if depth > _MOST_DEPTH or self._count > _MOST_TYPES:
            raise UndecodableError(
                f"the Avro schema has more than {_MOST_DEPTH} levels or {_MOST_TYPES} types"
            )
        if isinstance(schema, str):
            return self._by_name(schema, namespace, depth)
        if isinstance(schema, list):
            return [self.resolved(one, namespace, depth + 1) for one in schema]
        kind = schema.get("type") if isinstance(schema, dict) else None
        if kind is None:
            raise UndecodableError(f"{str(schema)[:60]!r} found, expected an Avro type")
        if kind in _NAMED:
            return self._definition(schema, namespace, depth)
        if isinstance(kind, str) and kind in PRIMITIVES:
            return schema
        if isinstance(kind, str) and (inner := _OF_INNER.get(kind)):
            return {**schema, inner: self.resolved(schema.get(inner), namespace, depth + 1)}
        return self.resolved(kind, namespace, depth + 1)

    def _by_name(self, name: str, namespace: str, depth: int) -> Any:
        if name in PRIMITIVES:
            return name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full in self.types:
            return full
        for known in (full, name):
            if known in self._imports:
                return self.resolved(_parsed(self._imports[known]), "", depth + 1)
        raise UndecodableError(f"Avro type {full[:100]!r} found, it is not defined")

    def _definition(self, schema: dict[str, Any], namespace: str, depth: int) -> Any:
        name, within = schema.get("name"), schema.get("namespace", namespace) or ""
        if not isinstance(name, str) or not isinstance(within, str):
            raise UndecodableError("an Avro type without a name found")
        full = name if "." in name or not within else f"{within}.{name}"
        if full in self.types:
            raise UndecodableError(f"Avro type {full[:100]!r} found twice")
        within = full.rpartition(".")[0]
        found = {key: value for key, value in schema.items() if key != "namespace"}
        self.types[full] = found
        found["name"] = full
        if schema["type"] in ("record", "error"):
            fields = schema.get("fields")
            if not isinstance(fields, list) or not all(isinstance(one, dict) for one in fields):
                raise UndecodableError(f"Avro record {full[:100]!r} without fields found")
            found["type"] = "record"
            found["fields"] = [
                {**one, "type": self.resolved(one.get("type"), within, depth + 1)} for one in fields
            ]
        return found
