"""Avro values against Apache's library: random schemas, readers of later versions, and values.

Apache's library for Python takes defaults of bytes as UTF-8, against the specification, and keeps
the writer's logical types: `test_decode_avro.py` has the cases that differ.
`KIP33_SEED` chooses others.
"""

import base64
import io
import json
import os
from copy import deepcopy
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import avro.io
import avro.schema
import numpy as np
import pytest

import kip33
from tests.builders.schema_values import decoded, framed, put_schemas, table_of
from tests.long_forms import short_and_long

SEED = os.environ.get("KIP33_SEED", "33")
VALUES = 5
NUMBERS = ("int", "long", "float", "double")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOGICAL: dict[str, Any] = {
    "date": ("int", {}, lambda random: date(1970, 1, 1) + timedelta(random.randrange(-9999, 9999))),
    "time-millis": ("int", {}, lambda random: time(random.randrange(24), 5, 6, 7000)),
    "time-micros": ("long", {}, lambda random: time(23, 59, 59, random.randrange(10**6))),
    "timestamp-millis": (
        *("long", {}),
        lambda random: EPOCH + timedelta(milliseconds=random.randrange(-(10**13), 10**14)),
    ),
    "timestamp-micros": (
        *("long", {}),
        lambda random: EPOCH + timedelta(microseconds=random.randrange(-(10**16), 10**17)),
    ),
    "decimal": (
        *("bytes", {"precision": 9, "scale": 3}),
        lambda random: Decimal(random.randrange(-(10**9) + 1, 10**9)).scaleb(-3),
    ),
}
TYPES = ("boolean", *NUMBERS, "string", "bytes", "fixed", "enum", *LOGICAL)
CONTAINERS = ("array", "map", "record", "nullable", "union")


class RandomSchemas:
    """Schemas, values of them, and later versions that can read the values."""

    def __init__(self, random: Random) -> None:
        self.random, self._names = random, count()

    def schema(self, depth: int = 3) -> Any:
        kind = self.random.choice((*TYPES, *CONTAINERS * 2) if depth else TYPES)
        if kind in LOGICAL:
            base, more, _ = LOGICAL[kind]
            return {"type": base, "logicalType": kind, **more}
        if kind == "fixed":
            return {"type": "fixed", "name": f"F{next(self._names)}", "size": 3}
        if kind == "enum":
            return {"type": "enum", "name": f"E{next(self._names)}", "symbols": ["A", "B", "C"]}
        if kind == "union":
            return self.random.choice((["null", "long", "string"], ["boolean", "bytes"]))
        if kind == "nullable":
            inner = self.schema(depth - 1)
            return inner if isinstance(inner, list) else ["null", inner]
        if kind == "array":
            return {"type": "array", "items": self.schema(depth - 1)}
        if kind == "map":
            return {"type": "map", "values": self.schema(depth - 1)}
        return self.record(depth) if kind == "record" else kind

    def record(self, depth: int = 3) -> dict[str, Any]:
        fields = [
            {"name": f"f{place}", "type": self.schema(depth - 1)}
            for place in range(self.random.randrange(1, 5))
        ]
        return {"type": "record", "name": f"R{next(self._names)}", "fields": fields}

    def value(self, schema: Any) -> Any:
        random = self.random
        if isinstance(schema, list):
            return self.value(random.choice(schema))
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(schema, dict) and "logicalType" in schema:
            return LOGICAL[schema["logicalType"]][2](random)
        if kind == "record":
            return {one["name"]: self.value(one["type"]) for one in schema["fields"]}
        if kind == "array":
            return [self.value(schema["items"]) for _ in range(random.randrange(4))]
        if kind == "map":
            return {f"k{key}": self.value(schema["values"]) for key in range(random.randrange(4))}
        if kind == "enum":
            return random.choice(schema["symbols"])
        bits = random.choice((6, 14, 31)) if kind == "int" else random.choice((6, 31, 63))
        return {
            **{"null": None, "boolean": random.random() < 0.5},
            **dict.fromkeys(("int", "long"), random.randrange(-(1 << bits), 1 << bits)),
            **dict.fromkeys(("float", "double"), random.randrange(-(1 << 20), 1 << 20) / 8),
            **{"string": random.choice(("", "grün", "x" * 300)), "fixed": random.randbytes(3)},
            "bytes": random.randbytes(random.randrange(9)),
        }[kind]

    def later(self, schema: Any, *, is_field: bool = False) -> Any:
        """Return a version of a schema that can read its values."""
        random = self.random
        if isinstance(schema, dict):
            if schema["type"] in ("array", "map"):
                part = "items" if schema["type"] == "array" else "values"
                inner = schema[part]  # Apache's library promotes no numbers here
                return {**schema, part: inner if isinstance(inner, str) else self.later(inner)}
            if schema["type"] == "record":
                fields = [
                    {**one, "type": self.later(one["type"], is_field=True)}
                    for one in schema["fields"]
                    if random.random() < 0.8
                ]
                fields += [self._added(place) for place in range(random.randrange(3))]
                random.shuffle(fields)
                return {**schema, "fields": fields}
        elif schema in NUMBERS:
            schema = random.choice(NUMBERS[NUMBERS.index(schema) :])
        is_union = isinstance(schema, list)
        return ["null", schema] if is_field and not is_union and random.random() < 0.3 else schema

    def _added(self, place: int) -> dict[str, Any]:
        kinds: list[tuple[Any, Any]] = [
            *(("long", 5), ("string", "grün"), ("bytes", "abc"), ("double", 0.5)),
            *(({"type": "array", "items": "bytes"}, ["a"]), ({"type": "map", "values": "int"}, {})),
            *((["null", "string"], None), (["string", "null"], "s"), ("boolean", True)),
        ]
        part = {"type": "record", "name": f"R{next(self._names)}"}
        part["fields"] = [
            {"name": f"n{at}", "type": kind, "default": default}
            for at, (kind, default) in enumerate(self.random.sample(kinds, 3))
        ]
        given = {
            one["name"]: one["default"] for one in part["fields"] if self.random.random() < 0.5
        }
        kind, default = self.random.choice([*kinds, (part, given)])
        return {"name": f"added{place}", "type": kind, "default": default}


