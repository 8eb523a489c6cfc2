"""Detect timestamps that their writer hardly meant, by kind.

The intention of a producer is unknown, so each kind is a range that contains no real timestamps.
"""

from typing import Final

YEAR_1990_MS: Final = 631_152_000_000  # no Kafka record is older; a clock that starts in 1970 is
YEAR_MS: Final = 366 * 86_400_000
DEFAULT_AFTER_MAX_MS: Final = 3_600_000  # message.timestamp.after.max.ms since Kafka 4.0 (KIP-1030)

FUTURE: Final = "future"
SECONDS: Final = "seconds"
MICROSECONDS: Final = "microseconds"
NANOSECONDS: Final = "nanoseconds"
BEFORE_1990: Final = "before_1990"
BACKFILL: Final = "backfill"
SUSPICIONS: Final = (FUTURE, SECONDS, MICROSECONDS, NANOSECONDS, BEFORE_1990, BACKFILL)
"""The values of `suspicion_of`.

    future        later than now by more than message.timestamp.after.max.ms
    seconds       since 1990, if taken for seconds: as milliseconds January 1970, expired at once
    microseconds  between 1990 and a year from now, if taken for micro- or nanoseconds: as
    nanoseconds     milliseconds tens of thousands of years ahead, never expired (KAFKA-6482)
    before_1990   earlier than any record
    backfill      CreateTime so old that retention would have deleted the segment when its file was
                  last written: it expires on arrival (KIP-33, "bootstrap"). A copy that did not
                  keep the file's time looks the same
"""


def suspicion_of(
    timestamp: int,
    *,
    now_ms: int,
    last_modified_ms: int | None = None,
    retention_ms: int = -1,
    is_create_time: bool = True,
    after_max_ms: int = DEFAULT_AFTER_MAX_MS,
) -> str | None:
    """Return what is suspicious about a segment's largest message timestamp, None if nothing is.

    `after_max_ms` is how far ahead a broker allows a timestamp. `last_modified_ms` and
    `retention_ms` (-1: no limit) are used only for `backfill`.
    """
    for scale, name in ((1_000, MICROSECONDS), (1_000_000, NANOSECONDS)):
        if YEAR_1990_MS * scale <= timestamp < (now_ms + YEAR_MS) * scale:
            return name
    if timestamp - now_ms > after_max_ms:
        return FUTURE
    if YEAR_1990_MS // 1_000 <= timestamp < (now_ms + YEAR_MS) // 1_000:
        return SECONDS
    if timestamp < YEAR_1990_MS:
        return BEFORE_1990
    if is_create_time and retention_ms >= 0 and last_modified_ms is not None:
        return BACKFILL if last_modified_ms - timestamp > retention_ms else None
    return None
