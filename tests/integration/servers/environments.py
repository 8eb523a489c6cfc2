"""What workers of pytest make once for all: environments, which stay, and folders of a run."""

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.servers.processes import ServerMissingError, cache_folder

# The lock that was installed whole: another one means another environment. Environments with an
# `installed.lock` were made before two workers of pytest took turns, and may be broken.
INSTALLED = "complete.lock"
# Most modules are never imported: compiling them all takes longer than to unpack them.
QUICKLY = ("-q", "--disable-pip-version-check", "--no-compile")


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a cache folder: two workers of pytest may want to fill it at once."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder of this run of pytest, which the first worker that asks for it makes."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder /= name
    folder.mkdir(exist_ok=True)
    with held(folder):
        if not (folder / "made").exists():
            make(folder)
            (folder / "made").touch()
    return folder


def locked_python(name: str, lock: Path) -> Path:
    """Return the Python of environment `name`, which has what `lock` says, this Python's kind.

    The first call installs it; ServerMissingError where pip does not.
    """
    folder = cache_folder(f"{name}-py{sys.version_info.major}.{sys.version_info.minor}")
    python, installed = folder / "venv" / "bin" / "python", folder / INSTALLED
    with held(folder):
        if not (installed.is_file() and installed.read_text() == lock.read_text()):
            installed.unlink(missing_ok=True)
            for command in (
                (sys.executable, "-m", "venv", "--clear", folder / "venv"),
                (python, "-m", "pip", "install", *QUICKLY, "-r", lock),
            ):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    last = (done.stderr or done.stdout).strip().splitlines()[-1:]
                    raise ServerMissingError(f"pip does not install {name}: {' '.join(last)}")
            installed.write_text(lock.read_text())
    return python


def pyspark_folder(version: str) -> Path:
    """Return a folder with this PySpark alone, for a PYTHONPATH before the packages of the tests.

    The first call installs it; ServerMissingError where pip does not.
    """
    folder = cache_folder(f"pyspark-{version}")
    packages = folder / "packages"
    with held(folder):
        if not packages.exists():
            with tempfile.TemporaryDirectory(dir=folder) as made:
                pip = (sys.executable, "-m", "pip", "install", *QUICKLY, "--target", f"{made}/new")
                done = subprocess.run(
                    (*pip, f"pyspark=={version}"), capture_output=True, text=True, check=False
                )
                if done.returncode != 0:
                    last = done.stderr.strip().splitlines()[-1:]
                    raise ServerMissingError(f"pip does not install it: {' '.join(last)}")
                Path(made, "new").rename(packages)
    return packages
