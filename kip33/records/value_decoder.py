"""Values to rows of three columns: what was decoded, the schema's id, and why it was not."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from kip33.errors import Kip33Error
from kip33.records.avro_values import AvroValues
from kip33.records.json_values import JsonValues
from kip33.records.protobuf_values import ProtobufValues
from kip33.records.schema_text import SchemaKind, SchemaText, UndecodableError, cut
from kip33.records.schemas import Schemas
from kip33.records.wire_format import split_value


class DecodedColumns(NamedTuple):
    """The columns of some values."""

    decoded: "pa.Array[Any]"
    schema_ids: "pa.Array[Any]"
    errors: "pa.Array[Any]"


class ReadsPayloads(Protocol):
    """Decodes the payloads of one language."""

    type: "pa.DataType"

    def prepare(self, writer: SchemaText) -> None:
        """Prepare a writer's schema; raises an error that says why it cannot be used."""

    def read(self, writer: SchemaText, payload: bytes) -> Any:
        """Return a value as Arrow takes it; raises an error that says why not."""


class ValueDecoder:
    """Decodes values in Confluent's wire format, or values without it."""

    def __init__(self, read: "PlainText | SchemaValues", kind: "pa.DataType") -> None:
        """Take what decodes one value, and the type of the column."""
        self._read, self.type = read, kind

    def columns(self, values: Sequence[bytes | None]) -> DecodedColumns:
        """Return the columns of values; an error in one value stays in its row."""
        decoded: list[Any] = []
        ids: list[int | None] = []
        errors: list[str | None] = []
        for value in values:
            schema_id, found, why = None, None, None
            if value is not None:
                try:
                    schema_id, payload = self._read.split(value)
                    found = self._read.value(schema_id, payload)
                except (Kip33Error, ImportError, MemoryError):
                    raise
                except Exception as error:  # libraries raise many kinds of errors for wrong bytes
                    why = cut(error)
            decoded.append(found)
            ids.append(schema_id)
            errors.append(why)
        array = self._array(decoded, errors)
        return DecodedColumns(array, pa.array(ids, pa.int32()), pa.array(errors, pa.string()))

    def _array(self, decoded: list[Any], errors: list[str | None]) -> "pa.Array[Any]":
        """Return the values as one array; what Arrow does not take becomes an error of its row."""
        try:
            return pa.array(decoded, self.type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            pass
        for row, found in enumerate(decoded):
            try:
                pa.array([found], self.type)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                decoded[row], errors[row] = None, cut(error)
        return pa.array(decoded, self.type)


class PlainText:
    """Reads values without a schema: UTF-8 text, which may have to be JSON."""

    def __init__(self, *, is_json: bool) -> None:
        """Choose between JSON and any text."""
        self._json = JsonValues() if is_json else None

    def split(self, value: bytes) -> tuple[int | None, bytes]:
        """Return no id and all bytes."""
        return None, value

    def value(self, schema_id: int | None, payload: bytes) -> Any:
        """Return the text."""
        return self._json.read(None, payload) if self._json else payload.decode()


class SchemaValues:
    """Reads values in Confluent's wire format."""

    def __init__(self, schemas: Schemas, reader: SchemaText | None, message: str | None) -> None:
        """Prepare the reader schema, None for JSON text; UndecodableError if it is wrong."""
        self._schemas, self._reader = schemas, reader
        self._readers: dict[SchemaKind, ReadsPayloads] = {}
        self._faults: dict[int, str | None] = {}  # why a schema cannot be used
        self.type: pa.DataType = pa.string()
        if reader:
            self.type = self._reader_of(reader.kind, message).type

    def _reader_of(self, kind: SchemaKind, message: str | None = None) -> ReadsPayloads:
        if kind not in self._readers:
            if kind == SchemaKind.AVRO:
                self._readers[kind] = AvroValues(self._schemas, self._reader)
            elif kind == SchemaKind.PROTOBUF:
                self._readers[kind] = ProtobufValues(self._schemas, self._reader, message)
            else:
                self._readers[kind] = JsonValues(self._schemas, self._reader)
        return self._readers[kind]

    def split(self, value: bytes) -> tuple[int | None, bytes]:
        """Return the schema's id and the payload."""
        return split_value(value)

    def value(self, schema_id: int | None, payload: bytes) -> Any:
        """Return the decoded payload."""
        assert schema_id is not None
        writer = self._schemas.get(schema_id)
        if writer is None:
            raise UndecodableError(f"schema {schema_id} is not in {self._schemas.name}")
        if self._reader and self._reader.kind != writer.kind:
            raise UndecodableError(
                f"schema {schema_id} is {writer.kind}, the reader schema "
                f"{self._reader.schema_id} is {self._reader.kind}"
            )
        reader = self._reader_of(writer.kind)
        if schema_id not in self._faults:
            self._faults[schema_id] = _fault_of(reader, writer)
        if why := self._faults[schema_id]:
            raise UndecodableError(why)
        return reader.read(writer, payload)


def _fault_of(reader: ReadsPayloads, writer: SchemaText) -> str | None:
    """Return why a schema cannot be used, None if it can."""
    try:
        reader.prepare(writer)
    except (Kip33Error, ImportError, MemoryError):
        raise
    except Exception as error:  # libraries raise many kinds of errors for wrong schemas
        return f"schema {writer.schema_id}: {cut(error)}"
    return None
