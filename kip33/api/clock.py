"""The clock of a program that calls kip33: what `cli.times.current_ms` is to a command."""

import time

from kip33.formats.times import Time, milliseconds_of


def current_ms() -> int:
    """Return the time now, in ms since 1970."""
    return time.time_ns() // 1_000_000


def now_or(moment: Time | None) -> int:
    """Return a given moment in ms since 1970, the time now for None; ValueError before 1970."""
    now_ms = current_ms() if moment is None else milliseconds_of(moment)
    if now_ms < 0:
        raise ValueError(f"now {now_ms} found, expected a time from 1970 on")
    return now_ms
