"""The largest timestamp that a broker uses for a segment, one state of its indexes per row.

The same rows are shown to Kafka in `tests/integration/kafka/test_broker_view.py`.
"""

import struct
from typing import NamedTuple

import pytest

from kip33.rules.broker_start import (
    BrokerTimestampSource,
    BrokerView,
    IndexFault,
    broker_view,
    last_entry_at,
)
from tests.cases import each_case

LARGEST = 1_700_000_000_000
EARLIER, LATER = LARGEST - 5000, LARGEST + 86_400_000
FROM_TIME_INDEX, LAST_MODIFIED, RECOVERED = BrokerTimestampSource
MISSING_INDEX, EMPTY_INDEX, ZERO_TIMESTAMP, NEGATIVE_TIMESTAMP, OTHER_TIMESTAMP, _ = IndexFault
MODIFIED = 1_690_000_000_123


class Beside(NamedTuple):
    """What lies beside a log, whose own largest timestamp is `max_timestamp`."""

    time_index: bytes | None
    has_offset_index: bool = True
    max_timestamp: int = LARGEST


def entries(*timestamps: int, relative_offset: int = 1) -> bytes:
    return b"".join(struct.pack(">qi", t, relative_offset) for t in timestamps)


RIGHT = entries(EARLIER, LARGEST)

AGREES = [
    ("the right index", Beside(RIGHT), FROM_TIME_INDEX),
    ("one entry", Beside(entries(LARGEST)), FROM_TIME_INDEX),
    ("bytes after the last whole entry", Beside(RIGHT + b"\xff" * 5), FROM_TIME_INDEX),
    ("an offset below the base", Beside(entries(LARGEST, relative_offset=-1)), FROM_TIME_INDEX),
    ("no .index", Beside(RIGHT, has_offset_index=False), RECOVERED),
    ("no .index beside a garbage one", Beside(b"\xff" * 25, has_offset_index=False), RECOVERED),
    ("no .index beside zeros", Beside(bytes(48), has_offset_index=False), RECOVERED),
    ("neither index", Beside(None, has_offset_index=False), RECOVERED),
    ("timestamp 0 and one entry of it", Beside(bytes(12), max_timestamp=0), FROM_TIME_INDEX),
    ("timestamp 0, neither index", Beside(None, False, max_timestamp=0), RECOVERED),
    ("no timestamp, an empty index", Beside(b"", max_timestamp=-1), LAST_MODIFIED),
    ("no timestamp, no index", Beside(None, max_timestamp=-1), LAST_MODIFIED),
    ("no timestamp, garbage", Beside(b"\xff" * 25, max_timestamp=-1), LAST_MODIFIED),
    ("no timestamp, neither index", Beside(None, False, max_timestamp=-1), LAST_MODIFIED),
]
FALLS_BACK = [
    ("missing", Beside(None), MISSING_INDEX),
    ("missing, timestamp 0", Beside(None, max_timestamp=0), MISSING_INDEX),
    ("0 bytes", Beside(b""), EMPTY_INDEX),
    ("less than an entry", Beside(RIGHT[:11]), EMPTY_INDEX),
    ("bytes FF, no whole entries", Beside(b"\xff" * 25), NEGATIVE_TIMESTAMP),
    ("timestamp -1", Beside(entries(LARGEST, -1)), NEGATIVE_TIMESTAMP),
    ("the smallest timestamp", Beside(entries(-(2**63))), NEGATIVE_TIMESTAMP),
]
BELIEVED = [
    ("zeros of a live file, 10 MiB", Beside(bytes(10485756)), 0),
    ("zeros, 10 MiB and no whole entries", Beside(bytes(10485760)), 0),
    ("zeros after the right entries", Beside(RIGHT + bytes(4800)), 0),
    ("one zero entry", Beside(bytes(12)), 0),
    ("zeros, no timestamp", Beside(bytes(12), max_timestamp=-1), 0),
    ("cut inside the last entry", Beside(RIGHT[:-1]), EARLIER),
    ("the last entry lost", Beside(RIGHT[:12]), EARLIER),
    ("a stale later timestamp", Beside(RIGHT + entries(LATER)), LATER),
    ("a stale earlier timestamp", Beside(RIGHT + entries(EARLIER)), EARLIER),
    ("bytes 7F", Beside(b"\x7f" * 12), 0x7F7F7F7F7F7F7F7F),
    ("the largest timestamp there is", Beside(entries(2**63 - 1)), 2**63 - 1),
    ("stale, no timestamp", Beside(entries(LATER), max_timestamp=-1), LATER),
    ("stale, timestamp 0", Beside(entries(LATER), max_timestamp=0), LATER),
]


def agreeing(beside: Beside, source: str) -> BrokerView:
    recorded = beside.max_timestamp >= 0
    return BrokerView(beside.max_timestamp if recorded else MODIFIED, source, None)


def believing(timestamp: int) -> BrokerView:
    fault = OTHER_TIMESTAMP if timestamp else ZERO_TIMESTAMP
    return BrokerView(timestamp, FROM_TIME_INDEX, fault)


STATES = [
    *((name, beside, agreeing(beside, source)) for name, beside, source in AGREES),
    *((n, beside, BrokerView(MODIFIED, LAST_MODIFIED, fault)) for n, beside, fault in FALLS_BACK),
    *((name, beside, believing(timestamp)) for name, beside, timestamp in BELIEVED),
]
each_state = pytest.mark.parametrize(
    ("beside", "view"), [pytest.param(beside, view, id=name) for name, beside, view in STATES]
)


def view_of(beside: Beside) -> BrokerView:
    size = None if beside.time_index is None else len(beside.time_index)
    at = last_entry_at(size or 0)
    return broker_view(
        time_index_bytes=size,
        last_entry=b"" if at is None else (beside.time_index or b"")[at : at + 12],
        has_offset_index=beside.has_offset_index,
        max_timestamp=beside.max_timestamp,
        last_modified_ms=MODIFIED,
    )


@each_state
def test_view_of_a_broker(beside: Beside, view: BrokerView) -> None:
    assert view_of(beside) == view


def test_every_source_and_fault_has_a_row() -> None:
    assert {view.source for _, _, view in STATES} == set(BrokerTimestampSource)
    assert {view.fault for _, _, view in STATES} == {*IndexFault, None} - {IndexFault.UNREADABLE}


@each_case(
    ("size", "at"), [(0, None), (11, None), (12, 0), (23, 0), (24, 12), (10485760, 10485744)]
)
def test_the_position_of_the_last_complete_entry(size: int, at: int | None) -> None:
    assert last_entry_at(size) == at


def test_an_incomplete_entry_is_not_used() -> None:
    with pytest.raises(ValueError, match="8 bytes, expected 12"):
        broker_view(
            time_index_bytes=24,
            last_entry=bytes(8),
            has_offset_index=True,
            max_timestamp=LARGEST,
            last_modified_ms=MODIFIED,
        )
