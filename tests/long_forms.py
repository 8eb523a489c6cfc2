"""Tests that have a short form, for `make test`, and a long one, for `make long`."""

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings


def short_and_long(short: int, long: int, variable: str) -> list[Any]:
    """Return how many of something a test has in its two forms, to be its parameter.

    The environment's `variable` says otherwise for the long form.
    """
    many = int(os.environ.get(variable, long))
    return [
        pytest.param(short, id=f"{short}"),
        pytest.param(many, id=f"{many} in the long form", marks=pytest.mark.long),
    ]


def seeds(many: int) -> range:
    """Return the seeds of a sweep: the same in each `make test`, others each day in `make long`."""
    first = int(os.environ.get("KIP33_SEED", "0"))
    return range(first, first + many)


def one_in(count: int, cases: Iterable[Any]) -> list[Any]:
    """Return all cases as parameters, of which the short form has the first of every so many.

    A case may be a `pytest.param`, with its name.
    """
    return [
        case if number % count == 0 else _of_the_long_form(case)
        for number, case in enumerate(cases)
    ]


def _of_the_long_form(case: Any) -> Any:
    if isinstance(case, type(pytest.param())):
        return case._replace(marks=(*case.marks, pytest.mark.long))
    return pytest.param(case, marks=pytest.mark.long)


def examples(many: int) -> int:
    """Return how many examples a property is tried with: `many` in the long form.

    The profile of this run says how many of a hundred.
    """
    return max(3, many * settings.default.max_examples // 100)
