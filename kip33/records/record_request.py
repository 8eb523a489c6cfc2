"""Which records are wanted, which segments and batches may have them, and what faults become.

A query engine applies its filter to the rows that it gets. So `FilterBounds` may be wider than the
filter, never narrower. A row that has null in a compared column does not pass the engine's filter.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kip33.archive.log_slice import LogSlice
from kip33.catalog.catalog import Warn, warn_caller
from kip33.errors import Kip33Error, UnreadableLogError
from kip33.formats.batch import CONTROL, DELETE_HORIZON, NO_TIMESTAMP, BatchColumns, are_wrappers
from kip33.formats.times import Time, milliseconds_of
from kip33.formats.whole_bodies import RecordLimits
from kip33.records.columns import corrupt_row
from kip33.records.partitions import ReadSegment
from kip33.rules.policies import duration_ms
from kip33.rules.search import may_hold

_LOWEST, _HIGHEST = RecordLimits().first_offset, RecordLimits().last_offset


class RecordRequest(NamedTuple):
    """The records of a partition that are wanted."""

    limits: RecordLimits = RecordLimits()
    include_control: bool = False
    disorder_ms: int | None = None  # no record is older than an earlier one by more than this
    only_committed: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """What chooses records, by the names of the options; None: no limit."""
        limits = self.limits
        first_time = None if limits.first_timestamp == _LOWEST else limits.first_timestamp
        end_time = None if limits.last_timestamp == _HIGHEST else limits.last_timestamp + 1
        return {
            "isolation": "read_committed" if self.only_committed else "read_uncommitted",
            "include_control": self.include_control,
            "start_offset": None if limits.first_offset == _LOWEST else limits.first_offset,
            "end_offset": None if limits.last_offset == _HIGHEST else limits.last_offset + 1,
            "start_time": first_time,
            "end_time": end_time,
        }

    def below(self, offset: int | None) -> "RecordRequest":
        """Return the request without offsets from `offset` on."""
        if offset is None:
            return self
        last = min(self.limits.last_offset, offset - 1)
        return self._replace(limits=self.limits._replace(last_offset=last))

    def starting_at(self, offset: int) -> "RecordRequest":
        """Return the request without smaller offsets."""
        first = max(self.limits.first_offset, offset)
        return self._replace(limits=self.limits._replace(first_offset=first))

    def inside(self, slice_: LogSlice) -> "RecordRequest":
        """Return what is wanted of a slice of a log."""
        request = self.below(slice_.until_offset)
        return request.starting_at(slice_.from_offset) if slice_.from_offset else request

    def needed_of(self, partition: Iterable[ReadSegment]) -> list[ReadSegment]:
        """Return the segments of a partition that may have rows, by what is known about them."""
        needed, latest = [], -1
        for segment in partition:
            if self.is_over(latest):
                break
            if self.needs(segment):
                needed.append(segment)
            latest = max(latest, segment.reached_timestamp)
        return needed

    def needs(self, segment: ReadSegment) -> bool:
        """Return whether a segment may have such records, by what is known about it."""
        limits = self.limits
        if segment.base_offset is not None and segment.base_offset > limits.last_offset:
            return False
        if _ends_before(segment, limits.first_offset):
            return False
        return not self.has_times or self._needs_times_of(segment)

    @property
    def has_times(self) -> bool:
        """Return whether records are selected by their timestamps."""
        return (self.limits.first_timestamp, self.limits.last_timestamp) != (_LOWEST, _HIGHEST)

    def _needs_times_of(self, segment: ReadSegment) -> bool:
        if segment.damage:  # figures know nothing of what is behind it
            return True
        if not may_hold(segment.max_timestamp, self.limits.first_timestamp):
            return False
        smallest = segment.smallest_timestamp  # -1 may stand for a time before 1970
        return smallest is None or smallest <= max(self.limits.last_timestamp, NO_TIMESTAMP)

    def is_over(self, latest_timestamp: int) -> bool:
        """Return whether no later record is wanted, after one with this timestamp."""
        if self.disorder_ms is None or latest_timestamp == NO_TIMESTAMP:
            return False
        return latest_timestamp - self.disorder_ms > self.limits.last_timestamp

    def wanted(self, batches: BatchColumns) -> npt.NDArray[np.bool_]:
        """Return which batches may have such records, by their headers."""
        limits = self.limits
        is_v2 = batches["magic"] >= 2
        is_out = batches["last_offset"] < limits.first_offset
        is_out |= batches["base_offset"] > limits.last_offset
        has_horizon = batches["attributes"] & DELETE_HORIZON != 0
        is_false = ~has_horizon & (batches["base_timestamp"] > batches["max_timestamp"])
        is_out |= (batches["max_timestamp"] < limits.first_timestamp) & ~is_false
        if not self.include_control:
            is_out |= (batches["attributes"] & CONTROL) != 0
        wanted: npt.NDArray[np.bool_] = ~(is_out & is_v2)
        return wanted

    def ends_in(self, batches: BatchColumns) -> int | None:
        """Return how many of these are read, if no batch after them has an offset that is wanted.

        The offsets of a wrapper of v0 or v1 may be inside.
        """
        if self.limits.last_offset == _HIGHEST:  # a damaged batch may claim it
            return None
        is_end = ~are_wrappers(batches) & (batches["last_offset"] >= self.limits.last_offset)
        return int(is_end.argmax()) + 1 if is_end.any() else None


def _ends_before(segment: ReadSegment, offset: int) -> bool:
    """Return whether all offsets of a segment are known to be smaller than `offset`."""
    if segment.last_offset is not None and not segment.damage:
        return segment.last_offset < offset
    base, following = segment.base_offset, segment.next_base_offset
    return base is not None and following is not None and base < following <= offset


def limits_of(
    start_time: Time | None, end_time: Time | None, start_offset: int | None, end_offset: int | None
) -> RecordLimits:
    """Return the limits of a caller, whose ends are exclusive.

    With a time, records without a timestamp are outside. ValueError for swapped limits.
    """
    times = [None if time is None else milliseconds_of(time) for time in (start_time, end_time)]
    limits = RecordLimits(
        _LOWEST if start_offset is None else start_offset,
        _HIGHEST if end_offset is None else end_offset - 1,
        _LOWEST if times[0] is None else times[0],
        _HIGHEST if times[1] is None else times[1] - 1,
        only_with_timestamp=times != [None, None],
    )
    if limits.first_timestamp > limits.last_timestamp:
        raise ValueError("--until must be later than --from; records at --until are not included")
    if limits.first_offset > limits.last_offset + 1:
        raise ValueError(
            f"end_offset {end_offset}: expected at least the start_offset, {start_offset}"
        )
    return limits


def disorder_of(disorder: str | int | None) -> int | None:
    """Return a caller's promise in ms; ValueError if it is no duration."""
    return None if disorder is None else duration_ms(disorder)


