"""The schemas in an archive's own `_schemas` topic, where a registry keeps them."""

import json
from collections.abc import Mapping
from typing import Any, Final, Self

from kip33.errors import LocationError
from kip33.records.partitions import Source
from kip33.records.read_arrow import read_arrow
from kip33.records.schema_text import (
    Reference,
    SchemaText,
    UndecodableError,
    kind_of,
    references_of,
)
from kip33.stores.filesystem_option import Filesystem, StorageOptions

SCHEMAS_TOPIC: Final = "_schemas"


class ArchivedSchemas:
    """Schemas by id and by version; built from the records of the topic in their order."""

    def __init__(self, name: str) -> None:
        """Start empty; `name` is the archive."""
        self.name = name
        self._by_id: dict[int, SchemaText] = {}
        self._subjects: dict[str, dict[int, int]] = {}  # ids of versions that are not deleted
        self._versions: dict[tuple[str, int], int] = {}  # ids of all versions

    @classmethod
    def read(
        cls,
        source: Source,
        *,
        topic: str,
        layout: str,
        storage_options: StorageOptions | None,
        filesystem: Filesystem | None,
    ) -> Self:
        """Return the schemas of a topic; LocationError if it has none."""
        schemas = cls(f"{topic} of {getattr(source, 'uri', source)}")
        reader = read_arrow(
            source,
            topic=topic,
            columns=["key", "value"],
            on_error="fail",
            layout=layout,
            storage_options=storage_options,
            filesystem=filesystem,
        )
        for batch in reader:
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                schemas.add(*row)
        if not schemas._by_id:
            raise LocationError(f"{schemas.name}: no schemas found")
        return schemas

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Add a record of the topic; what is not about a schema is ignored."""
        named, body = _parsed(key), _parsed(value)
        subject, version = named.get("subject"), named.get("version")
        if named.get("keytype") == "DELETE_SUBJECT":
            last = body.get("version")
            versions = self._subjects.get(str(subject), {})
            for one in [one for one in versions if isinstance(last, int) and one <= last]:
                del versions[one]
        if named.get("keytype") != "SCHEMA" or not isinstance(version, int):
            return
        subject = str(subject)
        if subject.startswith(":") and not subject.startswith(":.:"):
            return  # a context of its own, with ids of its own
        self._subjects.setdefault(subject, {}).pop(version, None)
        schema = _schema_of(body)
        if schema is None:
            return
        self._by_id[schema.schema_id] = schema
        self._versions[subject, version] = schema.schema_id
        if not body.get("deleted"):
            self._subjects[subject][version] = schema.schema_id

    def by_id(self, schema_id: int) -> SchemaText | None:
        """Return the schema with an id."""
        return self._by_id.get(schema_id)

    def by_version(self, reference: Reference) -> SchemaText | None:
        """Return the schema that a reference names; a deleted version too."""
        schema_id = self._versions.get((reference.subject, reference.version))
        return None if schema_id is None else self._by_id[schema_id]

    def newest(self, subject: str) -> int | None:
        """Return the id of a subject's newest version that is not deleted."""
        versions = self._subjects.get(subject)
        return versions[max(versions)] if versions else None

    def only(self) -> int | None:
        """Return None: an archive has subjects."""
        return None

    def named(self) -> Mapping[str, str]:
        """Return nothing: schemas are used by reference."""
        return {}


def _parsed(data: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(data or b"null")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _schema_of(body: dict[str, Any]) -> SchemaText | None:
    schema_id, text = body.get("id"), body.get("schema")
    if not isinstance(schema_id, int) or not isinstance(text, str):
        return None
    try:
        kind, references = kind_of(body.get("schemaType")), references_of(body.get("references"))
    except UndecodableError:
        return None
    return SchemaText(schema_id, kind, text, references)
