"""Protobuf values to Arrow: by the reader's message, or as Protobuf's own JSON.

A schema is the text of a `.proto` file, which protoc compiles, or descriptors.
"""

import base64
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa

from kip33.records.json_values import MOST_FIELDS, Shape, map_of
from kip33.records.schema_text import SchemaText, UndecodableError, cut, needed
from kip33.records.schemas import Schemas

_MOST_INDEXES: Final = 32  # of a message inside messages
_SCALARS: Final[dict[str, "pa.DataType"]] = {
    **{"DOUBLE": pa.float64(), "FLOAT": pa.float32(), "BOOL": pa.bool_(), "STRING": pa.string()},
    **{"INT64": pa.int64(), "SINT64": pa.int64(), "SFIXED64": pa.int64(), "BYTES": pa.binary()},
    **{"INT32": pa.int32(), "SINT32": pa.int32(), "SFIXED32": pa.int32()},
    **{"UINT64": pa.uint64(), "FIXED64": pa.uint64(), "UINT32": pa.uint32()},
    "FIXED32": pa.uint32(),
}
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in (
        *("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes"),
    )
)
_JSON: Final = frozenset(
    f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue", "Any", "FieldMask")
)
_NANOS: Final = 1_000_000_000
_SECONDS: Final = (-62_135_596_800, 253_402_300_799)  # of a Timestamp: years 1 to 9999
_TIMEOUT_S: Final = 60  # of protoc
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_KNOWN: Final = re.compile(
    r"google/protobuf/(any|api|duration|empty|field_mask|source_context|struct|timestamp|type"
    r"|wrappers|descriptor)\.proto"
)
_WARNING: Final = re.compile(r"WARNING: |[IW][0-9]{4} ")
_MAIN: Final = "kip33_schema.proto"


class ProtobufValues:
    """Decodes Protobuf; without a reader schema to JSON text."""

    def __init__(
        self, schemas: Schemas, reader: SchemaText | None, message: str | None = None
    ) -> None:
        """Prepare the reader's message: the first of its file, or the one named `message`.

        UndecodableError if the schema is wrong, or has no such message.
        """
        self._schemas = schemas
        self._files: dict[int, Any] = {}
        self._classes: dict[Any, Any] = {}
        self._message: Any = None
        self.type: pa.DataType = pa.string()
        if reader:
            self._message = _message_named(self._file(reader), message)
            self._shape = _ProtobufShapes().of_message(self._message)
            self.type = self._shape.type

    def _file(self, schema: SchemaText) -> Any:
        if schema.schema_id not in self._files:
            imports = self._schemas.imports_of(schema)
            self._files[schema.schema_id] = file_descriptor(schema.text, imports)
        return self._files[schema.schema_id]

    def prepare(self, writer: SchemaText) -> None:
        """Compile a writer's schema."""
        self._file(writer)

    def read(self, writer: SchemaText, payload: bytes) -> Any:
        """Return a value as Arrow takes it; raises an error that says why it cannot be decoded."""
        indexes, at = _indexes(payload)
        written = _message_at(self._file(writer), indexes)
        if self._message is None:
            return _json_of(self._parsed(written, payload[at:]))
        if written.full_name != self._message.full_name:
            raise UndecodableError(
                f"message {written.full_name} found, the reader schema is for "
                f"{self._message.full_name}: pass message= or as_json=True"
            )
        return self._shape.fitted(self._parsed(self._message, payload[at:]))

    def _parsed(self, message: Any, payload: bytes) -> Any:
        if message not in self._classes:
            factory = needed("google.protobuf.message_factory")
            self._classes[message] = factory.GetMessageClass(message)
        return self._classes[message].FromString(payload)


def _message_named(file: Any, name: str | None) -> Any:
    if name is None:
        return _message_at(file, [0])
    waiting = list(file.message_types_by_name.values())
    while waiting:
        found = waiting.pop()
        if name in (found.full_name, found.name):
            return found
        waiting += found.nested_types
    raise UndecodableError(f"message {name!r} is not in the schema")


