"""The two speeds of a rule: as it is written, or compiled."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

Speed: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Takes a rule's plain function and returns what to call."""


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function itself: what few batches need."""
    return function


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as machine code."""
    from kip33.formats.native import compiler

    machine_code: Callable[..., Any] = compiler.compiled(function)
    return machine_code
