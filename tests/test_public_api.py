"""What `import kip33` and `import kip33.spark` give, and what they leave unimported."""

import subprocess
import sys
from pathlib import Path

import pytest

import kip33
import kip33.spark

PROJECT = Path(__file__).parents[1]
NAMES = kip33.__all__
SPARK_NAMES = kip33.spark.__all__


def test_each_name_is_there_under_its_own_name() -> None:
    assert dir(kip33) == sorted(NAMES) == NAMES
    assert sorted(SPARK_NAMES) == SPARK_NAMES
    for package in (kip33, kip33.spark):
        for name in {*package.__all__} - {"__version__"}:
            assert getattr(package, name).__name__ == name


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'kip33' has no attribute 'frobnicate'"):
        _ = kip33.frobnicate


EXTRAS = {"polars", "fastavro", "google", "grpc_tools", "jinja2", "matplotlib", "fsspec"}


def test_importing_leaves_what_is_not_needed(subtests: pytest.Subtests) -> None:
    every = f"from kip33 import {', '.join(NAMES)}"
    light = {"numba", "pyspark", "click", "pandas"}
    cases = {
        "the package": ("import kip33", {"numpy", "pyarrow", *light}),
        "a format": ("from kip33 import TimeIndex", {"pyarrow", *light}),
        "every name": (every, light | EXTRAS),
        "the jobs": ("import kip33.spark", {"numba", "click", "pandas", *EXTRAS}),
        "jobs of PySpark 3.5": (
            f"from kip33.spark import {', '.join(SPARK_NAMES)}",
            {"pyspark.sql.datasource"},
        ),
    }
    for name, (statement, left_out) in cases.items():
        with subtests.test(name):
            code = f"{statement}\nimport sys\nprint(*sys.modules)"
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            )
            modules = done.stdout.split()
            loaded = {*modules, *(name.partition(".")[0] for name in modules)}
            assert "kip33" in loaded
            assert loaded & left_out == set()


def test_the_quiet_log_of_spark_submit_is_the_one_of_the_command() -> None:
    from kip33.spark.session import QUIET_LOG4J2

    text = (PROJECT / "conf" / "log4j2.properties").read_text()
    settings = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert settings == QUIET_LOG4J2.splitlines()
