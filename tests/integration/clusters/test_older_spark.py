"""PySpark 3.5 passes the Spark tests, in an environment of its own."""

import hashlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.integration.clusters.conftest import PROJECT
from tests.integration.servers.environments import QUICKLY, held
from tests.integration.servers.fixtures import or_skip
from tests.integration.servers.processes import ServerMissingError, cache_folder

pytestmark = pytest.mark.integration
OLDER = "3.5.7"
# Without its extra for Connect, which wants a numpy before 2.
PACKAGES = (
    f"pyspark=={OLDER}",
    *("duckdb>=1.1,<3", "pandas>=2.2,<3", "polars>=1.9,<3"),  # which read catalogs in the tests
    *("hypothesis>=6.100,<7", "pytest>=9,<10"),
)


def older_python() -> Path:
    """Return the Python of an environment with this PySpark; the first call makes it."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    wanted = " ".join((*PACKAGES, *project["dependencies"]))
    packages = hashlib.sha256(wanted.encode()).hexdigest()[:8]
    folder = cache_folder(f"pyspark-{OLDER}-{packages}")
    python = folder / "venv" / "bin" / "python"
    with held(folder):
        if not (folder / "whole").exists():
            commands = (
                [sys.executable, "-m", "venv", "--clear", folder / "venv"],
                [python, "-m", "pip", "install", *QUICKLY, *PACKAGES, f"{PROJECT}[hdfs]"],
                [python, "-m", "pip", "uninstall", "-q", "-y", "kip33"],  # the tests' own is tested
            )
            for command in commands:
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    why = done.stderr.strip()[-300:]
                    raise ServerMissingError(f"pip does not install it: {why}")
            (folder / "whole").touch()
    return python


def test_the_spark_tests_pass() -> None:
    with or_skip(f"PySpark {OLDER}"):
        python = older_python()
    quiet = ("-W", "default")  # it leaves sockets open, which this project's tests do not forgive
    done = subprocess.run(
        [
            *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *quiet),
            *("-m", "not integration and not long", "tests/spark"),
        ],
        cwd=PROJECT,
        env=os.environ | {"PYSPARK_PYTHON": str(python), "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=2400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
