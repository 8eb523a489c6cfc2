"""The jobs: functions that take a SparkSession or a DataFrame.

Nothing is imported before it is used: a job that finds nothing to do needs no pyspark.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kip33.builds.commit import BuildSummary
    from kip33.retention.policy_files import load_policies
    from kip33.rules.policies import Policies
    from kip33.spark.audits import audit_roll, timestamp_profile
    from kip33.spark.build import build_index, verify_index, verify_quick
    from kip33.spark.catalog import load_catalog
    from kip33.spark.record_files import write_records
    from kip33.spark.retention import evaluate_retention, freed_by, summarize_partitions
    from kip33.spark.search import offsets_for_times
    from kip33.spark.segment_frame import read_segments, register
    from kip33.spark.session import create_session

_HOMES: Final = {
    "BuildSummary": "kip33.builds.commit",
    "Policies": "kip33.rules.policies",
    "audit_roll": "kip33.spark.audits",
    "build_index": "kip33.spark.build",
    "create_session": "kip33.spark.session",
    "evaluate_retention": "kip33.spark.retention",
    "freed_by": "kip33.spark.retention",
    "load_catalog": "kip33.spark.catalog",
    "load_policies": "kip33.retention.policy_files",
    "offsets_for_times": "kip33.spark.search",
    "read_segments": "kip33.spark.segment_frame",
    "register": "kip33.spark.segment_frame",
    "summarize_partitions": "kip33.spark.retention",
    "timestamp_profile": "kip33.spark.audits",
    "verify_index": "kip33.spark.build",
    "verify_quick": "kip33.spark.build",
    "write_records": "kip33.spark.record_files",
}

__all__ = [
    "BuildSummary",
    "Policies",
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
    "verify_quick",
    "write_records",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kip33.spark' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
