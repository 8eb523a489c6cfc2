"""An Avro schema with full names, and with the types that it uses from other schemas."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kip33.records.schema_text import UndecodableError

PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
_NAMED: Final = ("record", "error", "enum", "fixed")
_MOST_DEPTH: Final = 100
_MOST_TYPES: Final = 10_000


class AvroSchema(NamedTuple):
    """A schema that needs no other; `types` has its named types by full name."""

    schema: Any
    types: dict[str, dict[str, Any]]


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
        if kind == "array":
            return {**schema, "items": self.resolved(schema.get("items"), namespace, depth + 1)}
        if kind == "map":
            return {**schema, "values": self.resolved(schema.get("values"), namespace, depth + 1)}
        if isinstance(kind, str) and kind in PRIMITIVES:
            return schema
        return self.resolved(kind, namespace, depth + 1)

    def _by_name(self, name: str, namespace: str, depth: int) -> Any:
        if name in PRIMITIVES:
            return name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full in self.types:
            return full
        for one in (full, name):
            if one in self._imports:
                return self.resolved(_parsed(self._imports[one]), "", depth + 1)
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
