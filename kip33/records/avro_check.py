"""Whether bytes are a value of an Avro schema.

A library that decodes takes a negative index of a union or an enum from the end, rounds a decimal
with too many digits, follows a linked list until the stack overflows, and fills the memory with an
array of nulls. So bytes are checked first.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from kip33.records.avro_schema import AvroSchema
from kip33.records.schema_text import UndecodableError

Check: TypeAlias = Callable[[bytes, int, int], int]
"""Takes bytes, a position and the depth; returns the position after the value."""

_MOST_DEPTH: Final = 300  # of types inside types
_INT: Final = (-(1 << 31), (1 << 31) - 1)
_LONG: Final = (-(1 << 63), (1 << 63) - 1)


class AvroCheck:
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
            return self._named(schema, _decimal(schema, _fixed(schema["size"])))
        return _decimal(schema, _PRIMITIVES[kind])

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


def _decimal(schema: dict[str, Any], check: Check) -> Check:
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
