"""Where schemas come from: an archive's `_schemas` topic, a directory, a registry."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import kip33
from kip33.errors import LocationError
from tests.builders.schema_values import (
    NEW,
    OLD,
    V1,
    V2,
    decoded,
    framed,
    put_log,
    put_schemas,
    registered,
    table_of,
)
from tests.cases import each_case

NOOP = (b'{"keytype":"NOOP","magic":0}', None)
CONFIG = (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}')


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    put_log(
        *(tmp_path / "archive", "_schemas-0", NOOP, CONFIG, (b"not JSON", b"\xff"), (None, b"{}")),
        registered("orders-value", 1, 1, V1),
        registered("orders-value", 2, 2, V2),
        registered(":.other:orders-value", 1, 1, '"int"'),
    )
    put_log(tmp_path / "archive", "orders-0", (b"k", OLD), (b"k", None), (b"k", NEW))
    return tmp_path / "archive"


def test_an_archive_with_its_own_schemas(archive: Path) -> None:
    reader = kip33.decode(
        kip33.read_arrow(archive, topic="orders", on_error="row"), schemas=archive
    )
    assert reader.read_all().select(["offset", "decoded", "decode_error"]).to_pylist() == [
        {"offset": 0, "decoded": {"id": 5, "state": "new"}, "decode_error": None},
        {"offset": 1, "decoded": None, "decode_error": None},
        {"offset": 2, "decoded": {"id": 6, "state": "paid"}, "decode_error": None},
    ]


def test_schemas_are_read_once_for_several_tables(archive: Path) -> None:
    schemas = kip33.Schemas.from_archive(archive)
    assert repr(schemas) == f"Schemas('_schemas of {archive}')"
    for number in (0, 1, 2):
        found = decoded(schemas, OLD, reader_schema=number or "orders-value")
        assert found == [{"id": 5} if number == 1 else {"id": 5, "state": "new"}]
    assert schemas.newest("orders-value") == 2
    assert schemas.get(3) is None


def test_topics_together_need_a_choice(archive: Path) -> None:
    table = pa.concat_tables([table_of(OLD, topic="orders"), table_of(OLD, topic="returns")])
    with pytest.raises(ValueError, match="topics 'orders' and 'returns' found, the reader schema"):
        kip33.decode(table, archive)
    assert kip33.decode(table, archive, as_json=True).column("decoded").to_pylist() == [
        *('{"id":5}', '{"id":5}')
    ]
    with pytest.raises(ValueError, match="subject 'returns-value' is not in _schemas of"):
        kip33.decode(table_of(OLD, topic="returns"), archive)
    with pytest.raises(ValueError, match="subject 'orders-key' is not in _schemas of"):
        kip33.decode(
            table_of(OLD, topic="orders").rename_columns(["key", "topic"]), archive, column="key"
        )
    with pytest.raises(ValueError, match="records whose topic is not known found: pass"):
        kip33.decode(pa.table({"value": [OLD], "topic": pa.array([None], pa.string())}), archive)


def deleted(subject: str, version: int) -> tuple[bytes, bytes | None]:
    """Return the record that removes a version for ever."""
    return registered(subject, version, 0, "")[0], None


DELETED = {
    "soft": [registered("orders-value", 2, 2, V2, deleted=True)],
    "for ever": [registered("orders-value", 2, 2, V2, deleted=True), deleted("orders-value", 2)],
}


@each_case("after", DELETED)
def test_a_deleted_version_still_decodes_but_is_not_the_newest(after: Any, tmp_path: Path) -> None:
    put_log(
        *(tmp_path, "_schemas-0", registered("orders-value", 1, 1, V1)),
        *(registered("orders-value", 2, 2, V2), *after),
    )
    table = kip33.decode(table_of(OLD, NEW, topic="orders"), tmp_path)
    assert table.column("decoded").to_pylist() == [{"id": 5}, {"id": 6}]


def test_a_deleted_subject(tmp_path: Path) -> None:
    key = b'{"keytype":"DELETE_SUBJECT","subject":"orders-value","magic":0}'
    put_log(
        *(tmp_path, "_schemas-0", registered("orders-value", 1, 1, V1)),
        *(registered("orders-value", 2, 2, V2), (key, b'{"subject":"orders-value","version":2}')),
    )
    schemas = kip33.Schemas.from_archive(tmp_path)
    assert schemas.newest("orders-value") is None
    assert decoded(schemas, NEW, reader_schema=2) == [{"id": 6, "state": "paid"}]


def test_references_between_schemas(tmp_path: Path) -> None:
    order = {"type": "record", "name": "O", "fields": [{"name": "a", "type": "shop.A"}]}
    address = {"type": "record", "name": "A", "namespace": "shop", "fields": V1["fields"]}
    needs = [{"name": "shop.A", "subject": "address", "version": 1}]
    text = 'syntax = "proto3"; import "shop/a.proto"; message O { A a = 1; }'
    imported = 'syntax = "proto3"; message A { int64 id = 1; }'
    proto = {"schemaType": "PROTOBUF"}
    path = [{"name": "shop/a.proto", "subject": "proto-address", "version": 3}]
    missing = [{"name": "shop.A", "subject": "address", "version": 2}]
    put_log(
        *(tmp_path, "_schemas-0", registered("address", 1, 1, address)),
        registered("orders-value", 1, 2, order, references=needs),
        registered("proto-address", 3, 3, imported, **proto),
        registered("protos-value", 1, 4, text, **proto, references=path),
        registered("broken-value", 1, 5, order, references=missing),
    )
    schemas = kip33.Schemas.from_archive(tmp_path)
    assert decoded(schemas, framed(2, b"\x0e"), reader_schema=2) == [{"a": {"id": 7}}]
    value = framed(4, b"\0\x0a\x02\x08\x07")
    assert decoded(schemas, value, reader_schema=4) == [{"a": {"id": 7}}]
    reason = "schema 5: reference 'shop.A' found; subject 'address' version 2 is not in _schemas"
    assert decoded(schemas, framed(5, b"\x0e"), as_json=True)[0].startswith(reason)


OUTSIDE = ["grpc_tools/protoc.py", "../a.proto", "/a.proto", "a/../../b.proto", "sitecustomize.py"]


@each_case("name", OUTSIDE)
def test_a_reference_names_no_file_outside(name: str, tmp_path: Path) -> None:
    text = 'syntax = "proto3"; message O { int32 x = 1; }'
    proto = {"schemaType": "PROTOBUF"}
    needs = [{"name": name, "subject": "a", "version": 1}]
    put_log(
        *(tmp_path, "_schemas-0", registered("a", 1, 1, "raise SystemExit(0)", **proto)),
        registered("o", 1, 2, text, **proto, references=needs),
    )
    reason = f"schema 2: import {name!r} found, expected a relative path that ends in .proto"
    schemas = kip33.Schemas.from_archive(tmp_path)
    assert decoded(schemas, framed(2, b"\0"), as_json=True) == [reason]


def test_protoc_imports_no_module_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "grpc_tools.py").write_text("raise SystemExit('imported')")
    put_schemas(tmp_path, proto_1='syntax = "proto3"; message O { int32 x = 1; }')
    monkeypatch.chdir(tmp_path)
    assert decoded(tmp_path, framed(1, b"\0\x08\x05")) == [{"x": 5}]


def test_places_without_schemas(tmp_path: Path) -> None:
    with pytest.raises(LocationError, match="/nothing"):
        kip33.Schemas.of(tmp_path / "nothing")
    put_log(tmp_path, "orders-0", (b"k", OLD))
    with pytest.raises(LocationError):
        kip33.Schemas.of(tmp_path)
    put_log(tmp_path, "_schemas-0", NOOP)
    with pytest.raises(LocationError, match=f"_schemas of {tmp_path}: no schemas found"):
        kip33.Schemas.of(tmp_path)
    with pytest.raises(LocationError, match="no schemas found, expected files like"):
        kip33.Schemas.from_directory(tmp_path)


def test_two_files_of_one_id(tmp_path: Path) -> None:
    put_schemas(tmp_path, avsc_7=V1, json_7={})
    with pytest.raises(LocationError, match="found, expected one file for an id"):
        kip33.Schemas.from_directory(tmp_path)


def test_a_directory_on_another_filesystem(tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/schemas-of-test/1.avsc", json.dumps(V1).encode())
    schemas = kip33.Schemas.from_directory("/schemas-of-test", filesystem=memory)
    assert decoded(schemas, OLD) == [{"id": 5}]


class Registry(NamedTuple):
    """A registry on this machine: its answers by path, and what it was asked."""

    url: str
    answers: dict[str, tuple[int, bytes]]
    asked: list[tuple[str, str | None]]  # path, Authorization


@pytest.fixture
def registry() -> Iterator[Registry]:
    answers: dict[str, tuple[int, bytes]] = {}
    asked: list[tuple[str, str | None]] = []
    missing = (404, b'{"error_code":40403,"message":"Schema not found"}')

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            status, body = answers.get(self.path, missing)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", body.decode())
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield Registry(f"http://127.0.0.1:{server.server_port}", answers, asked)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer(schema: Any, **more: Any) -> tuple[int, bytes]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return 200, json.dumps({"schema": text, **more}).encode()


def test_a_registry_is_asked_once_for_each_schema(registry: Registry) -> None:
    registry.answers["/schemas/ids/1"] = answer(V1)
    registry.answers["/schemas/ids/2"] = answer(V2)
    latest = {"subject": "orders-value", "version": 2, "id": 2}
    registry.answers["/subjects/orders-value/versions/latest"] = answer(V2, **latest)
    values = [OLD, NEW, framed(9, b""), OLD, framed(9, b"")]
    table = kip33.decode(table_of(*values, topic="orders"), f"{registry.url}/")
    assert table.column("decoded").to_pylist() == [
        *({"id": 5, "state": "new"}, {"id": 6, "state": "paid"}, None),
        *({"id": 5, "state": "new"}, None),
    ]
    assert table.column("decode_error")[2].as_py() == f"schema 9 is not in {registry.url}"
    assert [path for path, _ in registry.asked] == [
        *("/subjects/orders-value/versions/latest", "/schemas/ids/2", "/schemas/ids/1"),
        "/schemas/ids/9",
    ]


def test_references_in_a_registry(registry: Registry) -> None:
    needs = [{"name": "b/c.proto", "subject": "b/c", "version": 4}]
    text = 'syntax = "proto3"; import "b/c.proto"; message O { C c = 1; }'
    imported = 'syntax = "proto3"; message C { int32 x = 1; }'
    proto = {"schemaType": "PROTOBUF"}
    registry.answers["/schemas/ids/1"] = answer(text, references=needs, **proto)
    registry.answers["/subjects/b%2Fc/versions/4?deleted=true"] = answer(
        imported, subject="b/c", version=4, id=3, **proto
    )
    value = framed(1, b"\0\x0a\x02\x08\x07")
    assert decoded(registry.url, value, reader_schema=1) == [{"c": {"x": 7}}]


def test_user_and_password_are_sent_and_never_shown(registry: Registry) -> None:
    registry.answers["/schemas/ids/1"] = answer(V1)
    url = registry.url.replace("//", "//ann:s%40cret@")
    schemas = kip33.Schemas.of(url)
    assert decoded(schemas, OLD, reader_schema=1) == [{"id": 5}]
    login = base64.b64encode(b"ann:s@cret").decode()
    assert registry.asked == [("/schemas/ids/1", f"Basic {login}")]
    assert repr(schemas) == f"Schemas('{registry.url}')"
    registry.answers["/schemas/ids/2"] = (401, b'{"message":"ann:s@cret"}')
    registry.answers["/x/schemas/ids/2"] = (200, b"ann:s@cret")
    for text in (str(_raised(schemas, 2)), str(_raised(kip33.Schemas.of(f"{url}/x"), 2))):
        assert "cret" not in text
        assert "ann" not in text


def _raised(schemas: kip33.Schemas, schema_id: int) -> BaseException:
    with pytest.raises(LocationError) as caught:
        schemas.get(schema_id)
    assert "\n" not in str(caught.value)
    return caught.value


WRONG_ANSWERS = [
    (401, b"{}", "HTTP status 401 found, expected 200"),
    (500, b"<html>", "HTTP status 500 found, expected 200"),
    (302, b"/schemas/ids/2", "HTTP status 302 found, expected 200"),
    (200, b"<html>", "no JSON object found in the answer"),
    (200, b"[" * 100_000, "no JSON object found in the answer"),
    (200, b"[]", "no JSON object found in the answer"),
    (200, b"{}", "an answer without a schema found"),
    (200, b'{"schema":"1","schemaType":"XML"}', "schemaType 'XML' found, expected AVRO"),
    (200, b'{"schema":"1","references":[{}]}', "expected name, subject and version of each"),
    (200, b" " * ((1 << 24) + 1), "an answer of more than 16777216 bytes found"),
]


@each_case(("status", "body", "message"), WRONG_ANSWERS)
def test_answers_that_cannot_be_used_end_the_call(
    status: int, body: Any, message: str, registry: Registry
) -> None:
    registry.answers["/schemas/ids/1"] = (status, body)
    with pytest.raises(LocationError, match=message):
        decoded(registry.url, OLD, as_json=True)
    assert [path for path, _ in registry.asked] == ["/schemas/ids/1"]
    registry.asked.clear()


def test_a_registry_that_does_not_answer() -> None:
    """One that is closed, and one that takes connections and says nothing."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://ann:secret@127.0.0.1:{server.getsockname()[1]}"
        silent = kip33.Schemas.from_registry(url, timeout=0.2)
        assert "timed out" in str(_raised(silent, 1))
    assert "refused" in str(_raised(kip33.Schemas.of(url), 1))


WRONG_URLS = [
    "http://",
    "http://ann:secret@",
    "http://ann:secret@host:port",
    "https://host/?q=secret",
]


@each_case("url", WRONG_URLS)
def test_wrong_urls_do_not_show_what_is_in_them(url: str) -> None:
    with pytest.raises(ValueError, match="registry: ") as caught:
        kip33.Schemas.of(url)
    assert "secret" not in str(caught.value)
