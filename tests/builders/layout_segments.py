"""Segments to be archived: of every kind in the demo archive, and of real brokers."""

from functools import cache

from kip33.demo import START_MS, legacy, orders, payments
from tests.builders.layouts import Stored
from tests.builders.segment_builder import segment
from tests.formats.real_segments import REAL_SEGMENTS

DAY_MS = 86_400_000


@cache
def made_segments() -> tuple[Stored, ...]:
    """Return five segments of three partitions, each of some tens of kilobytes."""
    return (
        Stored("orders", 0, 0, segment(orders(0, START_MS, 60))),
        Stored("orders", 0, 600, segment(orders(600, START_MS + DAY_MS, 60, codec="lz4"))),
        Stored("orders", 0, 1200, segment(orders(1200, START_MS + 2 * DAY_MS, 30, codec="zstd"))),
        Stored("pay.ments-2", 7, 40, segment(payments(40))),
        Stored("audit", 1, 0, segment(legacy(0))),
    )


@cache
def real_segments() -> tuple[Stored, ...]:
    """Return a few segments that brokers wrote, with their indexes, if there are such files."""
    found = []
    for log in list(REAL_SEGMENTS.values())[::17]:
        time_index, offset_index = log.with_suffix(".timeindex"), log.with_suffix(".index")
        topic = f"real{len(found)}"
        bytes_of = (log.read_bytes(), time_index.read_bytes(), offset_index.read_bytes())
        found.append(Stored(topic, 0, int(log.stem), *bytes_of))
    return tuple(found)
