"""The clock for programs that call kip33; commands use `cli.times.current_ms`."""

import time

from kip33.formats.times import Time, milliseconds_of


def current_ms() -> int:
    """Return the current time in ms since 1970."""
    return time.time_ns() // 1_000_000


def now_or(moment: Time | None) -> int:
    """Return a time in ms since 1970, the current time for None; ValueError before 1970."""
    now_ms = current_ms() if moment is None else milliseconds_of(moment)
    if now_ms < 0:
        raise ValueError(f"now {now_ms} found, expected a time from 1970 on")
    return now_ms
