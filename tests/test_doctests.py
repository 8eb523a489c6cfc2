"""The examples in the docstrings of `kip33` run, in a folder with `archive` and `indexes`."""

import contextlib
import doctest
import importlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kip33 import build_index
from kip33.demo import make_archive
from tests.cases import each_case

PROJECT = Path(__file__).parents[1]
MODULES = [
    ".".join(path.relative_to(PROJECT).with_suffix("").parts)
    for path in sorted((PROJECT / "kip33").rglob("*.py"))
    if ">>> " in path.read_text()
]
ON_SPARK = [module for module in MODULES if module.startswith("kip33.spark.")]
USES_A_COPY = re.compile(r"^ *(>>>|\.\.\.) .*(archive|indexes)", re.MULTILINE)
HOW = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo archive and its indexes."""
    folder = tmp_path_factory.mktemp("examples")
    make_archive(folder / "archive")
    build_index(folder / "archive", folder / "indexes")
    return folder


def failures_of(module: str, built: Path, here: Path, **names: Any) -> Iterator[str]:
    """Run the examples of a module, beside a copy of both where they ask for one.

    Those that build begin without the indexes.
    """
    source = Path(importlib.import_module(module).__file__ or "").read_text(encoding="utf-8")
    if USES_A_COPY.search(source):
        shutil.copytree(built, here, dirs_exist_ok=True)
    runner = doctest.DocTestRunner(optionflags=HOW)
    said: list[str] = []
    with contextlib.chdir(here):
        for example in doctest.DocTestFinder().find(importlib.import_module(module)):
            if "build_index(" in (example.docstring or ""):
                shutil.rmtree(here / "indexes", ignore_errors=True)
            for behind in here.glob("indexes/_catalog/commits/*.changed"):
                behind.unlink()  # of an example that ends without a build
            example.globs |= names
            runner.run(example, out=said.append)
    yield from said


@each_case("module", [name for name in MODULES if name not in ON_SPARK])
def test_examples(module: str, built: Path, tmp_path: Path) -> None:
    assert "".join(failures_of(module, built, tmp_path)) == ""


@pytest.mark.spark
@each_case("module", ON_SPARK)
def test_examples_on_spark(module: str, built: Path, tmp_path: Path, spark: Any) -> None:
    assert "".join(failures_of(module, built, tmp_path, spark=spark)) == ""
