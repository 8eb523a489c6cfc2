"""Where tests write, the one Spark session of a process, which tests it is for, and their order."""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from _pytest.runner import runtestprotocol

from kip33.stores import own_files
from tests.integration.groups import IS_MARKED, MARKS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# How many examples of a hundred each property is tried with. A slow machine makes no test fail.
PROFILES = {"quick": 5, "test": 25, "long": 100}
for name, max_examples in PROFILES.items():
    hypothesis.settings.register_profile(
        name,
        deadline=None,
        max_examples=max_examples,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
hypothesis.settings.load_profile(os.environ.get("KIP33_EXAMPLES", "test"))

# Most of the jobs' time would be spent on compiling code that runs once, a few rows of it. The code
# of all jobs fills the 48 MiB that such a JVM reserves for it, which ends the JVM.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"


MEMORY = Path("/dev/shm")
LEAST_MEMORY_BYTES = 8 << 30  # a run needs a small part of it


def pytest_configure(config: pytest.Config) -> None:
    """Let no test of this process wait for the disk, or find a configuration file.

    What a process wrote survives it. Programs that a power failure ends are processes of their own.
    Files are in memory where there is enough: tests create and remove a hundred thousand of them,
    and ext4 looks for an inode that was not removed just now each time.
    """
    config.pluginmanager.register(FailuresAtOnce(config))
    os.environ.pop("COLUMNS", None)  # of xdist, for pytest's own lines
    os.environ["KIP33_CONFIG"] = ""  # no file above a test's folder counts
    os.fsync = lambda _: None
    own_files._syncfs = lambda: lambda _: 0
    if "TMPDIR" not in os.environ and free_memory_bytes() >= LEAST_MEMORY_BYTES:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


class FailuresAtOnce:
    """Prints the name of each failure, and why, when it happens: a run that is killed has them."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._plugins.get_plugin("terminalreporter")
        if report.failed and terminal:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = crash.message.partition("\n")[0] if crash else report.longreprtext[-300:]
            file = report.nodeid.partition("::")[0]
            terminal.write_line(f"\nFAILED {file}::{report.head_line}: {why[:300]}")


def free_memory_bytes() -> int:
    """Return how many bytes of files memory has room for; 0 where Linux does not say."""
    if not MEMORY.is_dir():
        return 0
    [free_kib] = re.findall(r"MemAvailable: +(\d+)", Path("/proc/meminfo").read_text())
    return min(int(free_kib) << 10, shutil.disk_usage(MEMORY).free)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that ask for the Spark session, and let what takes long come first.

    A test of a service that no group of CI would run ends the run.
    """
    needs_service = {item.path for mark in MARKS for item in items if item.get_closest_marker(mark)}
    for path in needs_service:
        if not IS_MARKED.search(path.read_text(encoding="utf-8")):
            raise pytest.UsageError(f"{path}: write pytest.mark.{MARKS[-1]} in it, or CI misses it")
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    items.sort(key=lambda item: item.path.parent.name not in ("faults", "builds"))


CAME_TOO_LATE = "Timed out while waiting for the Python worker to connect back"


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test on Spark again if a Python worker has not begun within 10 s.

    Spark waits no longer for the worker that plans a source, and no setting changes that.
    """
    if "spark" not in getattr(item, "fixturenames", ()):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for _ in range(10):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if not any(CAME_TOO_LATE in report.longreprtext for report in reports):
            break
        item._initrequest()  # type: ignore[attr-defined]  # as for a test that has not run
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


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
        .config("spark.python.authenticate.socketTimeout", "30m")  # on a slow machine
        .config("spark.driver.extraJavaOptions", QUICK_JVM)
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    yield session
    session.stop()
