"""Protobuf values: types, presence, messages inside messages, imports, wrong bytes."""

import base64
import random
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.message import Message

import kip33
from kip33.records.protobuf_values import file_descriptor
from tests.builders.schema_values import decoded, framed, protobuf_framed, put_schemas, table_of
from tests.cases import each_case

TEXT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Order {
  message Line { string sku = 1; int32 count = 2; message Tag { string name = 1; } }
  enum State { NEW = 0; PAID = 1; }
  int64 id = 1;
  State state = 2;
  repeated Line lines = 3;
  map<string, Line> by_sku = 4;
  google.protobuf.Timestamp at = 5;
  google.protobuf.Duration took = 6;
  optional string note = 7;
  oneof pay { string card = 8; uint64 cash = 9; }
  bytes raw = 10;
  google.protobuf.Int32Value maybe = 11;
  google.protobuf.Struct free = 12;
  Order before = 13;
  float part = 14;
  fixed32 mark = 15;
  repeated uint32 numbers = 16;
  map<int32, bool> flags = 17;
}
message Refund { int64 order_id = 1; }
"""
FILE = file_descriptor(TEXT, {})


def message(name: str = "Order", **fields: Any) -> Message:
    kind = message_factory.GetMessageClass(FILE.message_types_by_name[name])
    found: Message = kind(**fields)
    return found


def full_order() -> Message:
    order: Any = message(
        **{"id": -5, "state": 1, "lines": [{"sku": "a", "count": 2}, {}], "cash": 2**64 - 1},
        **{"raw": b"\0\xff", "part": 0.5, "mark": 7, "numbers": [1, 300], "note": ""},
        **{"flags": {3: True}, "before": {"id": 1, "before": {"id": 2}}},
    )
    order.by_sku["a"].count = 2
    order.at.seconds, order.at.nanos = -1, 5
    order.took.seconds, order.took.nanos = -2, -7
    order.maybe.value = 0
    order.free.update({"x": [1, None]})
    return order


def test_types(tmp_path: Path) -> None:
    put_schemas(tmp_path, proto_1=TEXT)
    value = protobuf_framed(1, [0], full_order().SerializeToString())
    table = kip33.decode(table_of(value), tmp_path)
    line = pa.struct({"sku": pa.string(), "count": pa.int32()})
    assert table.schema.field("decoded").type == pa.struct(
        {
            **{"id": pa.int64(), "state": pa.string(), "lines": pa.list_(line)},
            **{"by_sku": pa.map_(pa.string(), line), "at": pa.timestamp("us", "UTC")},
            **{"took": pa.duration("ns"), "note": pa.string(), "card": pa.string()},
            **{"cash": pa.uint64(), "raw": pa.binary(), "maybe": pa.int32(), "free": pa.string()},
            **{"before": pa.string(), "part": pa.float32(), "mark": pa.uint32()},
            **{"numbers": pa.list_(pa.uint32()), "flags": pa.map_(pa.int32(), pa.bool_())},
        }
    )
    found = table.column("decoded")[0]
    assert found["at"].value == -1_000_000
    assert found["took"].value == -2_000_000_007
    assert {name: found[name].as_py() for name in found if name not in ("at", "took")} == {
        **{"id": -5, "state": "PAID", "by_sku": [("a", {"sku": "", "count": 2})], "note": ""},
        **{"lines": [{"sku": "a", "count": 2}, {"sku": "", "count": 0}], "card": None},
        **{"cash": 2**64 - 1, "raw": b"\0\xff", "maybe": 0, "free": '{"x": [1.0, null]}'},
        **{"before": '{"id": "1", "before": {"id": "2"}}', "part": 0.5, "mark": 7},
        **{"numbers": [1, 300], "flags": [(3, True)]},
    }


def test_fields_that_were_not_sent(tmp_path: Path) -> None:
    """Null where Protobuf knows that there is no value, the default where it does not."""
    put_schemas(tmp_path, proto_1=TEXT)
    assert decoded(tmp_path, protobuf_framed(1, [0], b"")) == [
        {
            **{"id": 0, "state": "NEW", "lines": [], "by_sku": [], "at": None, "took": None},
            **{"note": None, "card": None, "cash": None, "raw": b"", "maybe": None, "free": None},
            **{"before": None, "part": 0.0, "mark": 0, "numbers": [], "flags": []},
        }
    ]


def test_an_unknown_number_of_an_enum_is_its_text(tmp_path: Path) -> None:
    put_schemas(tmp_path, proto_1=TEXT)
    found = decoded(tmp_path, protobuf_framed(1, [0], message(state=77).SerializeToString()))
    assert found[0]["state"] == "77"


def test_message_indexes(tmp_path: Path) -> None:
    put_schemas(tmp_path, proto_1=TEXT)
    refund = message("Refund", order_id=9).SerializeToString()
    values = [
        protobuf_framed(1, [1], refund),
        protobuf_framed(1, [0, 0, 0], b"\x0a\1x"),
        framed(1, b"\2\0" + refund),  # the first message, as a list of one
    ]
    assert decoded(tmp_path, *values, as_json=True) == [
        *('{"order_id": "9"}', '{"name": "x"}', '{"id": "9"}')
    ]
    assert decoded(tmp_path, *values, message="Refund") == [
        {"order_id": 9},
        "message shop.Order.Line.Tag found, the reader schema is for shop.Refund: pass message= "
        "or as_json=True",
        "message shop.Order found, the reader schema is for shop.Refund: pass message= or "
        "as_json=True",
    ]
    assert decoded(tmp_path, values[1], message="shop.Order.Line.Tag") == [{"name": "x"}]
    with pytest.raises(ValueError, match="message 'Missing' is not in the schema"):
        decoded(tmp_path, *values, message="Missing")


WRONG_BYTES = [
    (b"", "the message indexes cannot be read"),
    (b"\x80\x80", "the message indexes cannot be read"),
    (b"\xff" * 9, "the message indexes cannot be read"),
    (b"\xfe\xff\xff\xff\x0f", "2147483647 message indexes found, expected 0 to 32"),
    (b"\1", "-1 message indexes found, expected 0 to 32"),
    (b"\2\1", "message index -1 found, the schema has 2 messages there"),
    (b"\2\4", "message index 2 found, the schema has 2 messages there"),
    (b"\4\2\0", "message index 0 found, the schema has 0 messages there"),
    (b"\0\x0a\xff\xff\xff\xff\x07", "Error parsing message"),
    (b"\0" + b"\x6a\x7f" * 5000, "Error parsing message"),
    (b"\0\x22\x03\x0a\x01\xff", "Error parsing message"),  # a string that is not UTF-8
]


@each_case(("payload", "reason"), WRONG_BYTES)
def test_bytes_that_are_no_value(payload: Any, reason: str, tmp_path: Path) -> None:
    put_schemas(tmp_path, proto_1=TEXT)
    assert reason in decoded(tmp_path, framed(1, payload))[0]
    assert reason in decoded(tmp_path, framed(1, payload), as_json=True)[0]


TIMESTAMPS = [
    (-62_135_596_800, 0, datetime(1, 1, 1, tzinfo=UTC)),
    (-9_300_000_000, 1_999, datetime(1675, 4, 18, 2, 40, 0, 1, tzinfo=UTC)),
    (253_402_300_799, 999_999_999, datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    (-62_135_596_801, 0, "a Timestamp of -62135596801 seconds and 0 nanoseconds found"),
    (253_402_300_800, 0, "a Timestamp of 253402300800 seconds and 0 nanoseconds found"),
    (2**63 - 1, 0, "expected a time of the years 1 to 9999"),
    (0, -1, "a Timestamp of 0 seconds and -1 nanoseconds found"),
    (0, 1_000_000_000, "a Timestamp of 0 seconds and 1000000000 nanoseconds found"),
]


@each_case(("seconds", "nanos", "at"), TIMESTAMPS)
def test_timestamps(seconds: Any, nanos: Any, at: Any, tmp_path: Path) -> None:
    put_schemas(tmp_path, proto_1=TEXT)
    order: Any = message()
    order.at.seconds, order.at.nanos = seconds, nanos
    [found] = decoded(tmp_path, protobuf_framed(1, [0], order.SerializeToString()))
    if isinstance(at, str):
        assert at in found
    else:
        assert found["at"] == at


def test_a_newer_message_by_field_numbers(tmp_path: Path) -> None:
    put_schemas(
        tmp_path,
        proto_1='syntax = "proto3"; message R { int32 a = 1; string gone = 2; }',
        proto_2='syntax = "proto3"; message R { int32 renamed = 1; int32 added = 3; }',
    )
    value = protobuf_framed(1, [0], b"\x08\x05\x12\x01x")
    assert decoded(tmp_path, value, reader_schema=2) == [{"renamed": 5, "added": 0}]


def test_imports_by_their_names(tmp_path: Path) -> None:
    folder = put_schemas(
        tmp_path,
        proto_1='syntax = "proto3"; import "b.proto"; message A { B b = 1; }',
        proto_b='syntax = "proto3"; import "c.proto"; message B { C c = 1; }',
        proto_c='syntax = "proto3"; message C { int32 x = 1; }',
    )
    assert decoded(folder, framed(1, b"\0\x0a\x04\x0a\x02\x08\x07")) == [{"b": {"c": {"x": 7}}}]


def test_descriptors_instead_of_text(tmp_path: Path) -> None:
    """What protoc writes, and what the client for Python registers."""
    (tmp_path / "order.proto").write_text(TEXT)
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{tmp_path}", "--include_imports"),
            *(f"--descriptor_set_out={tmp_path / '1.desc'}", "order.proto"),
        ],
        check=True,
    )
    alone = descriptor_pb2.FileDescriptorProto()
    FILE.CopyToProto(alone)
    put_schemas(tmp_path, proto_2=base64.b64encode(alone.SerializeToString()).decode())
    payload = message(id=5).SerializeToString()
    for number in (1, 2):
        value = protobuf_framed(number, [0], payload)
        assert decoded(tmp_path, value, reader_schema=number)[0]["id"] == 5


WRONG_SCHEMAS = [
    ("message {", "schema 1: protoc: line:1:"),
    ('syntax = "proto3"; import "missing.proto";', "missing.proto: File not found"),
    ('syntax = "proto3"; import "../../etc/passwd";', "protoc: "),
    ("AAAA", "the Protobuf schema is no .proto file and no descriptor"),
    ('syntax = "proto3";', "message index 0 found, the schema has 0 messages there"),
]


@each_case(("text", "reason"), WRONG_SCHEMAS)
def test_schemas_that_cannot_be_used(text: str, reason: str, tmp_path: Path) -> None:
    put_schemas(tmp_path, proto_1=text)
    assert reason in decoded(tmp_path, framed(1, b"\0"), as_json=True)[0]


@pytest.mark.slow
def test_random_damage(tmp_path: Path) -> None:
    put_schemas(tmp_path, proto_1=TEXT)
    rng, whole = random.Random(5), full_order().SerializeToString()
    values = []
    for _ in range(2000):
        damaged = bytearray(whole[: rng.randint(1, len(whole))])
        for _ in range(rng.randint(0, 3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        values.append(protobuf_framed(1, [0], bytes(damaged)))
    for as_json in (False, True):
        table = kip33.decode(table_of(*values), tmp_path, as_json=as_json)
        is_decoded = table.column("decoded").is_valid()
        assert is_decoded.to_pylist() == table.column("decode_error").is_null().to_pylist()
        assert 0 < sum(is_decoded.to_pylist()) < 2000
