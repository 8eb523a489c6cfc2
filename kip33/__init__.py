"""The time index (KIP-33) of archived Kafka log segments: rebuild, verify, catalog, search.

The names below need no Spark, and nothing is imported before it is used. The functions that take a
SparkSession are in `kip33.spark`.
"""

import importlib

TYPE_CHECKING = False  # as in `typing`, whose import takes longer than all else here
if TYPE_CHECKING:
    from typing import Any

    from kip33.api.archive_audits import compare_dialects, timestamp_profile
    from kip33.api.index_files import build_index, repair, verify_index, verify_quick
    from kip33.api.offsets_for_times import OpenedTiers
    from kip33.api.opened_catalog import OpenedCatalog, open_catalog
    from kip33.api.plan_steps import apply_plan, undo_plan, write_plan
    from kip33.api.record_reader import (
        count_records,
        read_arrow,
        scan_polars,
        write_record_file,
        write_records,
    )
    from kip33.api.report_file import ArchiveStatus, WrittenReport, archive_status, write_report
    from kip33.api.restore_archive import abandon_restore, restore_archive
    from kip33.archive.directory import Segment
    from kip33.builds.commit import BuildSummary
    from kip33.builds.repair_plan import RepairSummary
    from kip33.catalog.catalog import Snapshot
    from kip33.catalog.topic_totals import TopicTotals
    from kip33.errors import (
        BatchTooLargeError,
        CatalogError,
        CorruptIndexError,
        CorruptSegmentError,
        IndexOffsetOverflowError,
        Kip33Error,
        LocationError,
        LockedError,
        NoReadableLogError,
        PlanError,
        PolicyError,
        PublishError,
        RestoreError,
        UnreadableCatalogError,
        UnreadableLogError,
        UnsupportedFormatError,
        WorkerLostError,
        WorkerStartError,
    )
    from kip33.formats.kafka_configs import GroupOffset
    from kip33.formats.records import Record
    from kip33.formats.time_index import OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset
    from kip33.indexing.by_path import (
        build_time_index,
        list_segments,
        read_time_index,
        scan_batches,
        verify_segment,
    )
    from kip33.indexing.dump_log import dump_log
    from kip33.indexing.segment import BuiltIndexes
    from kip33.indexing.verification import SegmentVerdict
    from kip33.records.decode import decode
    from kip33.records.record_selection import SelectedRecords
    from kip33.records.schemas import Schemas
    from kip33.records.written_records import WrittenRecords
    from kip33.restore.restore_complete import AbandonedRestore
    from kip33.restore.restore_request import RestoreSummary
    from kip33.retention.apply import Applied, PartitionResult
    from kip33.retention.plan import RetentionPlan
    from kip33.retention.policy_files import load_policies
    from kip33.retention.undo import PartitionUndone, Undone
    from kip33.rules.policies import Policies
    from kip33.search.emitted_offsets import EmittedOffsets
    from kip33.search.failover import ResumePoint
    from kip33.search.group_lag import GroupLag
    from kip33.search.read_records import find_offset, read_records
    from kip33.stores.progress import Progress

__version__ = "0.2.0"

