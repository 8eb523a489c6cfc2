"""A schema as a registry stores it, and why a value or a schema cannot be used."""

from enum import StrEnum
from typing import Final, NamedTuple

MOST_SCHEMA_BYTES: Final = 1 << 24  # of one schema's text, or of one answer of a registry


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


def kind_of(name: object) -> SchemaKind:
    """Return the language that a registry names; none is AVRO. UndecodableError for another."""
    try:
        return SchemaKind(str(name).upper()) if name else SchemaKind.AVRO
    except ValueError:
        raise UndecodableError(
            f"schemaType {name!r} found, expected AVRO, JSON or PROTOBUF"
        ) from None


def references_of(found: object) -> tuple[Reference, ...]:
    """Return the references of a registry's JSON; UndecodableError if they are malformed."""
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
