"""`kip33.Schemas`: the schemas of values by id, from an archive, a directory or a registry."""

import os
from collections.abc import Mapping
from typing import Final, Protocol, Self

from kip33.records.partitions import Source
from kip33.records.schema_registry import SchemaRegistry, is_registry
from kip33.records.schema_text import Reference, SchemaText, UndecodableError
from kip33.records.schemas_in_archive import SCHEMAS_TOPIC, ArchivedSchemas
from kip33.records.schemas_in_directory import SchemaDirectory, has_schemas
from kip33.stores.filesystem_option import Filesystem, StorageOptions, place_on

_MOST_IMPORTS: Final = 1000  # of one schema, with those of its imports
_MOST_MISSING: Final = 100_000  # ids that are remembered


class SchemaSource(Protocol):
    """Where schemas are."""

    name: str  # path or URI, without user and password

    def by_id(self, schema_id: int) -> SchemaText | None:
        """Return the schema with an id, or None."""

    def by_version(self, reference: Reference) -> SchemaText | None:
        """Return the schema that a reference names, or None."""

    def newest(self, subject: str) -> int | None:
        """Return the id of a subject's newest version that is not deleted."""

    def only(self) -> int | None:
        """Return the id of the one schema there is; None if there are several, or subjects."""

    def named(self) -> Mapping[str, str]:
        """Return texts that a schema may use by name without a reference."""


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
        archived = ArchivedSchemas.read(
            source,
            topic=topic,
            layout=layout,
            storage_options=storage_options,
            filesystem=filesystem,
        )
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
        return cls(SchemaDirectory.read(place_on(path, storage_options, filesystem)))

    @classmethod
    def from_registry(cls, url: str, *, timeout: float = 10.0) -> Self:
        """Return the schemas of a registry, each asked for when it is needed.

        `https://user:password@host` sends Basic authentication; messages never show it. `timeout`
        is in seconds, for each request. ValueError for another URL.
        """
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
        if is_registry(text):
            return cls.from_registry(text)
        where = place_on(text, storage_options, filesystem)
        if has_schemas(where):
            return cls(SchemaDirectory.read(where))
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
        return self._source.only()

    def imports_of(self, schema: SchemaText) -> dict[str, str]:
        """Return the texts that a schema and its imports use, by name.

        UndecodableError for a reference to a schema that is not there.
        """
        found = dict(self._source.named())
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