class OnError(StrEnum):
    """The choices of a caller."""

    ROW = "row"  # return a row that says why
    FAIL = "fail"  # raise the error; also for a record that may be of an aborted transaction
    SKIP = "skip"  # only count them; not a log that cannot be opened


OnErrorName: TypeAlias = Literal["row", "fail", "skip"]
"""The members of `OnError`."""


MOST_PROBLEMS: Final = 20  # that are kept and shown


def problem_lines(problems: Sequence[str], damaged: int) -> Iterator[str]:
    """Yield the first problems in the logs, and how many more there are."""
    yield from problems
    if damaged > len(problems) > 0:
        yield f"and {damaged - len(problems):,} more problems in the logs"


class Faults:
    """Decides about what cannot be read; `skipped` gets a line for each that is skipped."""

    def __init__(
        self,
        on_error: OnError,
        schema: pa.Schema,
        skipped: list[str],
        warn: Warn = warn_caller,
    ) -> None:
        """Take the caller's choice, the columns of a row, and what gets lines.

        `warn` gets what the caller is told although it is no fault.
        """
        self.on_error, self._schema, self._skipped = on_error, schema, skipped
        self.warn = warn

    def seen(self, error: Kip33Error) -> None:
        """Raise an error, or count it as skipped, unless it becomes a row.

        A log that was deleted or cannot be reached is no damage, so it is not skipped.
        """
        is_damage = not isinstance(error, UnreadableLogError)
        if self.on_error == OnError.FAIL or (self.on_error == OnError.SKIP and not is_damage):
            skip = ', "skip" no row' if is_damage else ""
            error.add_note(f'on_error="row" gives a row with the reason instead{skip}')
            raise error
        if self.on_error == OnError.SKIP:
            self._skipped.append(str(error))

    def found(self, segment: ReadSegment, error: Kip33Error) -> Iterator[pa.RecordBatch]:
        """Yield a row for an error, or raise it, or skip it."""
        self.seen(error)
        if self.on_error == OnError.ROW:
            yield corrupt_row(self._schema, segment, str(error))


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
            limits[f"first_{column}"] = max(limits[f"first_{column}"], min(least, _HIGHEST))
        if comparison in _HAS_UPPER:
            most = max(values) - (is_whole and comparison == Comparison.LESS)
            limits[f"last_{column}"] = min(limits[f"last_{column}"], max(most, _LOWEST))
        return self._replace(limits=RecordLimits(**limits))

    def narrowed(self, limits: RecordLimits) -> RecordLimits:
        """Return the part of limits that is inside the bounds."""
        mine = self.limits
        return RecordLimits(
            max(limits.first_offset, mine.first_offset),
            min(limits.last_offset, mine.last_offset),
            max(limits.first_timestamp, mine.first_timestamp),
            min(limits.last_timestamp, mine.last_timestamp),
            limits.only_with_timestamp,
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
    """Return a time in ms, rounded down; None for anything that is not one.

    A text is not one: an engine may read it in another time zone.
    """
    if isinstance(time, str):
        return None
    try:
        return milliseconds_of(time)
    except ValueError:
        return None
