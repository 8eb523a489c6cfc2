"""Values in Confluent's wire format, directories of schemas, and tables of values."""

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

import kip33
from tests.builders.segment_builder import zigzag


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
