"""A schema as a registry stores it, and values in Confluent's wire format.

The format is magic byte 0, the schema's id as a big-endian int32, and the payload.
"""

import importlib
import struct
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

MOST_SCHEMA_BYTES: Final = 1 << 24  # of one schema's text, or of one answer of a registry
_HEADER: Final = struct.Struct(">bi")


class UndecodableError(ValueError):
    """A value or a schema that cannot be used; the message is the reason, one line."""


class SchemaKind(StrEnum):
    """The languages of schemas, as a registry names them."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class Reference(NamedTuple):
    """A schema that another one uses under a name."""

    name: str  # Avro: full name of a type; Protobuf: path of an import; JSON Schema: URI
    subject: str
    version: int


class SchemaText(NamedTuple):
    """A schema with its id."""

    schema_id: int
    kind: SchemaKind
    text: str
    references: tuple[Reference, ...] = ()


def schema_of(found: Mapping[str, Any], schema_id: object) -> SchemaText | None:
    """Return the schema in a registry's JSON; None: it has no text, or no id.

    UndecodableError for another language, or malformed references.
    """
    text = found.get("schema")
    if not isinstance(schema_id, int) or not isinstance(text, str):
        return None
    kind, references = _kind_of(found.get("schemaType")), _references_of(found.get("references"))
    return SchemaText(schema_id, kind, text, references)


def _kind_of(name: object) -> SchemaKind:
    """Return the language that a registry names; none is AVRO."""
    try:
        return SchemaKind(str(name).upper()) if name else SchemaKind.AVRO
    except ValueError:
        raise UndecodableError(
            f"schemaType {name!r} found, expected AVRO, JSON or PROTOBUF"
        ) from None


def _references_of(found: object) -> tuple[Reference, ...]:
    if not found:
        return ()
    try:
        return tuple(
            Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
            for one in found  # type: ignore[attr-defined]
        )
    except (KeyError, TypeError, ValueError):
        raise UndecodableError(
            f"references {str(found)[:80]!r} found, expected name, subject and version of each"
        ) from None


def cut(error: BaseException) -> str:
    """Return the message of an error as one line of at most 300 characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 300 else f"{text[:297]}..."


def needed(module: str) -> Any:
    """Return a module; ModuleNotFoundError says what to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"decode: the Python package of {module} is not installed; "
            "install it with: pip install 'kip33[schemas]'",
            name=error.name,
        ) from None


def split_value(value: bytes) -> tuple[int, bytes]:
    """Return the schema id and the payload; UndecodableError without them."""
    if len(value) < _HEADER.size:
        raise UndecodableError(
            f"{len(value)} bytes found, expected a magic byte and a schema id (5 bytes)"
        )
    magic, schema_id = _HEADER.unpack_from(value)
    if magic:
        raise UndecodableError(f"magic byte {magic} found, expected 0 (Confluent's wire format)")
    return schema_id, value[_HEADER.size :]
