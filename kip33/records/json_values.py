"""JSON values to Arrow: by a JSON Schema, or as text.

A `Shape` is what a schema of any language is in Arrow: a type, and how a value is brought into it.
Where no Arrow type is exact, the shape is JSON text, with one mapping for Avro and JSON.
"""

import base64
import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from kip33.records.schema_text import SchemaText, UndecodableError
from kip33.records.schemas import Schemas

_NULL: Final = {"type": "null"}
MOST_FIELDS: Final = 10_000  # of one column, with those inside


class JsonValues:
    """Decodes JSON by the reader schema; without one, valid JSON stays the text that it is."""

    def __init__(self, schemas: Schemas | None = None, reader: SchemaText | None = None) -> None:
        """Prepare the reader schema; UndecodableError if it is wrong."""
        self._shape: Shape | None = None
        if reader and schemas:
            documents = {"": _document(reader.text)}
            for name, text in schemas.imports_of(reader).items():
                documents[name] = _document(text)
            self._shape = _JsonShapes(documents).of(documents[""], "")
        self.type = self._shape.type if self._shape else pa.string()

    def prepare(self, writer: SchemaText) -> None:
        """Do nothing: JSON is read without the writer's schema."""

    def read(self, writer: SchemaText | None, payload: bytes) -> Any:
        """Return a value as Arrow takes it; raises an error that says why it cannot be decoded."""
        text = payload.decode()
        if self._shape is None:
            _parse_json(text, parse_float=str)  # numbers of any size stay as they were sent
            return text
        return self._shape.fitted(_parse_json(text))


def _document(text: str) -> Any:
    try:
        return _parse_json(text)
    except (ValueError, RecursionError):
        raise UndecodableError("the JSON Schema is not JSON") from None


_Convert: TypeAlias = Callable[[Any], Any]


class Shape(NamedTuple):
    """An Arrow type; `convert` changes a value that is not null, None: it fits already."""

    type: "pa.DataType"
    convert: _Convert | None = None

    def fitted(self, value: Any) -> Any:
        """Return a value, or null, as Arrow takes it."""
        return value if value is None or self.convert is None else self.convert(value)


class _JsonShapes:
    """The shapes of one schema and what it imports."""

    def __init__(self, documents: dict[str, Any]) -> None:
        self._documents = documents
        self._inside: set[tuple[str, str]] = set()
        self._count = 0

    def of(self, schema: Any, document: str) -> Shape:
        """Return the shape of a schema; JSON text where it allows values of several types."""
        self._count += 1
        if self._count > MOST_FIELDS:
            raise UndecodableError(f"the JSON Schema has more than {MOST_FIELDS} properties")
        if not isinstance(schema, dict):
            return JSON_TEXT
        if isinstance(schema.get("$ref"), str):
            return self._referred(schema["$ref"], document)
        for several in ("oneOf", "anyOf"):
            if isinstance(schema.get(several), list):
                others = [one for one in schema[several] if one != _NULL]
                return self.of(others[0], document) if len(others) == 1 else JSON_TEXT
        kind = schema.get("type")
        if isinstance(kind, list):
            kinds = [one for one in kind if one != "null"]
            kind = kinds[0] if len(kinds) == 1 else None
        if kind == "object":
            return self._object(schema, document)
        if kind == "array" and isinstance(schema.get("items"), dict):
            return _checked(list, list_of(self.of(schema["items"], document)))
        return _SIMPLE.get(kind, JSON_TEXT) if isinstance(kind, str) else JSON_TEXT

    def _object(self, schema: dict[str, Any], document: str) -> Shape:
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(properties, dict) and properties:
            fields = [(name, self.of(one, document)) for name, one in properties.items()]
            return _checked(dict, struct_of(fields))
        if isinstance(others, dict) and not schema.get("patternProperties"):
            return _checked(dict, map_of(pa.string(), self.of(others, document)))
        return JSON_TEXT

    def _referred(self, reference: str, document: str) -> Shape:
        """Return the shape of what `$ref` names: a place here, or in an imported document."""
        other, _, pointer = reference.partition("#")
        place = (other or document, pointer)
        found = self._documents.get(place[0])
        for step in pointer.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, dict) else None
        if found is None or place in self._inside:
            return JSON_TEXT
        self._inside.add(place)
        shape = self.of(found, place[0])
        self._inside.remove(place)
        return shape


def _checked(kind: type, shape: Shape) -> Shape:
    """Return a shape that takes only values of a Python type."""

    def convert(value: Any) -> Any:
        if not isinstance(value, kind):
            raise _wrong(value, "an object" if kind is dict else "an array")
        return shape.fitted(value)

    return Shape(shape.type, convert)


def _wrong(value: Any, expected: str) -> UndecodableError:
    return UndecodableError(f"{str(value)[:40]!r} found, the JSON Schema expects {expected}")


def _scalar(expected: str, *kinds: type) -> _Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, bool) != (kinds == (bool,)) or not isinstance(value, kinds):
            raise _wrong(value, expected)
        return value

    return convert


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise _wrong(value, "an integer")
    return int(value)


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(value, "a number")
    return float(value)


_SIMPLE: Final[dict[str, Shape]] = {
    "string": Shape(pa.string(), _scalar("a string", str)),
    "boolean": Shape(pa.bool_(), _scalar("a boolean", bool)),
    "integer": Shape(pa.int64(), _integer),
    "number": Shape(pa.float64(), _real),
    "null": Shape(pa.null()),
}


def _to_json(value: Any) -> str:
    """Return a value as JSON text.

    Bytes are base64, decimals are text, times are ISO 8601, NaN and infinities are text; a record
    of a union with several records is an object with its name.

    >>> _to_json({"price": Decimal("1.50"), "raw": b"ab"})
    '{"price":"1.50","raw":"YWI="}'
    """
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else _named(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, tuple):
        name, record = value
        return {name: _plain(record)}
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _named(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


JSON_TEXT: Final = Shape(pa.string(), _to_json)
"""For what has no exact Arrow type: unions of several types, and types inside themselves."""


def list_of(item: Shape) -> Shape:
    """Return the shape of a list."""
    if item.convert is None:
        return Shape(pa.list_(item.type))
    return Shape(pa.list_(item.type), lambda value: [item.fitted(one) for one in value])


def map_of(key: "pa.DataType", item: Shape) -> Shape:
    """Return the shape of a map; values are dictionaries."""
    return Shape(
        pa.map_(key, item.type),
        lambda value: [(name, item.fitted(one)) for name, one in value.items()],
    )


def struct_of(fields: Sequence[tuple[str, Shape]]) -> Shape:
    """Return the shape of a record; values are dictionaries."""
    kind = pa.struct([pa.field(name, shape.type) for name, shape in fields])
    if all(shape.convert is None for _, shape in fields):
        return Shape(kind)
    return Shape(
        kind, lambda value: {name: shape.fitted(value.get(name)) for name, shape in fields}
    )


def _finite(text: str) -> float:
    """Return a number's value; ValueError above the largest double, which would be infinity."""
    if math.isfinite(number := float(text)):
        return number
    raise ValueError(f"{text[:40]} found, expected a number that a double can have")


def _parse_json(data: bytes | str, parse_float: Callable[[str], Any] = _finite) -> Any:
    """Return a JSON text's value; ValueError for malformed JSON, NaN and bytes after it.

    Also for a number that no double can have, such as 1e400, unless `parse_float` takes it.
    """
    try:
        return json.loads(data, parse_constant=_refuse, parse_float=parse_float)
    except json.JSONDecodeError as error:
        raise ValueError(f"malformed JSON: {error}") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} found, JSON has no such number")
