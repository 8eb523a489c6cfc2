"""What a schema is in Arrow: a type, and how a decoded value is brought into it."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from kip33.records.json_text import to_json

Convert: TypeAlias = Callable[[Any], Any]
MOST_FIELDS: Final = 10_000  # of one column, with those inside


class Shape(NamedTuple):
    """An Arrow type; `convert` changes a value that is not null, None: it fits already."""

    type: "pa.DataType"
    convert: Convert | None = None

    def fitted(self, value: Any) -> Any:
        """Return a value, or null, as Arrow takes it."""
        return value if value is None or self.convert is None else self.convert(value)


JSON_TEXT: Final = Shape(pa.string(), to_json)
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
