"""Avro values: types, resolution, references, and bytes that are no value."""

import decimal
import re
import tracemalloc
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

import kip33
from tests.builders.schema_values import avro, decoded, framed, put_schemas, table_of
from tests.builders.segment_builder import zigzag
from tests.cases import each_case


def one(folder: Path, schema: Any, payload: bytes, **options: Any) -> Any:
    """Return what a payload of a schema is decoded to."""
    return decoded(put_schemas(folder, avsc_1=schema), framed(1, payload), **options)[0]


def logical(kind: Any, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


AT = datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)
DECIMAL = decimal.Decimal
TYPES: list[tuple[Any, Any, pa.DataType, Any, str]] = [
    ("null", None, pa.null(), None, "null"),
    ("boolean", True, pa.bool_(), True, "true"),
    ("int", -(2**31), pa.int32(), -(2**31), "-2147483648"),
    ("long", 2**63 - 1, pa.int64(), 2**63 - 1, "9223372036854775807"),
    ("float", 0.5, pa.float32(), 0.5, "0.5"),
    ("double", float("-inf"), pa.float64(), float("-inf"), '"-Infinity"'),
    ("string", "grün", pa.string(), "grün", '"grün"'),
    (["null", "bytes"], b"ab", pa.binary(), b"ab", '"YWI="'),
    (["null", "int"], None, pa.int32(), None, "null"),
    (["null", "int", "string"], "x", pa.string(), '"x"', '"x"'),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", pa.string(), "B", '"B"'),
    ({"type": "fixed", "name": "F", "size": 2}, b"ab", pa.binary(2), b"ab", '"YWI="'),
    ({"type": "array", "items": "int"}, [1, 2], pa.list_(pa.int32()), [1, 2], "[1,2]"),
    (
        *({"type": "map", "values": ["null", "long"]}, {"a": 1, "b": None}),
        *(pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", None)], '{"a":1,"b":null}'),
    ),
    (logical("int", "date"), date(1969, 12, 30), pa.date32(), date(1969, 12, 30), '"1969-12-30"'),
    (
        *(logical("int", "time-millis"), time(1, 2, 3, 4000), pa.time32("ms")),
        *(time(1, 2, 3, 4000), '"01:02:03.004000"'),
    ),
    (
        *(logical("long", "time-micros"), time(1, 2, 3, 4), pa.time64("us")),
        *(time(1, 2, 3, 4), '"01:02:03.000004"'),
    ),
    (
        *(logical("long", "timestamp-millis"), AT, pa.timestamp("ms", "UTC")),
        *(AT, '"2023-11-14T22:13:20.123000+00:00"'),
    ),
    (
        *(logical("long", "timestamp-micros"), AT, pa.timestamp("us", "UTC")),
        *(AT, '"2023-11-14T22:13:20.123000+00:00"'),
    ),
    (
        *(logical("long", "local-timestamp-millis"), AT.replace(tzinfo=None)),
        *(pa.timestamp("ms"), AT.replace(tzinfo=None), '"2023-11-14T22:13:20.123000"'),
    ),
    (
        *(logical("string", "uuid"), UUID(int=5), pa.string()),
        *(str(UUID(int=5)), f'"{UUID(int=5)}"'),
    ),
    (
        *(logical("bytes", "decimal", precision=4, scale=2), DECIMAL("-12.34")),
        *(pa.decimal128(4, 2), DECIMAL("-12.34"), '"-12.34"'),
    ),
    (
        *(logical("bytes", "decimal", precision=50, scale=1), DECIMAL("1.5")),
        *(pa.decimal256(50, 1), DECIMAL("1.5"), '"1.5"'),
    ),
    (
        logical("fixed", "decimal", name="D", size=4, precision=8),
        *(DECIMAL(7), pa.decimal128(8, 0), DECIMAL(7), '"7"'),
    ),
    (logical("long", "of a later version"), 5, pa.int64(), 5, "5"),
]


@each_case(("schema", "sent", "kind", "value", "text"), TYPES)
def test_types(schema: Any, sent: Any, kind: Any, value: Any, text: Any, tmp_path: Path) -> None:
    """Alone, and in a record."""
    record = {"type": "record", "name": "R", "fields": [{"name": "f", "type": schema}]}
    put_schemas(tmp_path, avsc_1=schema, avsc_2=record)
    alone = table_of(framed(1, avro(schema, sent)))
    inside = table_of(framed(2, avro(record, {"f": sent})))
    table = kip33.decode(alone, tmp_path, reader_schema=1)
    assert table.schema.field("decoded").type == kind
    assert table.column("decoded").to_pylist() == [value]
    table = kip33.decode(inside, tmp_path, reader_schema=2)
    assert table.schema.field("decoded").type == pa.struct({"f": kind})
    assert table.column("decoded").to_pylist() == [{"f": value}]
    alone_text = None if sent is None else text  # null, not the text "null"
    assert decoded(tmp_path, framed(1, avro(schema, sent)), as_json=True) == [alone_text]
    assert decoded(tmp_path, framed(2, avro(record, {"f": sent})), as_json=True) == [
        f'{{"f":{text}}}'
    ]


def test_the_schema_bytes_alone_is_written_as_it_is(tmp_path: Path) -> None:
    """As Confluent's serializer for Java does."""
    assert one(tmp_path, '"bytes"', b"ab") == b"ab"
    assert one(tmp_path, '"bytes"', b"", as_json=True) == '""'


def test_a_union_of_records_keeps_the_names(tmp_path: Path) -> None:
    kinds = [{"type": "record", "name": name, "fields": []} for name in ("a.X", "a.Y")]
    schema = {"type": "record", "name": "R", "fields": [{"name": "u", "type": kinds}]}
    assert one(tmp_path, schema, b"\x02") == {"u": '{"a.Y":{}}'}
    assert one(tmp_path, schema, b"\x02", as_json=True) == '{"u":{"a.Y":{}}}'


TREE = {
    **{"type": "record", "name": "Node"},
    "fields": [{"name": "id", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
}


def test_a_type_inside_itself_is_json_text(tmp_path: Path) -> None:
    value = {"id": 1, "next": {"id": 2, "next": {"id": 3, "next": None}}}
    assert one(tmp_path, TREE, avro(TREE, value)) == {
        "id": 1,
        "next": '{"id":2,"next":{"id":3,"next":null}}',
    }


def test_a_type_that_is_used_twice(tmp_path: Path) -> None:
    line = {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}
    fields = [{"name": "a", "type": line}, {"name": "b", "type": ["null", "Line"]}]
    schema = {"type": "record", "name": "shop.R", "fields": fields}
    value = {"a": {"n": 1}, "b": {"n": 2}}
    assert one(tmp_path, schema, avro(schema, value)) == value


def test_types_of_other_schemas(tmp_path: Path) -> None:
    customer = {
        **{"type": "record", "name": "Customer", "namespace": "shop"},
        "fields": [{"name": "address", "type": "Address"}],
    }
    address = {"type": "record", "name": "Address", "namespace": "shop", "fields": []}
    put_schemas(tmp_path, avsc_Customer=customer)
    (tmp_path / "Customer.avsc").rename(tmp_path / "shop.Customer.avsc")
    put_schemas(tmp_path, avsc_Address=address)
    (tmp_path / "Address.avsc").rename(tmp_path / "shop.Address.avsc")
    fields = [{"name": "a", "type": "Customer"}, {"name": "b", "type": "shop.Customer"}]
    schema = {"type": "record", "name": "shop.Order", "fields": fields}
    assert one(tmp_path, schema, b"") == {"a": {"address": {}}, "b": {"address": {}}}


HOSTILE: list[tuple[Any, bytes, str]] = [
    (["null", "int"], b"\x03", "branch -2 of a union found, it has 2"),
    (["null", "int"], b"\x04", "branch 2 of a union found, it has 2"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\1", "index -1 of an enum found"),
    ("boolean", b"\7", "boolean 7 found, expected 0 or 1"),
    ("int", zigzag(2**31), "number 2147483648 found, expected -2147483648 to 2147483647"),
    ("long", b"\xff" * 11, "a number of more than 10 bytes found"),
    ("long", b"\xff" * 9 + b"\x7f", "number .* found, expected -9223372036854775808"),
    ("long", b"\xff\xff", "2 bytes found, the Avro value is longer"),
    ("string", zigzag(2**62), "a length of 4611686018427387904 found, 0 bytes are left"),
    ("string", zigzag(-1) + b"abc", "a length of -1 found"),
    ("string", b"\2\xff", "'utf-8' codec can't decode"),
    ("double", b"\0" * 7, "a length of 8 found, 7 bytes are left"),
    ("double", b"\0" * 9, "1 bytes found after the Avro value"),
    ({"type": "array", "items": "null"}, zigzag(2**60), "items found, 0 bytes are left"),
    ({"type": "array", "items": "null"}, b"\2\0", "an array of items without bytes found"),
    ({"type": "array", "items": "int"}, zigzag(-(2**62)) + b"\0", "items found, 0 bytes"),
    ({"type": "map", "values": "int"}, zigzag(2**40) + b"\0", "items found, 1 bytes are left"),
    (TREE, b"\0\2" * 3_000_000, "more than 300 levels of types found"),
    (logical("bytes", "decimal", precision=2), b"\4\x7f\xff", "more digits than its precision 2"),
    (logical("long", "timestamp-millis"), zigzag(2**62), "."),
    (logical("string", "uuid"), b"\2a", "badly formed hexadecimal UUID string"),
]


@each_case(("schema", "payload", "reason"), HOSTILE)
def test_bytes_that_are_no_value(schema: Any, payload: Any, reason: str, tmp_path: Path) -> None:
    record = {"type": "record", "name": "Outer", "fields": [{"name": "f", "type": schema}]}
    put_schemas(tmp_path, avsc_1=record)
    tracemalloc.start()
    try:
        table = kip33.decode(table_of(framed(1, payload)), tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(payload) + 8_000_000
    finally:
        tracemalloc.stop()
    row = table.to_pylist()[0]
    assert row["decoded"] is None
    assert row["schema_id"] == 1
    assert re.search(reason, row["decode_error"])


WRONG_SCHEMAS = [
    ("{", "the Avro schema is not JSON"),
    ("[" * 100_000, "the Avro schema is nested too deeply"),
    ('{"type":"array","items":' * 500 + '"int"' + "}" * 500, "more than 100 levels"),
    ({"type": "record", "name": "R"}, "Avro record 'R' without fields found"),
    ({"type": "record", "fields": []}, "an Avro type without a name found"),
    ("7", "'7' found, expected an Avro type"),
    ('["Missing"]', "Avro type 'Missing' found, it is not defined"),
    ({"type": "fixed", "name": "F"}, "size"),
]


@each_case(("schema", "reason"), WRONG_SCHEMAS)
def test_schemas_that_cannot_be_used(schema: Any, reason: str, tmp_path: Path) -> None:
    put_schemas(tmp_path, avsc_1=schema, avsc_2='"int"')
    assert reason in decoded(tmp_path, framed(1, b"\2"), reader_schema=2)[0]
    with pytest.raises(ValueError, match="reader schema 1 of "):
        decoded(tmp_path, framed(1, b"\2"), reader_schema=1)


def test_a_schema_of_a_million_fields_is_refused(tmp_path: Path) -> None:
    """Each record has the one before it twice."""
    inner: Any = "int"
    for level in range(30):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"R{level - 1}"}]
        inner = {"type": "record", "name": f"R{level}", "fields": fields if level else []}
    put_schemas(tmp_path, avsc_1=inner)
    with pytest.raises(ValueError, match="has more than 10000 fields"):
        decoded(tmp_path, framed(1, b""), reader_schema=1)


def test_a_value_that_the_reader_schema_cannot_take(tmp_path: Path) -> None:
    put_schemas(tmp_path, avsc_1='"string"', avsc_2='"int"', avsc_3='"long"', avsc_4='"bytes"')
    values = [framed(1, b"\2a"), framed(2, b"\2"), framed(4, b"a")]
    found = decoded(tmp_path, *values, reader_schema=3)
    assert "string" in found[0]
    assert found[1:] == [1, "bytes found, the reader schema has another type"]


def test_names_and_symbols_of_older_schemas_are_brought_to_the_reader_schema(
    tmp_path: Path,
) -> None:
    """`test_decode_avro_library.py` has promoted numbers, defaults, and fields that are dropped."""
    old, states = _of("Order", {"name": "name", "type": "string"}), ["A", "B"]
    old["fields"].append({"name": "s", "type": {"type": "enum", "name": "S", "symbols": states}})
    some = {"type": "enum", "name": "S", "symbols": ["A", "OTHER"], "default": "OTHER"}
    title = {"name": "title", "type": ["null", "string"], "aliases": ["name"]}
    put_schemas(tmp_path, avsc_1=old, avsc_2=_of("Order", title, {"name": "s", "type": some}))
    sent = avro(old, {"name": "n", "s": "B"})
    found = decoded(tmp_path, framed(1, sent), reader_schema=2)
    assert found == [{"title": "n", "s": "OTHER"}]


def _of(name: str, *fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


INNER = _of(
    "Inner",
    {"name": "raw", "type": "bytes", "default": "\u00fe"},
    {"name": "n", "type": "int", "default": 7},
)
DEFAULTS: list[tuple[Any, Any, Any]] = [  # a type, a default, the value
    ("bytes", "\u00ff\u0000a", b"\xff\0a"),
    (["bytes", "null"], "\u00ff", b"\xff"),
    (["null", "bytes"], None, None),
    (["null", "bytes"], "\u00ff", b"\xff"),  # from Avro 1.12 on: any type of the union
    (["bytes", "string"], "\u00ff", '"/w=="'),
    ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
    ({"type": "map", "values": "bytes"}, {"k": "\u00ff"}, [("k", b"\xff")]),
    (INNER, {}, {"raw": b"\xfe", "n": 7}),
    (INNER, {"raw": "\u00ff"}, {"raw": b"\xff", "n": 7}),
    ({"type": "array", "items": INNER}, [{"n": 1}], [{"raw": b"\xfe", "n": 1}]),
    ([INNER, "null"], {"n": 2}, {"raw": b"\xfe", "n": 2}),
    ([INNER, _of("Other")], {"n": 2}, '{"Inner":{"raw":"/g==","n":2}}'),
    ({"type": "fixed", "name": "F", "size": 2}, "\u00ff\u0001", b"\xff\1"),
    (logical("bytes", "decimal", precision=4, scale=2), "\u00ff", DECIMAL("-0.01")),
    (logical("fixed", "decimal", name="D", size=2, precision=4), "\u0001\u0000", DECIMAL(256)),
    (logical("bytes", "decimal", precision=99, scale=1), "\u000f", "1.5"),
    ({"type": "double"}, 3, 3.0),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
    (logical("long", "time-micros"), 5, time(0, 0, 0, 5)),
    (logical("long", "timestamp-millis"), 1_700_000_000_123, AT),
    (["null", logical("long", "timestamp-millis"), "string"], 0, '"1970-01-01T00:00:00+00:00"'),
]


@each_case(("kind", "default", "value"), DEFAULTS)
def test_a_default_is_the_value_that_the_specification_says(
    kind: Any, default: Any, value: Any, tmp_path: Path
) -> None:
    new = _of("R", {"name": "f", "type": kind, "default": default})
    put_schemas(tmp_path, avsc_1=_of("R"), avsc_2=new)
    assert decoded(tmp_path, framed(1, b""), reader_schema=2) == [{"f": value}]


WRONG_DEFAULTS = [
    ("bytes", "\u0100", "expected characters up to \\u00ff"),
    ("bytes", 5, "default '5' found, expected a default of type bytes"),
    ({"type": "fixed", "name": "F", "size": 2}, "a", "default 'a' found, expected 2 bytes"),
    ("int", 2**31, "default '2147483648' found, expected a default of type int"),
    ("boolean", 1, "expected a default of type boolean"),
    ("long", True, "expected a default of type long"),
    (["null", "int"], "a", "expected a type of the union"),
    (_of("Inner", {"name": "n", "type": "int"}), {}, "a default without field 'n' found"),
    (logical("long", "time-micros"), -5, "time-micros -5 found, expected 0 to 86399999999"),
    ("Node", {}, "more than 100 levels"),
]


@each_case(("kind", "default", "reason"), WRONG_DEFAULTS)
def test_defaults_of_another_type(kind: Any, default: Any, reason: str, tmp_path: Path) -> None:
    fields = [{"name": "f", "type": kind, "default": default}]
    if kind == "Node":
        fields = [{"name": "f", "type": _of("Node", *fields), "default": {}}]
    put_schemas(tmp_path, avsc_1=_of("R"), avsc_2=_of("R", *fields))
    with pytest.raises(ValueError, match="reader schema 2 of ") as error:
        decoded(tmp_path, framed(1, b""), reader_schema=2)
    assert reason in str(error.value)
    # The writer's defaults are not used.
    value = avro("int", 0) if isinstance(kind, str) else b""
    written = decoded(tmp_path, framed(2, value), reader_schema=1)
    assert kind not in ("int", "long") or written == [{}]


def test_defaults_that_grow_with_each_level(tmp_path: Path) -> None:
    """Each record has the one before it twice, by default."""
    inner: Any = _of("R0")
    for level in range(1, 30):
        inner = _of(
            f"R{level}",
            {"name": "a", "type": inner, "default": {}},
            {"name": "b", "type": f"R{level - 1}", "default": {}},
        )
    put_schemas(tmp_path, avsc_1=_of("Outer"), avsc_2=_of("Outer", {"name": "f", "type": inner}))
    with pytest.raises(ValueError, match="100000 values"):
        decoded(tmp_path, framed(1, b""), reader_schema=2)


LOGICAL_CHANGES: list[tuple[Any, Any, Any, Any]] = [  # writer, its raw value, reader, value
    (logical("long", "timestamp-millis"), 5, "long", 5),
    (logical("long", "timestamp-micros"), 2**62, "long", 2**62),
    (logical("long", "timestamp-millis"), 5, "double", 5.0),
    (logical("long", "time-micros"), -5, "long", -5),
    (logical("int", "date"), 5, "int", 5),
    (logical("int", "date"), 5, "long", 5),
    (logical("int", "time-millis"), 5, ["null", "int"], 5),
    (["null", logical("long", "timestamp-millis")], 5, "long", 5),
    (logical("long", "timestamp-millis"), 5, ["string", "long"], "5"),
    (logical("bytes", "decimal", precision=4, scale=2), b"\1\2", "bytes", b"\1\2"),
    (logical("bytes", "decimal", precision=9, scale=2), b"ab", "string", "ab"),
    (
        *(logical("fixed", "decimal", name="D", size=2, precision=4), b"\1\2"),
        *({"type": "fixed", "name": "D", "size": 2}, b"\1\2"),
    ),
    (logical("string", "uuid"), str(UUID(int=5)), "string", str(UUID(int=5))),
    (logical("string", "uuid"), "ab", "bytes", b"ab"),
    ("long", 5, logical("long", "time-micros"), time(0, 0, 0, 5)),
    ("long", 0, logical("long", "timestamp-millis"), datetime(1970, 1, 1, tzinfo=UTC)),
    ("int", 5, logical("int", "date"), date(1970, 1, 6)),
    ("bytes", b"\xff", logical("bytes", "decimal", precision=4, scale=2), DECIMAL("-0.01")),
    ("bytes", b"\x0f", logical("bytes", "decimal", precision=99, scale=1), "1.5"),
    ("long", -5, logical("long", "time-micros"), "time-micros -5 found"),
    (logical("long", "time-micros"), -5, logical("long", "time-micros"), "time-micros -5 found"),
    (logical("int", "time-millis"), -5, logical("int", "time-millis"), "time-millis -5 found"),
    (
        *(logical("long", "time-micros"), 86_400_000_000, logical("long", "time-micros")),
        "time-micros 86400000000 found, expected 0 to 86399999999: a time of day",
    ),
]


@each_case(("writer", "raw", "reader", "value"), LOGICAL_CHANGES)
def test_a_logical_type_that_only_one_schema_has(
    writer: Any, raw: Any, reader: Any, value: Any, tmp_path: Path
) -> None:
    def in_record(kind: Any) -> Any:
        return _of("R", {"name": "f", "type": kind})

    def plain(kind: Any) -> Any:
        if isinstance(kind, list):
            return [plain(branch) for branch in kind]
        drop = ("logicalType", "precision", "scale")
        if not isinstance(kind, dict):
            return kind
        return {key: one for key, one in kind.items() if key not in drop}

    put_schemas(tmp_path, avsc_1=in_record(writer), avsc_2=in_record(reader))
    payload = avro(in_record(plain(writer)), {"f": raw})
    [found] = decoded(tmp_path, framed(1, payload), reader_schema=2)
    if isinstance(found, str):
        assert isinstance(value, str) and value in found
    else:
        assert found == {"f": value}


def test_a_record_of_a_union_for_a_reader_with_one_record(tmp_path: Path) -> None:
    """The writer's union has several records, the reader's schema has one of them."""
    several = [_of("X", {"name": "n", "type": "int"}), _of("Y")]
    put_schemas(
        tmp_path,
        avsc_1=_of("R", {"name": "f", "type": several}),
        avsc_2=_of("R", {"name": "f", "type": several[0]}),
        avsc_3=_of("R", {"name": "f", "type": ["null", several[0]]}),
    )
    for reader in (2, 3):
        assert decoded(tmp_path, framed(1, b"\0\2"), reader_schema=reader) == [{"f": {"n": 1}}]
