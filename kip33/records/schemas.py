"""`kip33.Schemas`: the schemas of values by id, from an archive, a directory or a registry.

An archive has them in its own `_schemas` topic, where a registry keeps them. A directory has files
`<id>.avsc`, `<id>.json`, `<id>.proto` and `<id>.desc`.
"""

import base64
import json
import os
import re
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Protocol, Self

from pyarrow import fs

from kip33.errors import LocationError, proves_nothing
from kip33.records.partitions import Source
from kip33.records.reading import Reading
from kip33.records.schema_text import (
    MOST_SCHEMA_BYTES,
    Reference,
    SchemaKind,
    SchemaText,
    UndecodableError,
    schema_of,
)
from kip33.stores.files import has_text_name, one_line, read_whole
from kip33.stores.filesystem_option import Filesystem, StorageOptions, place_on
from kip33.stores.locations import Location

_MOST_IMPORTS: Final = 1000  # of one schema, with those of its imports
_MOST_MISSING: Final = 100_000  # ids that are remembered
SCHEMAS_TOPIC: Final = "_schemas"
_KINDS: Final = {
    "avsc": SchemaKind.AVRO,
    "json": SchemaKind.JSON,
    "proto": SchemaKind.PROTOBUF,
    "desc": SchemaKind.PROTOBUF,
}
_NAME: Final = re.compile(r"(.+)\.(avsc|json|proto|desc)")
_NUMBER: Final = re.compile(r"[0-9]{1,10}")


class SchemaSource(Protocol):
    """Where schemas are."""

    name: str  # path or URI, without user and password
    only: int | None  # the id of the one schema there is; None if there are several, or subjects

    @property
    def named(self) -> Mapping[str, str]:
        """Return texts that a schema may use by name without a reference."""

    def by_id(self, schema_id: int) -> SchemaText | None:
        """Return the schema with an id, or None."""

    def by_version(self, reference: Reference) -> SchemaText | None:
        """Return the schema that a reference names, or None."""

    def newest(self, subject: str) -> int | None:
        """Return the id of a subject's newest version that is not deleted."""


