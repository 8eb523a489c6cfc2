"""The examples in the docstrings of `kip33` run, in a folder with `archive` and `indexes`."""

import doctest
import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kip33 import build_index
from kip33.demo import make_archive

PROJECT = Path(__file__).parents[1]
MODULES = [
    ".".join(path.relative_to(PROJECT).with_suffix("").parts)
    for path in sorted((PROJECT / "kip33").rglob("*.py"))
    if ">>> " in path.read_text()
]
ON_SPARK = [module for module in MODULES if module.startswith("kip33.spark.")]
HOW = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo archive and its indexes."""
    folder = tmp_path_factory.mktemp("examples")
    make_archive(folder / "archive")
    build_index(folder / "archive", folder / "indexes")
    return folder


@pytest.fixture
def here(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of both, the current directory."""
    shutil.copytree(built, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def failures_of(module: str, here: Path, **names: Any) -> Iterator[str]:
    """Run the examples of a module; those that build begin without the indexes."""
    runner = doctest.DocTestRunner(optionflags=HOW)
    said: list[str] = []
    for example in doctest.DocTestFinder().find(importlib.import_module(module)):
        if "build_index(" in (example.docstring or ""):
            shutil.rmtree(here / "indexes", ignore_errors=True)
        example.globs |= names
        runner.run(example, out=said.append)
    yield from said


@pytest.mark.parametrize("module", [name for name in MODULES if name not in ON_SPARK])
def test_examples(module: str, here: Path) -> None:
    assert "".join(failures_of(module, here)) == ""


@pytest.mark.spark
@pytest.mark.parametrize("module", ON_SPARK)
def test_examples_on_spark(module: str, here: Path, spark: Any) -> None:
    assert "".join(failures_of(module, here, spark=spark)) == ""
