"""Times as a caller gives them: `2024-05-01T12:00Z`, `9:05`, `now-7d`, `-3h`, those of libraries.

Options are parsed here, in commands and in Python. The caller's clock is read here, too.
"""

import re
import time
from collections.abc import Iterable
from typing import Final

from kip33.formats.times import Milliseconds, Time, milliseconds_in, milliseconds_of
from kip33.rules.policies import MAX_INT64, duration_ms
from kip33.rules.search import TARGETS

EXPECTED: Final = (
    "ISO 8601 (UTC without a zone), 9:05 (today in UTC), milliseconds, now, now-7d, -3h or now+36h"
)
LAST_MS: Final = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
_DAY_MS: Final = 86_400_000
_OF_TODAY: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?", re.ASCII)
_FROM_NOW: Final = re.compile(r"now|(?:now([+-])|(-)(?![0-9]+$))(.+)", re.ASCII)


def current_ms() -> int:
    """The current time in ms since 1970."""
    return time.time_ns() // 1_000_000


def moment_ms(given: Time, now_ms: int | None = None) -> Milliseconds:
    """A time in ms since 1970. `now` is `now_ms`, None: the clock; a part of a ms is cut off.

    ValueError for another value, a time before 1970 or beyond int64, and a number that may be
    seconds.

    >>> moment_ms("1970-01-02"), moment_ms("-1s", 5000), moment_ms("0:01", 5000)
    (86400000, 4000, 60000)
    """
    if isinstance(given, str):
        clock_ms = current_ms() if now_ms is None else now_ms
        found = _in_text(given.strip(), clock_ms)
    else:
        found = milliseconds_of(given)
    if found is None or not 0 <= found <= MAX_INT64:
        shown = repr(given) if isinstance(given, str) else given
        raise ValueError(f"{shown} found, expected {EXPECTED}, not before 1970")
    return Milliseconds(found)


def _in_text(text: str, now_ms: int) -> int | None:
    if match := _FROM_NOW.fullmatch(text):
        distance = duration_ms(match[3]) if match[3] else 0
        return now_ms + distance if match[1] == "+" else now_ms - distance
    if match := _OF_TODAY.fullmatch(text):
        hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return now_ms // _DAY_MS * _DAY_MS + ((hours * 60 + minutes) * 60 + seconds) * 1000
    return milliseconds_in(text)


def time_ms(given: Time) -> Milliseconds:
    """A time in ms since 1970, before the year 10000, so that sums stay within int64."""
    found = moment_ms(given)
    if found > LAST_MS:
        raise ValueError(f"{given} found, expected a time before the year 10000")
    return found


def times_ms(given: str | Iterable[Time]) -> tuple[Milliseconds, ...]:
    """The times in a list, or in a text with commas between them."""
    if isinstance(given, str):
        given = given.split(",") if given else ()
    return tuple(time_ms(one) for one in given)


def time_or_now(given: Time | None) -> int:
    """A time in ms since 1970, the current one for None."""
    return current_ms() if given is None else time_ms(given)


def target_ms(given: Time, now_ms: int | None = None) -> int:
    """What a search looks for: ms since 1970, or Kafka's -2, -1, -3 for a name of TARGETS.

    >>> target_ms("-3h", 10_800_005), target_ms("earliest")
    (5, -2)
    """
    if isinstance(given, str) and given.strip() in TARGETS:
        return TARGETS[given.strip()]
    if isinstance(given, int) and given in TARGETS.values():
        return given
    try:
        return moment_ms(given, now_ms)
    except ValueError as error:
        raise ValueError(f"{error}; or {', '.join(TARGETS)}") from error
