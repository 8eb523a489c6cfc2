"""JSON values by a JSON Schema: types, references, and values that do not fit."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kip33
from tests.builders.schema_values import decoded, framed, put_schemas, table_of
from tests.cases import each_case

TEXT, WHOLE = {"type": "string"}, {"type": "integer"}


TYPES = [
    (TEXT, '"grün"', pa.string(), "grün"),
    (WHOLE, "5.0", pa.int64(), 5),
    ({"type": "number"}, "5", pa.float64(), 5.0),
    ({"type": "boolean"}, "true", pa.bool_(), True),
    ({"type": "null"}, "null", pa.null(), None),
    ({"type": ["null", "integer"]}, "null", pa.int64(), None),
    ({"oneOf": [{"type": "null"}, WHOLE]}, "7", pa.int64(), 7),
    ({"anyOf": [TEXT, WHOLE]}, "7", pa.string(), "7"),
    ({"type": ["string", "integer"]}, '"a"', pa.string(), '"a"'),
    ({}, '{"b": [1, 2.5]}', pa.string(), '{"b":[1,2.5]}'),
    (True, "1", pa.string(), "1"),
    ({"type": "array", "items": WHOLE}, "[1, null]", pa.list_(pa.int64()), [1, None]),
    ({"type": "array"}, "[1]", pa.string(), "[1]"),
    ({"type": "object"}, '{"a": 1}', pa.string(), '{"a":1}'),
    (
        *({"type": "object", "additionalProperties": WHOLE}, '{"a": 1}'),
        *(pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    ),
    (
        {"type": "object", "properties": {"a": WHOLE, "b": {"$ref": "#/$defs/x~1y"}}}
        | {"$defs": {"x/y": {"type": "object", "properties": {"c": TEXT}}}},
        '{"b": {"c": "d", "other": 1}, "unknown": 2}',
        pa.struct({"a": pa.int64(), "b": pa.struct({"c": pa.string()})}),
        {"a": None, "b": {"c": "d"}},
    ),
    (
        {"type": "object", "properties": {"next": {"$ref": "#"}}},
        '{"next": {"next": {"next": null}}}',
        pa.struct({"next": pa.struct({"next": pa.string()})}),
        {"next": {"next": '{"next":null}'}},
    ),
    ({"$ref": "https://elsewhere/schema.json"}, "1", pa.string(), "1"),
]


@each_case(("schema", "text", "kind", "value"), TYPES)
def test_types(schema: Any, text: Any, kind: Any, value: Any, tmp_path: Path) -> None:
    put_schemas(tmp_path, json_1=schema)
    table = kip33.decode(table_of(framed(1, text.encode())), tmp_path)
    assert table.schema.field("decoded").type == kind
    assert table.column("decode_error").to_pylist() == [None]
    assert table.column("decoded").to_pylist() == [value]


WRONG_VALUES = [
    (WHOLE, "true", "'True' found, the JSON Schema expects an integer"),
    (WHOLE, "1.5", "'1.5' found, the JSON Schema expects an integer"),
    (WHOLE, "1e999", "1e999 found, expected a number that a double can have"),
    ({"type": "number"}, "1e400", "1e400 found, expected a number that a double can have"),
    ({"type": "number"}, "-1e400", "-1e400 found, expected a number that a double"),
    ({}, '{"a": [1e400]}', "1e400 found, expected a number that a double can have"),
    (WHOLE, str(2**63), "too"),
    (WHOLE, "9" * 5000, "integer string conversion"),
    ({"type": "number"}, "true", "'True' found, the JSON Schema expects a number"),
    ({"type": "number"}, '"1"', "'1' found, the JSON Schema expects a number"),
    ({"type": "boolean"}, "1", "'1' found, the JSON Schema expects a boolean"),
    (TEXT, "1", "'1' found, the JSON Schema expects a string"),
    (TEXT, '"\\ud800"', "surrogates not allowed"),
    ({"type": "object", "properties": {"a": TEXT}}, "[]", "expects an object"),
    ({"type": "array", "items": TEXT}, "{}", "expects an array"),
    ({"type": "null"}, "1", "Invalid null value"),
]


@each_case(("schema", "text", "reason"), WRONG_VALUES)
def test_values_that_do_not_fit(schema: Any, text: Any, reason: str, tmp_path: Path) -> None:
    put_schemas(tmp_path, json_1=schema, avsc_2='"int"')
    right = framed(1, b"null")
    found = decoded(tmp_path, right, framed(1, text.encode()), right, reader_schema=1)
    assert found[0] is found[2] is None
    assert reason in found[1]


def test_a_number_that_no_double_can_have_stays_in_json_text(tmp_path: Path) -> None:
    put_schemas(tmp_path, json_1={})
    assert decoded(tmp_path, framed(1, b"[1e400]"), as_json=True) == ["[1e400]"]
    assert decoded("json", b"1e400") == ["1e400"]


def test_an_imported_document(tmp_path: Path) -> None:
    folder = put_schemas(tmp_path, json_1={"$ref": "line.json#/$defs/Line"})
    put_schemas(
        folder, json_line={"$defs": {"Line": {"type": "object", "properties": {"n": WHOLE}}}}
    )
    assert decoded(folder, framed(1, b'{"n": 3}')) == [{"n": 3}]


def test_a_schema_that_is_not_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the JSON Schema is not JSON"):
        decoded(put_schemas(tmp_path, json_1="{"), framed(1, b"1"))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(values=st.lists(JSON, max_size=5))
def test_any_json_comes_back(values: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = put_schemas(tmp_path_factory.mktemp("schemas"), json_1={})
    found = decoded(folder, *(framed(1, json.dumps(value).encode()) for value in values))
    for value, one in zip(values, found, strict=True):
        assert one is None if value is None else json.loads(one) == value
