"""`decode`: columns, readers and tables, the choice of the reader schema, wrong arguments."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kip33
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
from tests.records.test_levels import build

GOLDEN = json.loads((Path(__file__).parent / "values_of_other_writers.json").read_text())
SUFFIX = {"AVRO": "avsc", "JSON": "json", "PROTOBUF": "proto"}


@pytest.fixture
def schemas(tmp_path: Path) -> Path:
    return put_schemas(tmp_path / "schemas", avsc_1=V1, avsc_2=V2)


def test_three_columns_are_added_and_no_row_is_dropped(schemas: Path) -> None:
    wrong = framed(2, b"\x02")
    values = [OLD, None, NEW, wrong, b"text", framed(9, b""), b"\1" + NEW[1:]]
    table = kip33.decode(table_of(*values, topic="orders"), schemas, reader_schema=2)
    assert table.schema.field("decoded").type == pa.struct({"id": pa.int64(), "state": pa.string()})
    assert table.schema.field("schema_id").type == pa.int32()
    assert table.column("value").to_pylist() == values
    assert table.select(["decoded", "schema_id", "decode_error"]).to_pylist() == [
        {"decoded": {"id": 5, "state": "new"}, "schema_id": 1, "decode_error": None},
        {"decoded": None, "schema_id": None, "decode_error": None},
        {"decoded": {"id": 6, "state": "paid"}, "schema_id": 2, "decode_error": None},
        {
            **{"decoded": None, "schema_id": 2},
            "decode_error": "1 bytes found, the Avro value is longer",
        },
        {
            **{"decoded": None, "schema_id": None},
            "decode_error": "4 bytes found, expected a magic byte and a schema id (5 bytes)",
        },
        {
            **{"decoded": None, "schema_id": 9},
            "decode_error": f"schema 9 is not in {schemas.as_uri()}",
        },
        {
            **{"decoded": None, "schema_id": None},
            "decode_error": "magic byte 1 found, expected 0 (Confluent's wire format)",
        },
    ]


def test_a_reader_is_decoded_while_it_is_used(schemas: Path) -> None:
    read = []

    def batches() -> Any:
        for number in range(3):
            read.append(number)
            yield table_of(OLD, NEW).to_batches()[0]

    source = pa.RecordBatchReader.from_batches(table_of(OLD).schema, batches())
    reader = kip33.decode(source, schemas, reader_schema=1)
    assert isinstance(reader, pa.RecordBatchReader)
    assert read == []
    assert reader.read_next_batch()["decoded"].to_pylist() == [{"id": 5}, {"id": 6}]
    assert read == [0]
    assert reader.read_all().num_rows == 4


def test_few_bytes_are_decoded_at_once() -> None:
    values = [b"x" * 400_000] * 6 + [b"y" * 3_000_000] + [None] * 5000
    sizes = [len(one) for one in kip33.decode(table_of(*values), "strings").to_batches()]
    assert sizes == [2, 2, 2, 1, 4096, 904]


def test_a_table_of_several_chunks_and_slices(schemas: Path) -> None:
    table = pa.concat_tables([table_of(OLD, NEW, OLD).slice(1), table_of(NEW)])
    found = kip33.decode(table, schemas, reader_schema=1).column("decoded").to_pylist()
    assert found == [{"id": 6}, {"id": 5}, {"id": 6}]


def test_strings_and_json_need_no_schema() -> None:
    values = ["grün".encode(), b'{"a": 1}', None, b"\xff", b"NaN", b'{"a": 1} x']
    assert decoded("strings", *values) == [
        *("grün", '{"a": 1}', None),
        "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        *("NaN", '{"a": 1} x'),
    ]
    assert decoded("json", *values) == [
        "malformed JSON: Expecting value: line 1 column 1 (char 0)",
        *('{"a": 1}', None),
        "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        "NaN found, JSON has no such number",
        "malformed JSON: Extra data: line 1 column 10 (char 9)",
    ]
    assert decoded("json", b"[" * 100_000)[0].startswith("maximum recursion depth")


def test_keys_and_values_in_one_table(schemas: Path) -> None:
    table = pa.table({"key": [b"k"], "value": [OLD]})
    table = kip33.decode(table, "strings", column="key", prefix="key_")
    table = kip33.decode(table, schemas, reader_schema=1)
    assert table.drop_columns(["key", "value"]).to_pylist() == [
        {
            **{"key_decoded": "k", "key_schema_id": None, "key_decode_error": None},
            **{"decoded": {"id": 5}, "schema_id": 1, "decode_error": None},
        }
    ]


def test_as_json_takes_every_schema(tmp_path: Path) -> None:
    put_schemas(tmp_path, avsc_1=V1, avsc_2=V2, json_3={"type": "object"})
    found = decoded(tmp_path, OLD, NEW, framed(3, b'{"x": [1.0]}'), as_json=True)
    assert found == ['{"id":5}', '{"id":6,"state":"paid"}', '{"x": [1.0]}']


def test_the_one_schema_of_a_directory_is_the_reader_schema(tmp_path: Path) -> None:
    put_schemas(tmp_path, avsc_1=V1)
    assert decoded(tmp_path, OLD) == [{"id": 5}]


def test_another_language_than_that_of_the_reader_schema(tmp_path: Path) -> None:
    put_schemas(tmp_path, avsc_1=V1, json_3={"type": "object"})
    assert decoded(tmp_path, framed(3, b"{}"), reader_schema=1) == [
        "schema 3 is JSON, the reader schema 1 is AVRO"
    ]


WRONG_ARGUMENTS = [
    (table_of(OLD), {"column": "v"}, "column: 'v' found, expected one of value"),
    (pa.table({"value": ["text"]}), {}, "column: 'value' is string, expected binary"),
    (
        pa.table({"value": [OLD], "decoded": [1]}),
        {},
        "columns decoded found already: pass prefix= for other names",
    ),
    (table_of(OLD), {}, "records without a column 'topic' found: pass reader_schema="),
    (table_of(OLD, topic="orders"), {}, "subject 'orders-value' is not in file:"),
    (table_of(OLD), {"reader_schema": 8}, "reader_schema: 8 found, it is not in file:"),
    (table_of(OLD), {"reader_schema": 3}, "reader schema 3 of file:.* Avro type 'Missing'"),
]


@each_case(("table", "options", "message"), WRONG_ARGUMENTS)
def test_a_wrong_argument_is_a_value_error(
    table: Any, options: Any, message: str, schemas: Path
) -> None:
    put_schemas(schemas, avsc_3='"Missing"')
    with pytest.raises(ValueError, match=message):
        kip33.decode(table, schemas, **options)


def test_an_empty_table_has_the_columns(schemas: Path) -> None:
    table = kip33.decode(table_of(topic="orders"), schemas)
    assert table.schema.names == ["value", "topic", "decoded", "schema_id", "decode_error"]
    assert kip33.decode(table_of(), schemas, reader_schema=1).schema.field("decoded").type == (
        pa.struct({"id": pa.int64()})
    )


@pytest.mark.slow
def test_values_of_other_writers(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Bytes by the serializers of confluent-kafka 2.16 and by Apache Avro 1.12 for Python."""
    for number, golden in enumerate(GOLDEN):
        with subtests.test(golden["writer"]):
            folder = tmp_path / str(number)
            folder.mkdir()
            value = bytes.fromhex(golden["value"])
            number = int.from_bytes(value[1:5], "big")
            put_schemas(folder, **{f"{SUFFIX[golden['kind']]}_{number}": golden["schema"]})
            assert [json.loads(one) for one in decoded(folder, value, as_json=True)] == [
                EXPECTED[golden["writer"].partition(" by ")[0]]
            ]
            cut = decoded(folder, *(value[:end] for end in range(len(value))), as_json=True)
            assert len(cut) == len(value)
            assert golden["kind"] == "PROTOBUF" or not any(one.startswith("{") for one in cut)


