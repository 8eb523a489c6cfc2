"""A schema registry over HTTP: `GET /schemas/ids/{id}` and the versions of subjects."""

import base64
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from kip33.errors import LocationError
from kip33.records.schema_text import (
    MOST_SCHEMA_BYTES,
    Reference,
    SchemaText,
    UndecodableError,
    cut,
    schema_of,
)

_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_NOT_FOUND: Final = 404


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nothing: a redirect would send the password to another host."""

    def redirect_request(self, *request: Any) -> None:
        return None


class SchemaRegistry:
    """Asks a registry, without following redirects."""

    only: int | None = None  # it has subjects
    named: Mapping[str, str] = MappingProxyType({})  # schemas are used by reference

    def __init__(self, url: str, timeout: float) -> None:
        """Take a URL, with or without user and password; ValueError for another."""
        try:
            parts = urlsplit(url)
            user, at, host = parts.netloc.rpartition("@")
            _ = parts.port
        except ValueError:
            raise ValueError("registry: the URL cannot be parsed") from None
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise ValueError("registry: expected a URL like https://host:8081")
        if timeout <= 0:
            raise ValueError(f"timeout: {timeout} found, expected more than 0")
        self.name = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._timeout = timeout
        self._headers = {"Accept": _ACCEPT}
        if at:
            login = base64.b64encode(unquote(user).encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"

    def by_id(self, schema_id: int) -> SchemaText | None:
        """Return the schema with an id; LocationError if the registry cannot be asked."""
        found = self._get(f"/schemas/ids/{schema_id}")
        return None if found is None else self._schema(found, schema_id)

    def by_version(self, reference: Reference) -> SchemaText | None:
        """Return the schema that a reference names; a deleted version too."""
        subject = quote(reference.subject, safe="")
        found = self._get(f"/subjects/{subject}/versions/{reference.version}?deleted=true")
        return None if found is None else self._schema(found, found.get("id"))

    def newest(self, subject: str) -> int | None:
        """Return the id of a subject's newest version."""
        found = self._get(f"/subjects/{quote(subject, safe='')}/versions/latest")
        return None if found is None else self._schema(found, found.get("id")).schema_id

    def _schema(self, found: dict[str, Any], schema_id: object) -> SchemaText:
        try:
            schema = schema_of(found, schema_id)
        except UndecodableError as error:
            raise LocationError(f"{self.name}: schema {schema_id}: {error}") from error
        if schema is None:
            raise LocationError(f"{self.name}: an answer without a schema found")
        return schema

    def _get(self, path: str) -> dict[str, Any] | None:
        """Return the JSON object at a path, None for 404. Raises LocationError."""
        url = self.name + path
        request = urllib.request.Request(url, headers=self._headers)
        try:
            opener = urllib.request.build_opener(_NoRedirect)
            with opener.open(request, timeout=self._timeout) as answer:
                body = answer.read(MOST_SCHEMA_BYTES + 1)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == _NOT_FOUND:
                return None
            raise LocationError(f"{url}: HTTP status {error.code} found, expected 200") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = getattr(error, "reason", None) or error
            raise LocationError(f"{url}: no answer: {_line(why)}") from None
        if len(body) > MOST_SCHEMA_BYTES:
            raise LocationError(f"{url}: an answer of more than {MOST_SCHEMA_BYTES} bytes found")
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise LocationError(f"{url}: no JSON object found in the answer")
        return found


def _line(why: object) -> str:
    """Return a reason as one line."""
    return cut(why) if isinstance(why, BaseException) else " ".join(str(why).split())
