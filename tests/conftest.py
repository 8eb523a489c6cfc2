"""The one Spark session that every test marked `spark` shares."""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# How many examples of a hundred each property is tried with. None has a deadline: a slow machine
# makes no test fail.
PROFILES = {"quick": 5, "test": 25, "long": 100}
for name, max_examples in PROFILES.items():
    hypothesis.settings.register_profile(name, deadline=None, max_examples=max_examples)
hypothesis.settings.load_profile(os.environ.get("KIP33_EXAMPLES", "test"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let what takes long come first, a file at a time: two workers then end at the same time."""
    spark = {item.path for item in items if item.get_closest_marker("spark")}
    items.sort(key=lambda item: (item.path not in spark, item.path.parent.name != "faults"))


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    from pyspark.sql import SparkSession

    from kip33.spark.session import JavaMissingError, require_java

    try:
        require_java()
    except JavaMissingError as error:
        pytest.skip(str(error))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("kip33 tests")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.python.unix.domain.socket.enabled", "true")
        # Most of these jobs' time would be spent on compiling code that runs once, a few rows of it
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    yield session
    session.stop()
