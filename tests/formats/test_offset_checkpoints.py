"""Offset checkpoints as Kafka reads them, and what it does not read or never writes."""

import pytest

from kip33.formats.partition_metadata import parse_offset_checkpoint
from tests.cases import each_case

CHECKPOINTS = {
    "an empty file": ("", {}),
    "a version only": ("0\n", {}),
    "no entries": ("0\n0\n", {}),
    "one entry": ("0\n1\norders 0 4711\n", {("orders", 0): 4711}),
    "no line break at the end": ("0\n1\norders 0 4711", {("orders", 0): 4711}),
    "dots, dashes and underscores": (
        "0\n2\norders.eu_1-x 12 0\n__consumer_offsets 49 1\n",
        {("orders.eu_1-x", 12): 0, ("__consumer_offsets", 49): 1},
    ),
    "several blanks and tabs": ("0\n1\norders \t 0   7\n", {("orders", 0): 7}),
    "the largest numbers": (
        f"0\n1\norders {2**31 - 1} {2**63 - 1}\n",
        {("orders", 2**31 - 1): 2**63 - 1},
    ),
    "a partition twice: the last": ("0\n2\norders 0 9\norders 0 7\n", {("orders", 0): 7}),
    "lines that end as on Windows": ("0\r\n1\r\norders 0 7\r\n", {("orders", 0): 7}),
}


@each_case(("text", "offsets"), CHECKPOINTS)
def test_what_kafka_reads(text: str, offsets: dict[tuple[str, int], int]) -> None:
    assert parse_offset_checkpoint(text) == offsets


DAMAGED = {
    "another version": ("1\n0\n", "line 1: '1' found, expected the version 0"),
    "no version": ("\n", "line 1: '' found, expected the version 0"),
    "zeros instead of text": ("\0" * 64, "line 1: "),
    "no count": ("0\nmany\n", "line 2: 'many' found, expected the number of entries"),
    "a negative count": ("0\n-1\n", "line 2: '-1' found"),
    "fewer entries than counted": ("0\n2\norders 0 7\n", "1 entries found, expected 2"),
    "more entries than counted": ("0\n0\norders 0 7\n", "1 entries found, expected 0"),
    "an entry cut short": ("0\n1\norders 0\n", "line 3: 'orders 0' found, expected TOPIC PART"),
    "an entry with more": ("0\n1\norders 0 7 8\n", "line 3: 'orders 0 7 8' found"),
    "an entry that opens with a blank": ("0\n1\n orders 0 7\n", "line 3: ' orders 0 7' found"),
    "a blank line": ("0\n1\n\norders 0 7\n", "line 3: '' found"),
    "a partition that is no number": ("0\n1\norders x 7\n", "line 3: 'orders x 7' found"),
    "a partition below 0": ("0\n1\norders -1 7\n", "line 3: 'orders -1 7' found"),
    "a partition beyond int32": (f"0\n1\norders {2**31} 7\n", f"line 3: 'orders {2**31} 7'"),
    "an offset that is no number": ("0\n1\norders 0 7.0\n", "line 3: 'orders 0 7.0' found"),
    "an offset beyond int64": (f"0\n1\norders 0 {2**63}\n", f"line 3: 'orders 0 {2**63}'"),
    "another script's digits": ("0\n1\norders 0 ٣\n", "line 3: 'orders 0 ٣' found"),
}


@each_case(("text", "message"), DAMAGED)
def test_damage(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="expected") as raised:
        parse_offset_checkpoint(text)
    assert message in str(raised.value)
