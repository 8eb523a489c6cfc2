"""The time index (KIP-33) of archived Kafka log segments: rebuild, verify, catalog, search.

The names below need no Spark, and nothing is imported before it is used. The jobs, functions of
a SparkSession, are in `kip33.spark`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kip33.formats.offset_index import OffsetIndex, OffsetPosition
    from kip33.formats.time_index import TimeIndex, TimestampOffset
    from kip33.indexing.by_path import (
        build_time_index,
        list_segments,
        read_time_index,
        scan_batches,
        verify_segment,
    )
    from kip33.search.read_records import find_offset, read_records

__version__ = "0.2.0"

_HOMES = {
    "OffsetIndex": "kip33.formats.offset_index",
    "OffsetPosition": "kip33.formats.offset_index",
    "TimeIndex": "kip33.formats.time_index",
    "TimestampOffset": "kip33.formats.time_index",
    "build_time_index": "kip33.indexing.by_path",
    "find_offset": "kip33.search.read_records",
    "list_segments": "kip33.indexing.by_path",
    "read_records": "kip33.search.read_records",
    "read_time_index": "kip33.indexing.by_path",
    "scan_batches": "kip33.indexing.by_path",
    "verify_segment": "kip33.indexing.by_path",
}

__all__ = [
    "OffsetIndex",
    "OffsetPosition",
    "TimeIndex",
    "TimestampOffset",
    "build_time_index",
    "find_offset",
    "list_segments",
    "read_records",
    "read_time_index",
    "scan_batches",
    "verify_segment",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kip33' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
