"""The one Spark session that every test marked `spark` shares, and the order of the tests."""

import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from kip33.stores import own_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# How many examples of a hundred each property is tried with. None has a deadline: a slow machine
# makes no test fail.
PROFILES = {"quick": 5, "test": 25, "long": 100}
for name, max_examples in PROFILES.items():
    hypothesis.settings.register_profile(name, deadline=None, max_examples=max_examples)
hypothesis.settings.load_profile(os.environ.get("KIP33_EXAMPLES", "test"))


def pytest_configure() -> None:
    """Let no test of this process wait for the disk.

    What a process wrote survives it. Programs that a power failure ends are processes of their own.
    """
    os.fsync = lambda _: None
    own_files._syncfs = lambda: lambda _: 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let what takes long come first, a file at a time: two workers then end at the same time."""
    spark = {item.path for item in items if item.get_closest_marker("spark")}
    items.sort(key=lambda item: (item.path not in spark, item.path.parent.name != "faults"))


SHARES_SESSION = re.compile(r"\bspark: |\bspark_command\b")  # a parameter, or the fixture's name


@cache
def shares_session(path: str) -> bool:
    """Return whether tests of a file ask for the shared Spark session."""
    return bool(SHARES_SESSION.search((Path(__file__).parents[1] / path).read_text()))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give a file at a time to a worker, and all files with the Spark session to the same one."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneSessionScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return "the Spark session" if shares_session(path) else path

    return OneSessionScheduling(config, log)


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
