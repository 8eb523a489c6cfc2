"""Protobuf schemas: the text of a `.proto` file, compiled by protoc, to descriptors."""

import base64
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from kip33.records.extras import needed
from kip33.records.schema_text import UndecodableError, cut

_TIMEOUT_S: Final = 60
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_KNOWN: Final = re.compile(
    r"google/protobuf/(any|api|duration|empty|field_mask|source_context|struct|timestamp|type"
    r"|wrappers|descriptor)\.proto"
)
_WARNING: Final = re.compile(r"WARNING: |[IW][0-9]{4} ")
_MAIN: Final = "kip33_schema.proto"


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
            said = done.stderr.decode(errors="replace").splitlines()
            why = " ".join(line for line in said if not _WARNING.match(line))
            shown = why.replace(f"{folder}/", "").replace(_MAIN, "line")
            raise UndecodableError(f"protoc: {cut(ValueError(shown))}")
        return output.read_bytes()


def message_at(file: Any, indexes: list[int]) -> Any:
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
