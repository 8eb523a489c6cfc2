"""The jobs: functions that take a SparkSession or a DataFrame."""

from kip33.builds.build_summary import BuildSummary
from kip33.retention.policy_files import load_policies
from kip33.rules.policies import Policies
from kip33.rules.retention import WhatIf
from kip33.spark.build import build_index
from kip33.spark.catalog import load_catalog
from kip33.spark.retention.evaluate import evaluate_retention
from kip33.spark.retention.summary import freed_by, summarize_partitions
from kip33.spark.search import offsets_for_times
from kip33.spark.segment_frame import read_segments, register
from kip33.spark.session import create_session
from kip33.spark.verify import verify_index

__all__ = [
    "BuildSummary",
    "Policies",
    "WhatIf",
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
    "verify_index",
]
