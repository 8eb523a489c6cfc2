"""Schemas in a directory: `<id>.avsc`, `<id>.json`, `<id>.proto`, `<id>.desc`."""

import base64
import re
from collections.abc import Mapping
from typing import Final, Self

from pyarrow import fs

from kip33.errors import LocationError
from kip33.records.schema_text import MOST_SCHEMA_BYTES, Reference, SchemaKind, SchemaText
from kip33.stores.files import has_text_name, one_line, read_whole
from kip33.stores.locations import Location

_KINDS: Final = {
    "avsc": SchemaKind.AVRO,
    "json": SchemaKind.JSON,
    "proto": SchemaKind.PROTOBUF,
    "desc": SchemaKind.PROTOBUF,
}
_NAME: Final = re.compile(r"(.+)\.(avsc|json|proto|desc)")
_NUMBER: Final = re.compile(r"[0-9]{1,10}")


class SchemaDirectory:
    """The schemas of a directory, read when they are needed."""

    def __init__(self, directory: Location, names: list[str]) -> None:
        """Take the names of the files with schemas."""
        self.name = directory.uri
        self._directory = directory
        self._ids: dict[int, str] = {}
        self._others: list[str] = []
        for name in names:
            number = name.rpartition(".")[0]
            if not _NUMBER.fullmatch(number):
                self._others.append(name)
                continue
            before = self._ids.setdefault(int(number), name)
            if before != name:
                raise LocationError(
                    f"{self.name}: {before} and {name} found, expected one file for an id"
                )
        self._named: dict[str, str] | None = None

    @classmethod
    def read(cls, directory: Location) -> Self:
        """Return the schemas in a directory; LocationError if it has no schemas."""
        found = cls(directory, _names_in(directory))
        if not found._ids:
            raise LocationError(
                f"{directory.uri}: no schemas found, expected files like 7.avsc, 7.json, 7.proto"
            )
        return found

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

    def only(self) -> int | None:
        """Return the id of the one schema there is."""
        return next(iter(self._ids)) if len(self._ids) == 1 else None

    def named(self) -> Mapping[str, str]:
        """Return the texts of the files without an id: Avro by type name, others by file name."""
        if self._named is None:
            self._named = {
                name.removesuffix(".avsc"): self._text(name)
                for name in self._others
                if not name.endswith(".desc")
            }
        return self._named

    def _text(self, name: str) -> str:
        place = self._directory.child(name)
        try:
            data = read_whole(place, most_bytes=MOST_SCHEMA_BYTES)
            return base64.b64encode(data).decode() if name.endswith(".desc") else data.decode()
        except OSError as error:
            raise LocationError(f"{place.uri}: cannot be read: {one_line(error)}") from error
        except UnicodeDecodeError as error:
            raise LocationError(f"{place.uri}: bytes that are not UTF-8 found") from error


def has_schemas(place: Location) -> bool:
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
        raise LocationError(f"{directory.uri}: cannot be listed: {one_line(error)}") from error
    return sorted(
        info.base_name for info in infos if has_text_name(info) and _NAME.fullmatch(info.base_name)
    )
