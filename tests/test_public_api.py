"""What `import kip33` and `import kip33.spark` give, and what they leave unimported."""

import subprocess
import sys
from pathlib import Path

import pytest

import kip33

PROJECT = Path(__file__).parents[1]
NAMES = [
    "AbandonedRestore",
    "Applied",
    "BatchTooLargeError",
    "BuildSummary",
    "BuiltIndexes",
    "CatalogError",
    "CorruptIndexError",
    "CorruptSegmentError",
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
    "PlanError",
    "Policies",
    "PolicyError",
    "Progress",
    "PublishError",
    "Record",
    "RepairSummary",
    "RestoreError",
    "RestoreSummary",
    "ResumePoint",
    "RetentionPlan",
    "Schemas",
    "Segment",
    "SegmentVerdict",
    "Snapshot",
    "TimeIndex",
    "TimestampOffset",
    "TopicTotals",
    "UnreadableCatalogError",
    "UnsupportedFormatError",
    "WorkerLostError",
    "WorkerStartError",
    "WrittenReport",
    "__version__",
    "abandon_restore",
    "apply_plan",
    "build_index",
    "build_time_index",
    "decode",
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
    "verify_index",
    "verify_segment",
    "write_plan",
    "write_report",
]
SPARK_NAMES = [
    "BuildSummary",
    "Policies",
    "WhatIf",
    "audit_roll",
    "build_index",
    "create_session",
    "evaluate_retention",
    "freed_by",
    "load_catalog",
    "load_policies",
    "offsets_for_times",
    "read_segments",
    "register",
    "summarize_partitions",
    "timestamp_profile",
    "verify_index",
]


def test_the_spark_free_names() -> None:
    assert kip33.__all__ == sorted(NAMES) == NAMES
    assert dir(kip33) == NAMES


@pytest.mark.parametrize("name", sorted({*NAMES} - {"__version__"}))
def test_each_name_is_there_under_its_own_name(name: str) -> None:
    assert getattr(kip33, name).__name__ == name


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'kip33' has no attribute 'frobnicate'"):
        _ = kip33.frobnicate


EXTRAS = {"polars", "fastavro", "google", "grpc_tools", "jinja2", "matplotlib", "fsspec"}


@pytest.mark.parametrize(
    ("statement", "left_out"),
    [
        ("import kip33", {"numpy", "pyarrow", "numba", "pyspark", "click", "pandas"}),
        ("from kip33 import TimeIndex", {"pyarrow", "numba", "pyspark", "click", "pandas"}),
        (f"from kip33 import {', '.join(NAMES)}", {"numba", "pyspark", "click", "pandas"}),
        (f"from kip33 import {', '.join(NAMES)}", EXTRAS),
        ("import kip33.spark", {"numba", "click", "pandas", *EXTRAS}),
        (f"from kip33.spark import {', '.join(SPARK_NAMES)}", {"pyspark.sql.datasource"}),
    ],
    ids=[
        "the package",
        "a format",
        "every name",
        "every name without extras",
        "the jobs",
        "jobs of PySpark 3.5",
    ],
)
def test_importing_leaves_what_is_not_needed(statement: str, left_out: set[str]) -> None:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    loaded = {*modules, *(name.partition(".")[0] for name in modules)}
    assert "kip33" in loaded
    assert loaded & left_out == set()


def test_the_jobs_as_functions() -> None:
    import kip33.spark

    assert kip33.spark.__all__ == sorted(SPARK_NAMES) == SPARK_NAMES
    for name in SPARK_NAMES:
        assert getattr(kip33.spark, name).__name__ == name


def test_the_quiet_log_of_spark_submit_is_the_one_of_the_command() -> None:
    from kip33.spark.session import QUIET_LOG4J2

    text = (PROJECT / "conf" / "log4j2.properties").read_text()
    settings = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert settings == QUIET_LOG4J2.splitlines()
