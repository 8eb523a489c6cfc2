"""What a filter of a query engine leaves of a table of records.

An engine applies its filter to the rows that it gets, so bounds may be wider than the filter, never
narrower. A row that has null in a compared column does not pass the engine's filter.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Self

from kip33.formats.times import Time, milliseconds_of
from kip33.formats.whole_bodies import RecordLimits


class Comparison(StrEnum):
    """How a column is compared with a value."""

    EQUAL = "="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    IN = "in"


_HAS_LOWER = (Comparison.EQUAL, Comparison.GREATER, Comparison.GREATER_OR_EQUAL, Comparison.IN)
_HAS_UPPER = (Comparison.EQUAL, Comparison.LESS, Comparison.LESS_OR_EQUAL, Comparison.IN)


class FilterBounds(NamedTuple):
    """The records that may pass a filter."""

    limits: RecordLimits = RecordLimits()
    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None

    def where(self, column: str, comparison: Comparison, value: Any) -> Self:
        """Return the bounds with one more condition; one that nothing follows from is ignored.

        `value` is a text, an integer, or a `datetime` with a time zone, or for IN a sequence.
        """
        values = list(value) if comparison == Comparison.IN else [value]
        if column in ("topic", "partition"):
            return self._where_named(column, comparison, values)
        if column == "offset" and _are(values, int):
            return self._between("offset", comparison, values)
        if column == "timestamp":
            times = [_milliseconds(one) for one in values]
            known = [one for one in times if one is not None]
            if len(known) == len(values):
                return self._between("timestamp", comparison, known)
        return self

    def _where_named(self, column: str, comparison: Comparison, values: list[Any]) -> Self:
        if comparison not in (Comparison.EQUAL, Comparison.IN):
            return self
        if column == "topic" and _are(values, str):
            topics = frozenset(values)
            return self._replace(topics=topics & (topics if self.topics is None else self.topics))
        if column == "partition" and _are(values, int):
            found = frozenset(values)
            before = found if self.partitions is None else self.partitions
            return self._replace(partitions=found & before)
        return self

    def _between(self, column: str, comparison: Comparison, values: Sequence[int]) -> Self:
        """Return the bounds; `<` and `>` of a time are read as `<=` and `>=`.

        The engine's time may have a fraction of a millisecond, so the time before it may pass.
        """
        if not values:  # IN ()
            return self._replace(topics=frozenset())
        limits = self.limits._asdict()
        is_whole = column == "offset"
        if comparison in _HAS_LOWER:
            least = min(values) + (is_whole and comparison == Comparison.GREATER)
            limits[f"first_{column}"] = max(limits[f"first_{column}"], least)
        if comparison in _HAS_UPPER:
            most = max(values) - (is_whole and comparison == Comparison.LESS)
            limits[f"last_{column}"] = min(limits[f"last_{column}"], most)
        return self._replace(limits=RecordLimits(**limits))

    def narrowed(self, limits: RecordLimits) -> RecordLimits:
        """Return the part of limits that is inside the bounds."""
        mine = self.limits
        return RecordLimits(
            max(limits.first_offset, mine.first_offset),
            min(limits.last_offset, mine.last_offset),
            max(limits.first_timestamp, mine.first_timestamp),
            min(limits.last_timestamp, mine.last_timestamp),
        )

    @property
    def is_empty(self) -> bool:
        """Return whether no record passes the filter."""
        limits = self.limits
        return (
            limits.first_offset > limits.last_offset
            or limits.first_timestamp > limits.last_timestamp
            or self.topics == frozenset()
            or self.partitions == frozenset()
        )


def _are(values: Sequence[Any], kind: type) -> bool:
    return all(isinstance(one, kind) and not isinstance(one, bool) for one in values)


def _milliseconds(time: Time) -> int | None:
    """Return a time in ms, rounded down; None for anything that is not one."""
    try:
        return milliseconds_of(time)
    except ValueError:
        return None
