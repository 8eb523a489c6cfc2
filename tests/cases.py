"""A table of cases is one test: all of its cases run, and those that fail are named."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import Any

import pyarrow as pa
import pytest

from kip33.catalog.catalog_columns import rows_of

Test = Callable[..., None]


def rows_in_ms(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table of Python without its times, which JSON has only in ms."""
    times = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
    return [*rows_of(table.drop_columns(times))]


def each_case(names: str | tuple[str, ...], cases: Mapping[str, Any] | Iterable[Any]) -> Any:
    """Run a test with each case, as one test.

    A case is the value of the parameter `names`, or a tuple of the values of several. A mapping
    names its cases. Several tables of one test are combined. The cases share the test's fixtures,
    but each has a `tmp_path` of its own.
    """
    pairs = cases.items() if isinstance(cases, Mapping) else [(str(case), case) for case in cases]
    several = (names,) if isinstance(names, str) else names
    table = [
        (name, dict(zip(several, (case,) if isinstance(names, str) else case, strict=True)))
        for name, case in pairs
    ]
    return lambda test: _of_every_case(test, several, table)


def _of_every_case(
    test: Any, names: tuple[str, ...], table: list[tuple[str, dict[str, Any]]]
) -> Test:
    one_case, others = getattr(test, "one_case_and_table", (test, [("", {})]))
    every = [
        (f"{name} {other}".strip(), {**values, **other_values})
        for name, values in table
        for other, other_values in others
    ]

    @wraps(one_case)
    def of_every_case(subtests: pytest.Subtests, **fixtures: Any) -> None:
        top = fixtures.get("tmp_path")
        for number, (name, values) in enumerate(every):
            if top:
                fixtures["tmp_path"] = top / f"case{number}"
                fixtures["tmp_path"].mkdir()
            try:
                one_case(**values, **fixtures)
            except (Exception, pytest.fail.Exception, pytest.skip.Exception):
                with subtests.test(name):
                    raise

    fixtures = [
        parameter
        for parameter in signature(test).parameters.values()
        if parameter.name not in {*names, "subtests"}
    ]
    asks_for_subtests = Parameter("subtests", Parameter.POSITIONAL_OR_KEYWORD)
    found: Any = of_every_case
    found.__signature__ = signature(test).replace(parameters=[asks_for_subtests, *fixtures])
    found.one_case_and_table = (one_case, every)
    return found  # type: ignore[no-any-return]