_NAMES = {
    "kip33.api.archive_audits": ("compare_dialects", "timestamp_profile"),
    "kip33.api.index_files": ("build_index", "repair", "verify_index", "verify_quick"),
    "kip33.api.offsets_for_times": ("OpenedTiers",),
    "kip33.api.opened_catalog": ("OpenedCatalog", "open_catalog"),
    "kip33.api.plan_steps": ("apply_plan", "undo_plan", "write_plan"),
    "kip33.api.record_reader": (
        *("count_records", "read_arrow", "scan_polars", "write_record_file", "write_records"),
    ),
    "kip33.api.report_file": ("ArchiveStatus", "WrittenReport", "archive_status", "write_report"),
    "kip33.api.restore_archive": ("abandon_restore", "restore_archive"),
    "kip33.archive.directory": ("Segment",),
    "kip33.builds.commit": ("BuildSummary",),
    "kip33.builds.repair_plan": ("RepairSummary",),
    "kip33.catalog.catalog": ("Snapshot",),
    "kip33.catalog.topic_totals": ("TopicTotals",),
    "kip33.errors": (
        *("BatchTooLargeError", "CatalogError", "CorruptIndexError", "CorruptSegmentError"),
        *("IndexOffsetOverflowError", "Kip33Error", "LocationError", "LockedError"),
        *("NoReadableLogError", "PlanError", "PolicyError", "PublishError", "RestoreError"),
        *("UnreadableCatalogError", "UnreadableLogError", "UnsupportedFormatError"),
        *("WorkerLostError", "WorkerStartError"),
    ),
    "kip33.formats.kafka_configs": ("GroupOffset",),
    "kip33.formats.records": ("Record",),
    "kip33.formats.time_index": (
        *("OffsetIndex", "OffsetPosition", "TimeIndex", "TimestampOffset"),
    ),
    "kip33.indexing.by_path": (
        *("build_time_index", "list_segments", "read_time_index", "scan_batches"),
        "verify_segment",
    ),
    "kip33.indexing.dump_log": ("dump_log",),
    "kip33.indexing.segment": ("BuiltIndexes",),
    "kip33.indexing.verification": ("SegmentVerdict",),
    "kip33.records.decode": ("decode",),
    "kip33.records.record_selection": ("SelectedRecords",),
    "kip33.records.schemas": ("Schemas",),
    "kip33.records.written_records": ("WrittenRecords",),
    "kip33.restore.restore_complete": ("AbandonedRestore",),
    "kip33.restore.restore_request": ("RestoreSummary",),
    "kip33.retention.apply": ("Applied", "PartitionResult"),
    "kip33.retention.answer": ("RecordsToDelete", "RetentionAnswer"),
    "kip33.retention.plan": ("RetentionPlan",),
    "kip33.retention.policy_files": ("load_policies",),
    "kip33.retention.undo": ("PartitionUndone", "Undone"),
    "kip33.rules.policies": ("Policies",),
    "kip33.search.emitted_offsets": ("EmittedOffsets",),
    "kip33.search.failover": ("ResumePoint",),
    "kip33.search.group_lag": ("GroupLag",),
    "kip33.search.read_records": ("find_offset", "read_records"),
    "kip33.stores.progress": ("Progress",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "AbandonedRestore",
    "Applied",
    "ArchiveStatus",
    "BatchTooLargeError",
    "BuildSummary",
    "BuiltIndexes",
    "CatalogError",
    "CorruptIndexError",
    "CorruptSegmentError",
    "EmittedOffsets",
    "GroupLag",
    "GroupOffset",
    "IndexOffsetOverflowError",
    "Kip33Error",
    "LocationError",
    "LockedError",
    "NoReadableLogError",
    "OffsetIndex",
    "OffsetPosition",
    "OpenedCatalog",
    "OpenedTiers",
    "PartitionResult",
    "PartitionUndone",
    "PlanError",
    "Policies",
    "PolicyError",
    "Progress",
    "PublishError",
    "Record",
    "RecordsToDelete",
    "RepairSummary",
    "RestoreError",
    "RestoreSummary",
    "ResumePoint",
    "RetentionAnswer",
    "RetentionPlan",
    "Schemas",
    "Segment",
    "SegmentVerdict",
    "SelectedRecords",
    "Snapshot",
    "TimeIndex",
    "TimestampOffset",
    "TopicTotals",
    "Undone",
    "UnreadableCatalogError",
    "UnreadableLogError",
    "UnsupportedFormatError",
    "WorkerLostError",
    "WorkerStartError",
    "WrittenRecords",
    "WrittenReport",
    "__version__",
    "abandon_restore",
    "apply_plan",
    "archive_status",
    "build_index",
    "build_time_index",
    "compare_dialects",
    "count_records",
    "decode",
    "dump_log",
    "find_offset",
    "list_segments",
    "load_policies",
    "open_catalog",
    "read_arrow",
    "read_records",
    "read_time_index",
    "repair",
    "restore_archive",
    "scan_batches",
    "scan_polars",
    "timestamp_profile",
    "undo_plan",
    "verify_index",
    "verify_quick",
    "verify_segment",
    "write_plan",
    "write_record_file",
    "write_records",
    "write_report",
]


def __getattr__(name: str) -> "Any":
    if name not in _HOMES:
        raise AttributeError(f"module 'kip33' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
