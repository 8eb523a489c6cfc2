"""Values in Confluent's wire format, directories of schemas, and tables of values."""

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

import kip33
from tests.builders.segment_builder import Record, v2_batch, zigzag

T = 1_700_000_000_000
STATE = {"name": "state", "type": "string", "default": "new"}
V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
V2 = {**V1, "fields": [*V1["fields"], STATE]}


def framed(schema_id: int, payload: bytes) -> bytes:
    """Return a value: magic byte 0, the id as int32, the payload."""
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def protobuf_framed(schema_id: int, indexes: list[int], payload: bytes) -> bytes:
    """Return a Protobuf value; the first message of a file is one byte 0."""
    if indexes == [0]:
        return framed(schema_id, b"\0" + payload)
    numbers = b"".join(zigzag(one) for one in (len(indexes), *indexes))
    return framed(schema_id, numbers + payload)


def avro(schema: Any, value: Any) -> bytes:
    """Return a value's Avro bytes by fastavro."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


OLD, NEW = framed(1, avro(V1, {"id": 5})), framed(2, avro(V2, {"id": 6, "state": "paid"}))


def put_schemas(folder: Path, **texts: Any) -> Path:
    """Write schemas: `avsc_7=...` to 7.avsc; what is no text as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        suffix, _, number = name.partition("_")
        content = text if isinstance(text, str) else json.dumps(text)
        (folder / f"{number}.{suffix}").write_text(content)
    return folder


def table_of(*values: bytes | None, topic: str | None = None) -> pa.Table:
    """Return a table with a column `value`, and `topic` if it is given."""
    columns: dict[str, Any] = {"value": pa.array(values, pa.binary())}
    if topic:
        columns["topic"] = pa.array([topic] * len(values), pa.string())
    return pa.table(columns)


def decoded(schemas: Any, *values: bytes | None, **options: Any) -> list[Any]:
    """Return what each value is decoded to; an error is the text of its reason."""
    rows = kip33.decode(table_of(*values), schemas, **options).to_pylist()
    return [row["decode_error"] or row["decoded"] for row in rows]


def registered(
    subject: str, version: int, schema_id: int, schema: Any, **more: Any
) -> tuple[bytes, bytes]:
    """Return a record of `_schemas`, as Confluent's registry writes it."""
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {
        **{"subject": subject, "version": version, "id": schema_id},
        **{"schema": schema if isinstance(schema, str) else json.dumps(schema)},
        **{"deleted": False, **more},
    }
    return json.dumps(key).encode(), json.dumps(value).encode()


def put_log(archive: Path, partition: str, *records: tuple[bytes | None, bytes | None]) -> None:
    """Write a log of one batch: of each record the key and the value."""
    log = archive / partition / f"{0:020d}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(v2_batch(0, [Record(T, key, value) for key, value in records]))