EXPECTED = {
    "avro": {
        **{"id": -5, "state": "PAID", "price": "-12.34", "note": "grün", "tags": {"x": 0.5}},
        **{"at": "2023-11-14T22:13:20.123000+00:00", "at_us": "2023-11-14T22:13:20.123456+00:00"},
        **{"day": "1969-12-30", "raw": "AAEC", "either": "s"},
        "lines": [{"sku": "a", "count": 1}, {"sku": "b", "count": -2}],
    },
    "protobuf": {
        **{"id": "-5", "state": "PAID", "prices": {"x": 0.5}, "at": "2023-11-14T22:13:20.123Z"},
        **{"cash": "9223372036854775808", "raw": "AAE="},
        "lines": [{"sku": "a", "count": 1}, {"sku": "b", "count": -2}],
    },
    "a message inside a message": {"sku": "a", "count": 1},
    "the first message": {"name": "Ann"},
    "JSON": {"id": 5, "note": None, "lines": [{"sku": "a", "price": 1.5}]},
}

BLOCKED = """
import sys
sys.modules.update({name: None for name in {names}})
import pyarrow as pa, kip33
for as_json in (False, True):
    try:
        table = kip33.decode(pa.table({"value": [{value}]}), {schemas}, as_json=as_json)
        print(table.column("decoded").to_pylist(), table.column("decode_error").to_pylist())
    except ImportError as error:
        print(error)
"""
TEXTS = {"json": "{}", "avsc": "long", "proto": 'syntax = "proto3"; message O { int32 x = 1; }'}
NEEDED: list[tuple[list[str], str, bytes, str]] = [  # packages that are missing, and what is said
    (["fastavro"], "avsc", OLD, "decode: the Python package of fastavro is not installed"),
    (["google.protobuf"], "proto", OLD, "decode: the Python package of google.protobuf."),
    (["grpc_tools"], "proto", OLD, "decode: the Python package of grpc_tools is not installed"),
    (["fastavro", "google.protobuf", "grpc_tools"], "json", b"\0\0\0\0\1{}", "['{}'] [None]"),
]


@pytest.mark.slow
@each_case(("names", "schema", "value", "said"), NEEDED)
def test_what_the_extra_is_needed_for(
    names: Any, schema: str, value: Any, said: str, tmp_path: Path
) -> None:
    folder = put_schemas(tmp_path / names[-1] / schema, **{f"{schema}_1": TEXTS[schema]})
    code = BLOCKED
    for name, text in (("names", names), ("value", value), ("schemas", str(folder))):
        code = code.replace(f"{{{name}}}", repr(text))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count(said) == 2
    assert "decode:" not in said or "pip install 'kip33[schemas]'\n" in done.stdout


@pytest.mark.slow
def test_an_archive_by_its_catalog(tmp_path: Path) -> None:
    """The catalog names the archive's segments, those of `_schemas` too."""
    put_log(tmp_path / "a", "_schemas-0", registered("orders-value", 1, 2, V2))
    put_log(tmp_path / "a", "orders-0", (b"k", NEW))
    place = build(tmp_path / "a", tmp_path)
    catalog = kip33.open_catalog(place)
    records = kip33.read_arrow(catalog, topic="orders", on_error="row")
    table = kip33.decode(records, kip33.Schemas.from_archive(catalog)).read_all()
    assert table.column("decoded").to_pylist() == [{"id": 6, "state": "paid"}]
    again = kip33.decode(table.select(["topic", "value"]), place)
    assert again.column("decoded") == table.column("decoded")
