"""A wheel of this checkout, and what has it installed."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kip33.formats.native.object_code import CPU_TARGETS
from kip33.formats.native.object_kernels import is_for_this_machine

PROJECT = Path(__file__).parents[3]
BUILT_FROM = ("kip33", "conf", "jobs", ".ci", "pyproject.toml", "README.md", "LICENSE")
OBJECTS = "kip33/formats/native/objects"  # as `make wheel` has it


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel as `make wheel` makes it, but with object code for this machine only."""
    root = tmp_path_factory.mktemp("wheel")
    copy = root / "copy"
    for name in BUILT_FROM:
        _copy(PROJECT / name, copy / name)
    fitting = [target.name for target in CPU_TARGETS if is_for_this_machine(target)]
    for name in fitting[:1]:
        objects = ("-m", "kip33.indexing.object_files", copy / OBJECTS, "--target", name)
        _run([sys.executable, *objects], PROJECT)
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", root], copy)
    [found] = root.glob("kip33-*-py3-none-any.whl")
    return found


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "objects"))
    else:
        shutil.copy(source, target)


def _run(command: Sequence[str | Path], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