def _indexes(payload: bytes) -> tuple[list[int], int]:
    """Return the message indexes and the position after them; one byte 0 is the first message."""
    count, at = _varint(payload, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= _MOST_INDEXES:
        raise UndecodableError(f"{count} message indexes found, expected 0 to {_MOST_INDEXES}")
    indexes = []
    for _ in range(count):
        index, at = _varint(payload, at)
        indexes.append(index)
    return indexes, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise UndecodableError("the message indexes cannot be read")


def _json_of(value: Any) -> str:
    """Return a message as JSON text, in Protobuf's own mapping with the names of the fields."""
    file = value.DESCRIPTOR.file
    text: str = needed("google.protobuf.json_format").MessageToJson(
        *(value,),
        indent=None,
        preserving_proto_field_name=True,
        ensure_ascii=False,
        descriptor_pool=file.pool,
    )
    return text


class _ProtobufShapes:
    """The shapes of one message."""

    def __init__(self) -> None:
        self._inside: set[str] = set()
        self._count = 0

    def of_message(self, message: Any) -> Shape:
        """Return the shape of a message; JSON text for one inside itself."""
        name = message.full_name
        if name == "google.protobuf.Timestamp":
            return Shape(pa.timestamp("us", "UTC"), _micros)
        if name == "google.protobuf.Duration":
            return Shape(pa.duration("ns"), _nanos)
        if name in _WRAPPERS:
            inner = self._of_one(message.fields_by_name["value"])
            return Shape(inner.type, lambda value: inner.fitted(value.value))
        if name in self._inside or name in _JSON:
            return Shape(pa.string(), _json_of)
        self._inside.add(name)
        fields = [(field, self._of_field(field)) for field in message.fields]
        self._inside.remove(name)
        kind = pa.struct([pa.field(field.name, shape.type) for field, shape in fields])
        parts = [(field.name, field.has_presence, shape) for field, shape in fields]
        return Shape(
            kind,
            lambda value: {
                name: shape.fitted(getattr(value, name))
                if not has_presence or value.HasField(name)
                else None
                for name, has_presence, shape in parts
            },
        )

    def _of_field(self, field: Any) -> Shape:
        self._count += 1
        if self._count > MOST_FIELDS:
            raise UndecodableError(f"the Protobuf schema has more than {MOST_FIELDS} fields")
        message = field.message_type
        if message is not None and message.GetOptions().map_entry:
            key = self._of_one(message.fields_by_name["key"])
            return map_of(key.type, self._of_one(message.fields_by_name["value"]))
        shape = self._of_one(field)
        if not field.is_repeated:
            return shape
        return Shape(pa.list_(shape.type), lambda value: [shape.fitted(one) for one in value])

    def _of_one(self, field: Any) -> Shape:
        if field.message_type is not None:
            return self.of_message(field.message_type)
        if field.enum_type is not None:
            names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
            return Shape(pa.string(), lambda value: names.get(value, str(value)))
        kinds = {getattr(field, f"TYPE_{name}"): kind for name, kind in _SCALARS.items()}
        return Shape(kinds[field.type])


def _nanos(value: Any) -> int:
    found: int = value.seconds * _NANOS + value.nanos
    return found


def _micros(value: Any) -> int:
    """Return the microseconds of a Timestamp; UndecodableError for one that Protobuf forbids."""
    least, most = _SECONDS
    if not (least <= value.seconds <= most and 0 <= value.nanos < _NANOS):
        raise UndecodableError(
            f"a Timestamp of {value.seconds} seconds and {value.nanos} nanoseconds found, expected "
            "a time of the years 1 to 9999"
        )
    found: int = value.seconds * 1_000_000 + value.nanos // 1000
    return found


def file_descriptor(text: str, imports: Mapping[str, str]) -> Any:
    """Return the FileDescriptor of a schema, in a pool of its own with what it imports.

    `text` is a `.proto` file, or base64 of a FileDescriptorSet or of a FileDescriptorProto.
    UndecodableError if it cannot be compiled, or an import is missing.
    """
    descriptors = needed("google.protobuf.descriptor_pb2")
    if _BASE64.fullmatch(text):
        files = _parsed(base64.b64decode(text), descriptors)
        if len(files) == 1:
            files = _with_imports(files[0], imports, descriptors)
    else:
        files = descriptors.FileDescriptorSet.FromString(_compiled(text, imports)).file
    pool = needed("google.protobuf.descriptor_pool").DescriptorPool()
    try:
        for file in files:
            pool.Add(file)
        return pool.FindFileByName(files[-1].name)
    except (TypeError, KeyError, IndexError) as error:
        raise UndecodableError(f"the Protobuf schema cannot be used: {cut(error)}") from error


def _parsed(data: bytes, descriptors: Any) -> Any:
    """Return the files of a FileDescriptorSet, or one FileDescriptorProto."""
    decode_error = needed("google.protobuf.message").DecodeError
    for kind in (descriptors.FileDescriptorSet, descriptors.FileDescriptorProto):
        try:
            found = kind.FromString(data)
        except decode_error:
            continue
        files = found.file if kind is descriptors.FileDescriptorSet else [found]
        if files and all(file.name for file in files):
            return files
    raise UndecodableError("the Protobuf schema is no .proto file and no descriptor")


def _with_imports(main: Any, imports: Mapping[str, str], descriptors: Any) -> list[Any]:
    """Return a FileDescriptorProto after those that it needs."""
    found: dict[str, Any] = {}

    def add(file: Any) -> None:
        found[file.name] = None  # before its imports: a circle ends here, and the pool refuses it
        for name in file.dependency:
            if name in found:
                continue
            if name in imports and _BASE64.fullmatch(imports[name]):
                used = _parsed(base64.b64decode(imports[name]), descriptors)[-1]
                used.name = name
            elif _KNOWN.fullmatch(name):
                module = name.removesuffix(".proto").replace("/", ".")
                used = descriptors.FileDescriptorProto()
                needed(f"{module}_pb2").DESCRIPTOR.CopyToProto(used)
            else:
                raise UndecodableError(f"import {name[:80]!r} found, its schema is not there")
            add(used)
        del found[file.name]
        found[file.name] = file  # after its imports

    add(main)
    return list(found.values())


def _compiled(text: str, imports: Mapping[str, str]) -> bytes:
    """Return the FileDescriptorSet that protoc makes; it is a process of its own."""
    needed("grpc_tools")
    with tempfile.TemporaryDirectory(prefix="kip33-") as name:
        folder, output = Path(name) / "files", Path(name) / "set"
        for path, content in {**imports, _MAIN: text}.items():
            parts = PurePosixPath(path).parts
            if ".." in parts or path.startswith("/") or not path.endswith(".proto"):
                raise UndecodableError(
                    f"import {path[:80]!r} found, expected a relative path that ends in .proto"
                )
            if path.startswith("google/protobuf/"):
                continue  # protoc has its own
            file = folder.joinpath(*parts)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        command = [  # -P: no module is imported from the working directory
            *(sys.executable, "-P", "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports"),
            *(f"--descriptor_set_out={output}", _MAIN),
        ]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise UndecodableError(f"protoc took more than {_TIMEOUT_S} s") from None
        if done.returncode:
            lines = done.stderr.decode(errors="replace").splitlines()
            why = " ".join(line for line in lines if not _WARNING.match(line))
            shown = why.replace(f"{folder}/", "").replace(_MAIN, "line")
            raise UndecodableError(f"protoc: {cut(ValueError(shown))}")
        return output.read_bytes()


def _message_at(file: Any, indexes: list[int]) -> Any:
    """Return the message that Confluent's indexes name: of the file, then inside each other."""
    messages = list(file.message_types_by_name.values())
    found = None
    for index in indexes:
        if not 0 <= index < len(messages):
            raise UndecodableError(
                f"message index {index} found, the schema has {len(messages)} messages there"
            )
        found = messages[index]
        messages = list(found.nested_types)
    return found