class Schemas:
    """The schemas of values by id; each is read once."""

    def __init__(self, source: SchemaSource) -> None:
        """Take the source that the constructors below make."""
        self._source = source
        self._found: dict[int, SchemaText | None] = {}

    @classmethod
    def from_archive(
        cls,
        source: Source,
        *,
        topic: str = SCHEMAS_TOPIC,
        layout: str = "kafka",
        storage_options: StorageOptions | None = None,
        filesystem: Filesystem | None = None,
    ) -> Self:
        """Return the schemas in an archive's own `_schemas` topic.

        `source` and the options are those of `read_arrow`. Ids of deleted versions stay known,
        because archived values may have them. Raises what `read_arrow` raises with
        `on_error="fail"`, and LocationError if the topic has no schemas.
        """
        archived = _ArchivedSchemas(f"{topic} of {getattr(source, 'uri', source)}")
        reading = Reading.of(topic=topic, columns=["key", "value"], on_error="fail", layout=layout)
        partitions = reading.partitions(
            source, storage_options, filesystem, choice="reading schemas"
        )
        for batch in reading.read(partitions):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                archived.add(*row)
        if archived.is_empty:
            raise LocationError(f"{archived.name}: no schemas found")
        return cls(archived)

    @classmethod
    def from_directory(
        cls,
        path: str | os.PathLike[str],
        *,
        storage_options: StorageOptions | None = None,
        filesystem: Filesystem | None = None,
    ) -> Self:
        """Return the schemas in a directory: `7.avsc`, `8.json`, `9.proto`, `10.desc`.

        The number is the schema id. A `.desc` file is a FileDescriptorSet that protoc wrote with
        `--include_imports`; its last file is the schema. Other files are imported by their names:
        `address.proto`, `com.example.Address.avsc`. LocationError if there are no schemas.
        """
        return cls(_SchemaDirectory(place_on(path, storage_options, filesystem)))

    @classmethod
    def from_registry(cls, url: str, *, timeout: float = 10.0) -> Self:
        """Return the schemas of a registry, each asked for when it is needed.

        `https://user:password@host` sends Basic authentication; messages never show it. `timeout`
        is in seconds, for each request. ValueError for another URL.
        """
        from kip33.records.schema_registry import SchemaRegistry  # Python's HTTP takes 10 ms

        return cls(SchemaRegistry(url, timeout))

    @classmethod
    def of(
        cls,
        place: str | os.PathLike[str],
        *,
        layout: str = "kafka",
        storage_options: StorageOptions | None = None,
        filesystem: Filesystem | None = None,
    ) -> Self:
        """Return the schemas of a registry's URL, a directory of schemas, or an archive."""
        text = os.fspath(place)
        if text.startswith(("http://", "https://")):
            return cls.from_registry(text)
        where = place_on(text, storage_options, filesystem)
        if _has_schemas(where):
            return cls(_SchemaDirectory(where))
        return cls.from_archive(
            text, layout=layout, storage_options=storage_options, filesystem=filesystem
        )

    def __repr__(self) -> str:
        """Return where the schemas are, without user and password."""
        return f"Schemas({self.name!r})"

    @property
    def name(self) -> str:
        """Return where the schemas are, without user and password."""
        return self._source.name

    def get(self, schema_id: int) -> SchemaText | None:
        """Return the schema with an id, or None.

        LocationError if a registry cannot be asked.
        """
        if schema_id in self._found:
            return self._found[schema_id]
        found = self._source.by_id(schema_id)
        if found or len(self._found) < _MOST_MISSING:  # wrong bytes may have any id
            self._found[schema_id] = found
        return found

    def newest(self, subject: str) -> int | None:
        """Return the id of a subject's newest version, None without such a subject."""
        return self._source.newest(subject)

    def only(self) -> int | None:
        """Return the id of the one schema of a directory, None for anything else."""
        return self._source.only

    def imports_of(self, schema: SchemaText) -> dict[str, str]:
        """Return the texts that a schema and its imports use, by name.

        UndecodableError for a reference to a schema that is not there.
        """
        found = dict(self._source.named)
        waiting, done = list(schema.references), set()
        while waiting:
            reference = waiting.pop()
            if reference in done:
                continue
            done.add(reference)
            if len(done) > _MOST_IMPORTS:
                raise UndecodableError(f"more than {_MOST_IMPORTS} references found")
            used = self._source.by_version(reference)
            if used is None:
                raise UndecodableError(
                    f"reference {reference.name!r} found; subject {reference.subject!r} version "
                    f"{reference.version} is not in {self.name}"
                )
            found[reference.name] = used.text
            waiting += used.references
        return found