def as_arrow(schema: Any, value: Any) -> Any:
    """Return Apache's value as pyarrow returns the one of kip33."""
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        if value is None or len(others) == 1:
            return None if value is None else as_arrow(others[0], value)
        if isinstance(value, bytes):
            return json.dumps(base64.b64encode(value).decode())
        return json.dumps(value, ensure_ascii=False)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return {one["name"]: as_arrow(one["type"], value[one["name"]]) for one in schema["fields"]}
    if kind == "array":
        return [as_arrow(schema["items"], item) for item in value]
    if kind == "map":
        return [(key, as_arrow(schema["values"], item)) for key, item in value.items()]
    if kind == "double":
        return float(value)  # Apache's library leaves a promoted number a Python int
    return float(np.float32(value)) if kind == "float" else value


def by_apache(writer: Any, reader: Any, payload: bytes) -> Any:
    parsed = [avro.schema.parse(json.dumps(schema)) for schema in (writer, reader)]
    return avro.io.DatumReader(*parsed).read(avro.io.BinaryDecoder(io.BytesIO(payload)))


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    parsed = avro.schema.parse(json.dumps(schema))
    avro.io.DatumWriter(parsed).write(value, avro.io.BinaryEncoder(out))
    return out.getvalue()


@pytest.mark.parametrize("many", short_and_long(8, 300, "KIP33_SCHEMAS"))
def test_values_are_those_of_apaches_library(many: int, tmp_path: Path) -> None:
    for number in range(many):
        schemas = RandomSchemas(Random(f"{SEED}/{number}"))
        writer = schemas.record()
        reader = schemas.later(deepcopy(writer))
        folder = put_schemas(tmp_path / str(number), avsc_1=writer, avsc_2=reader)
        payloads = [written(writer, schemas.value(writer)) for _ in range(VALUES)]
        values = [framed(1, payload) for payload in payloads]
        for reader_id, schema in ((1, writer), (2, reader)):
            expected = [as_arrow(schema, by_apache(writer, schema, one)) for one in payloads]
            found = decoded(folder, *values, reader_schema=reader_id)
            assert found == expected, f"KIP33_SEED={SEED}, schema {number}"
        require_damage_to_be_told(folder, payloads[0], schemas.random)


def require_damage_to_be_told(folder: Path, payload: bytes, random: Random) -> None:
    """A value that is cut has an error; of one with other bytes nothing is promised but a row."""
    damaged = bytearray(payload or b"\0")
    damaged[random.randrange(len(damaged))] = random.randrange(256)
    cut = payload[: random.randrange(len(payload) + 1)]
    table = table_of(framed(1, bytes(damaged)), framed(1, cut))
    rows = kip33.decode(table, folder, reader_schema=1).to_pylist()
    assert len(rows) == 2
    assert cut == payload or rows[1]["decode_error"]
