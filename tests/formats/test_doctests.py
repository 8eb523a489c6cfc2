"""The examples in the docstrings of `kip33.formats` run."""

import doctest
import importlib
import pkgutil

import pytest

import kip33.formats

MODULES = [module.name for module in pkgutil.iter_modules(kip33.formats.__path__)]


@pytest.mark.parametrize("module", MODULES)
def test_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"kip33.formats.{module}"))
    assert result.failed == 0
