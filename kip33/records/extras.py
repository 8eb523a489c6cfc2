"""Packages of the extra `schemas`, imported when they are needed."""

import importlib
from typing import Any


def needed(module: str) -> Any:
    """Return a module; ModuleNotFoundError says what to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"decode: the Python package of {module} is not installed; "
            "install it with: pip install 'kip33[schemas]'",
            name=error.name,
        ) from None
