"""The examples in the docstrings of `kip33` run."""

import doctest
import importlib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
MODULES = [
    ".".join(path.relative_to(PROJECT).with_suffix("").parts)
    for path in sorted((PROJECT / "kip33").rglob("*.py"))
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("module", MODULES)
def test_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0
