"""Times, durations and sizes as options: `2024-05-01T12:00Z`, `9:05`, `now-7d`, `36h`, `10GiB`."""

from collections.abc import Callable
from typing import Any, Final

import click

from kip33.archive.moments import time_ms, times_ms
from kip33.rules.policies import duration_ms, limit_ms, positive_ms, size_bytes


class Quantity(click.ParamType):  # type: ignore[type-arg]  # generic since 8.4; 8.1 serves
    """The type of an option: a text that is converted to numbers; errors are one line."""

    def __init__(self, name: str, parse: Callable[[str], Any], example: str) -> None:
        """Take the value's name, a function that converts it or raises ValueError, an example."""
        self.name = name
        self._parse = parse
        self._example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value, or end the command with what was found, expected, and an example."""
        try:
            return self._parse(str(value))
        except ValueError as error:
            self.fail(f"{error}; for example {self._example}", param, ctx)


def _buffer_ms(text: str) -> int:
    return AUTO_BUFFER if text == "auto" else duration_ms(text)


MOMENT: Final = Quantity("moment", time_ms, "2024-05-01T12:00:00Z")
MOMENTS: Final = Quantity("moments", times_ms, "2024-05-01,2024-06-01")
DURATION: Final = Quantity("duration", duration_ms, "7d")
POSITIVE_DURATION: Final = Quantity("duration", positive_ms, "7d")
LIMIT: Final = Quantity("limit", limit_ms, "7d")
SIZE: Final = Quantity("size", size_bytes, "10GiB")
AUTO_BUFFER: Final = -1  # of `kip33 failover`: it is measured
BUFFER: Final = Quantity("duration", _buffer_ms, "7d")
