"""Detect timestamps that are probably mistakes, by kind.

The intention of a producer is unknown, so each kind is a range that contains no real timestamps.
"""

from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np

from kip33.rules.policies import MAX_INT64
from kip33.rules.retention import Bools, Codes, Int64Column, Int64s, first_that_applies

YEAR_1990_MS: Final = 631_152_000_000  # no Kafka record is older; a clock that starts in 1970 is
YEAR_MS: Final = 366 * 86_400_000
DEFAULT_AFTER_MAX_MS: Final = 3_600_000  # message.timestamp.after.max.ms since Kafka 4.0 (KIP-1030)


class Suspicion(StrEnum):
    """A kind of suspicious timestamp.

    future        later than now by more than message.timestamp.after.max.ms
    seconds       since 1990, if taken for seconds: as milliseconds January 1970, expired at once
    microseconds  between 1990 and a year from now, if taken for micro- or nanoseconds: as
    nanoseconds     milliseconds tens of thousands of years ahead, never expired (KAFKA-6482)
    before_1990   earlier than any record
    backfill      CreateTime so old that retention would have deleted the segment when its file was
                  last written: it expires on arrival (KIP-33, "bootstrap"). A copy that did not
                  keep the file's time looks the same
    """

    FUTURE = "future"
    SECONDS = "seconds"
    MICROSECONDS = "microseconds"
    NANOSECONDS = "nanoseconds"
    BEFORE_1990 = "before_1990"
    BACKFILL = "backfill"


SUSPICIONS: Final = tuple(Suspicion)
_CODE: Final[dict[str, np.int8]] = {kind: np.int8(code) for code, kind in enumerate(SUSPICIONS)}


class TimestampColumns(NamedTuple):
    """The input columns, one value for each segment."""

    largest_timestamp: Int64Column
    is_of_record: Bools  # no file's time that stands in for it: that can only be in the future
    is_create_time: Bools  # this and the two below are needed for backfills only
    last_modified_ms: Int64Column
    retention_ms: Int64s  # -1: no limit
    after_max_ms: Int64s  # how far ahead a broker lets a timestamp be


def suspicions_of(segments: TimestampColumns, *, now_ms: int) -> Codes:
    """Return what is suspicious about each largest timestamp: its place in SUSPICIONS, or -1."""
    largest = segments.largest_timestamp
    of_record, limit = largest.known & segments.is_of_record, segments.retention_ms
    ahead_from = np.minimum(segments.after_max_ms, MAX_INT64 - now_ms) + now_ms
    modified = np.where(segments.last_modified_ms.known, segments.last_modified_ms.values, 0)
    on_arrival = (limit >= 0) & (largest.values < np.maximum(0, modified) - limit)
    kinds: dict[str, Bools] = {
        Suspicion.MICROSECONDS: of_record & _since_1990(largest.values, now_ms, 1_000),
        Suspicion.NANOSECONDS: of_record & _since_1990(largest.values, now_ms, 1_000_000),
        Suspicion.FUTURE: largest.known & (largest.values > ahead_from),
        Suspicion.SECONDS: of_record
        & (largest.values >= YEAR_1990_MS // 1_000)
        & (largest.values < (now_ms + YEAR_MS) // 1_000),
        Suspicion.BEFORE_1990: of_record & (largest.values < YEAR_1990_MS),
        Suspicion.BACKFILL: of_record & segments.is_create_time & on_arrival,
    }
    return first_that_applies(kinds, _CODE)


def _since_1990(largest: Int64s, now_ms: int, scale: int) -> Bools:
    """Return which are between 1990 and a year from now in a unit of which a ms has `scale`."""
    until = min(MAX_INT64, (now_ms + YEAR_MS) * scale)
    return np.logical_and(largest >= min(MAX_INT64, YEAR_1990_MS * scale), largest < until)
