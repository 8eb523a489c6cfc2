"""`partition.metadata` as Kafka writes and reads it, and what it does not read."""

import pytest

from kip33.formats.partition_metadata import PartitionMetadata, parse_topic_id
from tests.cases import each_case

TOPIC_ID = "bn9RMmT4REWVDFQzf3IUaQ"
OF_A_BROKER = b"version: 0\ntopic_id: bn9RMmT4REWVDFQzf3IUaQ"

READ = {
    "as a broker of 4.1 wrote it": OF_A_BROKER,
    "with a line break at the end": OF_A_BROKER + b"\n",
    "with lines that end as on Windows": OF_A_BROKER.replace(b"\n", b"\r\n"),
    "with more lines": OF_A_BROKER + b"\nfuture: 1\n",
    "of a later version": OF_A_BROKER.replace(b"version: 0", b"version: 1"),
}


@each_case("data", READ)
def test_what_kafka_reads(data: bytes) -> None:
    assert PartitionMetadata.from_bytes(data).topic_id == TOPIC_ID


def test_the_bytes_are_those_of_a_broker() -> None:
    assert PartitionMetadata(TOPIC_ID).to_bytes() == OF_A_BROKER


DAMAGED = {
    "an empty file": (b"", "line 1: '' found, expected 'version: VALUE'"),
    "zeros instead of text": (bytes(44), "line 1: "),
    "no version": (b"topic_id: bn9RMmT4REWVDFQzf3IUaQ", "line 1: 'topic_id: bn9"),
    "a version below 0": (b"version: -1\ntopic_id: x", "line 1: version '-1' found, expected 0"),
    "a version that is no number": (b"version: x\n", "line 1: version 'x' found, expected 0"),
    "a file cut after its version": (b"version: 0\n", "line 2: '' found"),
    "an id cut short": (OF_A_BROKER[:-1], "line 2: topic id 'bn9RMmT4REWVDFQzf3IUa' found"),
    "an id of zeros": (
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        "expected 22 characters of URL-safe base64",
    ),
    "an id with dashes": (
        b"version: 0\ntopic_id: 6e7f5132-64f8-4445-950c-54337f721469",
        "expected 22 characters of URL-safe base64",
    ),
    "no blank before the id": (b"version: 0\ntopic_id:bn9RMmT4REWVDFQzf3IUaQ", "line 2: "),
}


@each_case(("data", "message"), DAMAGED)
def test_damage(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match="expected") as raised:
        PartitionMetadata.from_bytes(data)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@each_case(
    ("text", "topic_id"),
    [
        (TOPIC_ID, TOPIC_ID),
        (f"{TOPIC_ID}==", TOPIC_ID),
        ("6e7f5132-64f8-4445-950c-54337f721469", TOPIC_ID),
        ("6E7F5132-64F8-4445-950C-54337F721469", TOPIC_ID),
        ("bn9RMmT4REWVDFQzf3IUaR", TOPIC_ID),  # the last four bits are no part of it
        ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAQ"),  # of __cluster_metadata
        ("00000000-0000-0000-0000-000000000000", None),
        ("bn9RMmT4REWVDFQzf3IU", None),
        ("bn9RMmT4REWVDFQzf3IU+/", None),
        ("", None),
    ],
)
def test_a_topic_id_by_any_form(text: str, topic_id: str | None) -> None:
    assert parse_topic_id(text) == topic_id
