"""The jobs, as functions of a SparkSession."""

from kip33.spark.build import BuildSummary, build_index
from kip33.spark.catalog import load_catalog
from kip33.spark.verify import verify_index

__all__ = ["BuildSummary", "build_index", "load_catalog", "verify_index"]
