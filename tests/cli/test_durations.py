"""Durations in commands and in Python: a number alone has a unit only where a name says it."""

from typing import Any

import click
import pytest

import kip33
from kip33.cli.times import Quantity
from tests.cli.command_lines import commands_and_modes

EXPECTED = "expected a unit: 7d, 36h, 15m, 30s or 500ms"


def durations() -> list[tuple[str, Quantity]]:
    """Return the options that take 90 s, each with its command."""
    found = []
    for name, command in commands_and_modes():
        for param in command.params:
            if isinstance(param.type, Quantity) and converted(param.type, "90s") == 90_000:
                found.append((f"{name} {param.opts[0]}", param.type))
    return found


def converted(kind: Quantity, text: str) -> Any:
    """Return a value, or the error of a text that is none."""
    try:
        return kind.convert(text, None, None)
    except click.BadParameter as error:
        return error.message


def test_a_duration_without_a_unit_is_refused_unless_it_is_a_setting_of_kafka_in_ms() -> None:
    found = durations()
    assert len(found) > 10
    for name, kind in found:
        is_setting = name.endswith("-ms")
        bare = converted(kind, "60")
        assert bare == 60 if is_setting else EXPECTED in bare, (name, bare)


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (kip33.count_records, {"per": 60}),
        (kip33.read_arrow, {"disorder": "60"}),
        (kip33.read_arrow, {"disorder": 60}),
        (kip33.write_report, {"output": "r.html", "forecast": 30}),
        (kip33.apply_plan, {"max_age": 24}),
        (kip33.apply_plan, {"max_age": "24"}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_in_python_as_well(function: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="found, " + EXPECTED):
        function("nowhere", **options)
