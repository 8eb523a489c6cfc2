"""Times, durations and sizes as options: `2024-05-01T12:00Z`, `9:05`, `now-7d`, `36h`, `10GiB`."""

import re
import time
from collections.abc import Callable
from typing import Any, Final

import click

from kip33.formats.times import Milliseconds, milliseconds_in
from kip33.rules.policies import MAX_INT64, duration_ms, limit_ms, positive_ms, size_bytes
from kip33.rules.search import TARGETS

MOMENT_EXPECTED: Final = (
    "ISO 8601 (UTC without a zone), 9:05 (today in UTC), milliseconds, now, now-7d or now+36h"
)
LAST_MS: Final = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
_DAY_MS: Final = 86_400_000
_OF_TODAY = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?", re.ASCII)
_FROM_NOW = re.compile(r"now(?:([+-])(.+))?")


def current_ms() -> int:
    """Return the current time in ms since the epoch."""
    return time.time_ns() // 1_000_000


def moment_or_now(moment: Any) -> int:
    """Return the time of an option `--now`, which is in ms, else the current time."""
    return current_ms() if moment is None else int(moment)


def parse_moment(text: str, now_ms: int) -> Milliseconds:
    """Return a time in ms since the epoch; ValueError with what was found and expected.

    A text of digits is ms; one that may be seconds or a date is refused. A fraction of a
    millisecond is cut off. `now` is `now_ms`, `now-7d` a week before. `9:05` and `09:05:30` are
    times of the day that `now_ms` is in, in UTC.

    >>> parse_moment("1970-01-02", 0), parse_moment("now-1s", 5000), parse_moment("0:01", 5000)
    (86400000, 4000, 60000)
    """
    text = text.strip()
    moment = None
    if match := _FROM_NOW.fullmatch(text):
        moment = now_ms
        if match[1]:
            distance = duration_ms(match[2])
            moment += distance if match[1] == "+" else -distance
    elif match := _OF_TODAY.fullmatch(text):
        hours, minutes, seconds = (int(part or 0) for part in match.groups())
        moment = now_ms // _DAY_MS * _DAY_MS + ((hours * 60 + minutes) * 60 + seconds) * 1000
    else:
        moment = milliseconds_in(text)
    if moment is None or not 0 <= moment <= MAX_INT64:
        raise ValueError(f"{text!r} found, expected {MOMENT_EXPECTED}, not before 1970")
    return Milliseconds(moment)


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


def parse_clock(text: str) -> int:
    """Return a time for a decision, before the year 10000, so that sums stay within int64."""
    now_ms = parse_moment(text, current_ms())
    if now_ms > LAST_MS:
        raise ValueError(f"{text.strip()!r} found, expected a moment before the year 10000")
    return now_ms


def _buffer_ms(text: str) -> int:
    return AUTO_BUFFER if text == "auto" else duration_ms(text)


def _clocks(text: str) -> tuple[int, ...]:
    return tuple(parse_clock(one) for one in text.split(",")) if text else ()


MOMENT: Final = Quantity("moment", parse_clock, "2024-05-01T12:00:00Z")
MOMENTS: Final = Quantity("moments", _clocks, "2024-05-01,2024-06-01")
DURATION: Final = Quantity("duration", duration_ms, "7d")
POSITIVE_DURATION: Final = Quantity("duration", positive_ms, "7d")
LIMIT: Final = Quantity("limit", limit_ms, "7d")
SIZE: Final = Quantity("size", size_bytes, "10GiB")
AUTO_BUFFER: Final = -1  # of `kip33 failover`: it is measured
BUFFER: Final = Quantity("duration", _buffer_ms, "7d")


def parse_target(text: str, now_ms: int) -> int:
    """Return the target: ms since the epoch, or Kafka's -2, -1, -3 for a name.

    `-3h` is three hours before `now_ms`. ValueError with what was found and expected.

    >>> parse_target("-3h", 10_800_005), parse_target("earliest", 0)
    (5, -2)
    """
    text = text.strip()
    if text in TARGETS:
        return TARGETS[text]
    if text.startswith("-") and not text[1:].isdigit():
        text = f"now{text}"
    try:
        return parse_moment(text, now_ms)
    except ValueError as error:
        raise ValueError(f"{error}; or -3h, {', '.join(TARGETS)}") from error