class _ArchivedSchemas:
    """Schemas by id and by version; built from the records of the topic in their order."""

    only: int | None = None  # it has subjects
    named: Mapping[str, str] = MappingProxyType({})  # schemas are used by reference

    def __init__(self, name: str) -> None:
        """Start empty; `name` is the archive."""
        self.name = name
        self._by_id: dict[int, SchemaText] = {}
        self._subjects: dict[str, dict[int, int]] = {}  # ids of versions that are not deleted
        self._versions: dict[tuple[str, int], int] = {}  # ids of all versions

    @property
    def is_empty(self) -> bool:
        return not self._by_id

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Add a record of the topic; what is not about a schema is ignored."""
        named, body = _parsed(key), _parsed(value)
        subject, version = named.get("subject"), named.get("version")
        if named.get("keytype") == "DELETE_SUBJECT":
            last = body.get("version")
            versions = self._subjects.get(str(subject), {})
            for old in [v for v in versions if isinstance(last, int) and v <= last]:
                del versions[old]
        if named.get("keytype") != "SCHEMA" or not isinstance(version, int):
            return
        subject = str(subject)
        if subject.startswith(":") and not subject.startswith(":.:"):
            return  # a context of its own, with ids of its own
        self._subjects.setdefault(subject, {}).pop(version, None)
        try:
            schema = schema_of(body, body.get("id"))
        except UndecodableError:
            return
        if schema is None:
            return
        self._by_id[schema.schema_id] = schema
        self._versions[subject, version] = schema.schema_id
        if not body.get("deleted"):
            self._subjects[subject][version] = schema.schema_id

    def by_id(self, schema_id: int) -> SchemaText | None:
        return self._by_id.get(schema_id)

    def by_version(self, reference: Reference) -> SchemaText | None:
        """Return the schema that a reference names; a deleted version too."""
        schema_id = self._versions.get((reference.subject, reference.version))
        return None if schema_id is None else self._by_id[schema_id]

    def newest(self, subject: str) -> int | None:
        versions = self._subjects.get(subject)
        return versions[max(versions)] if versions else None


def _parsed(data: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(data or b"null")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class _SchemaDirectory:
    """The schemas of a directory, read when they are needed."""

    def __init__(self, directory: Location) -> None:
        """List a directory; LocationError if it has no schemas."""
        self.name = directory.uri
        self._directory = directory
        self._ids: dict[int, str] = {}
        self._others: list[str] = []
        for name in _names_in(directory):
            number = name.rpartition(".")[0]
            if not _NUMBER.fullmatch(number):
                self._others.append(name)
                continue
            before = self._ids.setdefault(int(number), name)
            if before != name:
                raise LocationError(
                    f"{self.name}: {before} and {name} found, expected one file for an id"
                )
        if not self._ids:
            raise LocationError(
                f"{self.name}: no schemas found, expected files like 7.avsc, 7.json, 7.proto"
            )
        self.only = next(iter(self._ids)) if len(self._ids) == 1 else None

    def by_id(self, schema_id: int) -> SchemaText | None:
        """Return the schema with an id; LocationError if its file cannot be read."""
        name = self._ids.get(schema_id)
        if name is None:
            return None
        return SchemaText(schema_id, _KINDS[name.rpartition(".")[2]], self._text(name))

    def by_version(self, reference: Reference) -> SchemaText | None:
        """Return None: files have no subjects."""
        return None

    def newest(self, subject: str) -> int | None:
        """Return None: files have no subjects."""
        return None

    @cached_property
    def named(self) -> Mapping[str, str]:
        """Return the texts of the files without an id: Avro by type name, others by file name."""
        return {
            name.removesuffix(".avsc"): self._text(name)
            for name in self._others
            if not name.endswith(".desc")
        }

    def _text(self, name: str) -> str:
        place = self._directory.child(name)
        try:
            data = read_whole(place, most_bytes=MOST_SCHEMA_BYTES)
            return base64.b64encode(data).decode() if name.endswith(".desc") else data.decode()
        except OSError as error:
            if proves_nothing(error):
                raise
            raise LocationError(f"{place.uri}: cannot be read: {one_line(error)}") from error
        except UnicodeDecodeError as error:
            raise LocationError(f"{place.uri}: bytes that are not UTF-8 found") from error


def _has_schemas(place: Location) -> bool:
    """Return whether a place is a directory with a file that is named like a schema id."""
    try:
        names = _names_in(place)
    except LocationError:
        return False
    return any(_NUMBER.fullmatch(name.rpartition(".")[0]) for name in names)


def _names_in(directory: Location) -> list[str]:
    try:
        infos = directory.filesystem().get_file_info(fs.FileSelector(directory.path))
    except OSError as error:
        if proves_nothing(error):
            raise
        raise LocationError(f"{directory.uri}: cannot be listed: {one_line(error)}") from error
    return sorted(
        info.base_name for info in infos if has_text_name(info) and _NAME.fullmatch(info.base_name)
    )
