"""The time index (KIP-33) of archived Kafka log segments: rebuild, verify, catalog, search.

The names below need no Spark, and nothing is imported before it is used. The jobs, functions of
a SparkSession, are in `kip33.spark`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kip33.archive.directory import Segment
    from kip33.errors import (
        BatchTooLargeError,
        CatalogError,
        CorruptIndexError,
        CorruptSegmentError,
        IndexOffsetOverflowError,
        Kip33Error,
        LocationError,
        LockedError,
        PlanError,
        PolicyError,
        PublishError,
        UnreadableCatalogError,
        UnsupportedFormatError,
    )
    from kip33.formats.offset_index import OffsetIndex, OffsetPosition
    from kip33.formats.records import Record
    from kip33.formats.time_index import TimeIndex, TimestampOffset
    from kip33.indexing.by_path import (
        build_time_index,
        list_segments,
        read_time_index,
        scan_batches,
        verify_segment,
    )
    from kip33.indexing.segment import BuiltIndexes
    from kip33.indexing.verification import SegmentVerdict
    from kip33.search.read_records import find_offset, read_records

__version__ = "0.2.0"

_NAMES = {
    "kip33.archive.directory": ("Segment",),
    "kip33.errors": (
        *("BatchTooLargeError", "CatalogError", "CorruptIndexError", "CorruptSegmentError"),
        *("IndexOffsetOverflowError", "Kip33Error", "LocationError", "LockedError", "PlanError"),
        *("PolicyError", "PublishError", "UnreadableCatalogError", "UnsupportedFormatError"),
    ),
    "kip33.formats.offset_index": ("OffsetIndex", "OffsetPosition"),
    "kip33.formats.records": ("Record",),
    "kip33.formats.time_index": ("TimeIndex", "TimestampOffset"),
    "kip33.indexing.by_path": (
        *("build_time_index", "list_segments", "read_time_index", "scan_batches"),
        "verify_segment",
    ),
    "kip33.indexing.segment": ("BuiltIndexes",),
    "kip33.indexing.verification": ("SegmentVerdict",),
    "kip33.search.read_records": ("find_offset", "read_records"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "BatchTooLargeError",
    "BuiltIndexes",
    "CatalogError",
    "CorruptIndexError",
    "CorruptSegmentError",
    "IndexOffsetOverflowError",
    "Kip33Error",
    "LocationError",
    "LockedError",
    "OffsetIndex",
    "OffsetPosition",
    "PlanError",
    "PolicyError",
    "PublishError",
    "Record",
    "Segment",
    "SegmentVerdict",
    "TimeIndex",
    "TimestampOffset",
    "UnreadableCatalogError",
    "UnsupportedFormatError",
    "__version__",
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
