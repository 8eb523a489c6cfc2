"""The jobs, as functions of a SparkSession."""

from kip33.spark.build import build_index
from kip33.spark.catalog import load_catalog
from kip33.spark.verify import verify_index
from kip33.storage.committing import BuildSummary

__all__ = ["BuildSummary", "build_index", "load_catalog", "verify_index"]
