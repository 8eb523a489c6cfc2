"""PySpark 3.5 passes the Spark tests, in an environment of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.on_clusters.conftest import PROJECT
from tests.servers.fixtures import or_skip
from tests.servers.processes import ServerMissingError, cache_folder

pytestmark = pytest.mark.integration
OLDER = "3.5.7"
# The oldest that pyproject.toml allows beside it; numba and numpy as PySpark 3.5 knows them.
PACKAGES = (
    f"pyspark[connect]=={OLDER}",
    "pandas>=2.2,<3",
    "pytest>=8.3,<10",
    "hypothesis>=6.100,<7",
)


def older_python() -> Path:
    """Return the Python of an environment with this PySpark; the first call makes it."""
    folder = cache_folder(f"pyspark-{OLDER}")
    python = folder / "venv" / "bin" / "python"
    if not (folder / "whole").exists():
        commands = (
            [sys.executable, "-m", "venv", "--clear", folder / "venv"],
            [python, "-m", "pip", "install", "-q", *PACKAGES, f"{PROJECT}[hdfs]"],
            [python, "-m", "pip", "uninstall", "-q", "-y", "kip33"],  # the tests' own is tested
        )
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise ServerMissingError(f"pip does not install it: {done.stderr.strip()[-300:]}")
        (folder / "whole").touch()
    return python


def test_the_spark_tests_pass() -> None:
    with or_skip(f"PySpark {OLDER}"):
        python = older_python()
    quiet = ("-W", "default")  # it leaves sockets open, which this project's tests do not forgive
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *quiet, "tests/spark"],
        cwd=PROJECT,
        env=os.environ | {"PYSPARK_PYTHON": str(python), "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
