"""A wheel of this checkout, and what has it installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.servers.environments import made_once

PROJECT = Path(__file__).parents[3]
BUILT_FROM = ("kip33", "conf", "jobs", ".ci", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel for this machine, as `make wheel` makes it."""
    [found] = made_once(tmp_path_factory, "wheel", make_wheel).glob("kip33-*.whl")
    return found


def make_wheel(root: Path, platform: str | None = None) -> Path:
    """Make a wheel in a folder, of a copy of this checkout; `platform` is not this machine's."""
    for name in BUILT_FROM:
        _copy(PROJECT / name, root / "copy" / name)
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", root],
        cwd=root / "copy",
        env=os.environ | ({"KIP33_WHEEL": platform} if platform else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [found] = root.glob("kip33-*.whl")
    return found


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)
