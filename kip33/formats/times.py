"""Convert Python times to Kafka's, milliseconds since 1970, and back to texts."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from operator import index
from typing import Any, Final, Literal, Protocol, SupportsIndex, TypeAlias


class ArrayTime(Protocol):
    """A `datetime64` of NumPy."""

    def astype(self, dtype: Any, /) -> Any:
        """Return it in another unit."""


class ArrowTime(Protocol):
    """A timestamp or date of pyarrow."""

    def as_py(self) -> Any:
        """Return it as a `datetime` or `date`."""


Time: TypeAlias = SupportsIndex | date | datetime | str | ArrayTime | ArrowTime
"""Milliseconds since 1970 (UTC), ISO 8601, a `datetime`, or a time of pandas, NumPy or pyarrow.

A text without a zone is UTC, and so are a date and a time of these libraries; a `datetime` without
one is refused, because Python takes it for local time. A text of digits is milliseconds. A number
that may be seconds is refused.
"""

UtcTime: TypeAlias = datetime | None
"""A time in UTC; None: it is not known."""
TimesName: TypeAlias = Literal["ms", "iso"]
"""How JSON and CSV have times: in ms since 1970, or ISO 8601."""


class Milliseconds(int):
    """A time that surely is in milliseconds: its text or `datetime` said so."""


TIME_FIELDS: Final = frozenset(
    (
        *("timestamp", "base_timestamp", "first_timestamp", "first_batch_timestamp"),
        *("smallest_timestamp", "largest_timestamp", "max_timestamp", "newest_timestamp"),
        *("start_timestamp", "broker_largest_timestamp", "blocking_timestamp"),
        *("blocked_by_timestamp", "last_read_timestamp", "resume_timestamp"),
        *("counterexample_timestamp", "first_message_timestamp", "period_start"),
        *("at_ms", "now_ms", "made_ms", "created_ms", "before_created_ms", "listed_ms"),
        *("from_ms", "until_ms", "target_ms", "counterexample_target_ms"),
        *("last_modified_ms", "time_index_modified_ms", "offset_index_modified_ms"),
        *("transaction_index_modified_ms", "partition_metadata_modified_ms"),
        *("expires_at_ms", "unread_expires_at_ms", "upload_before_ms", "block_ends_at_ms"),
        *("deletable_at_ms", "all_deletable_at_ms", "rolls_at_ms"),
    )
)
"""The names of columns and fields that are a time in ms since 1970; a negative one is no time."""

LEAST_MS: Final = 10**11  # of a time that is a number: 1973, as seconds the year 5138
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OF_A_TABLE: Final = "to_datetime64"  # what only a time of pandas has


def milliseconds_of(time: Time) -> Milliseconds:
    """Return a time in ms since 1970; a fraction of a millisecond is cut off.

    What was returned can be given again: a time in 1970 does not become a number of seconds.
    Raises ValueError for a `datetime` without a time zone, a text that is not a time, a number that
    may be seconds (`require_milliseconds`), and for anything else that is not a `Time`.

    >>> milliseconds_of(datetime(1970, 1, 2, tzinfo=UTC)), milliseconds_of(1_700_049_600_000)
    (86400000, 1700049600000)
    >>> milliseconds_of("2023-11-15T12:00Z")
    1700049600000
    """
    if isinstance(time, str):
        found = milliseconds_in(time.strip())
        if found is None:
            raise ValueError(
                f"{time!r} found, expected ISO 8601 (UTC without a zone) or milliseconds"
            )
        return Milliseconds(found)
    if isinstance(time, Milliseconds):
        return time
    if isinstance(time, date):
        return Milliseconds(_of_date(time))
    if isinstance(time, float) and 0 < time < LEAST_MS:
        require_milliseconds(int(time), str(time))
    try:
        if isinstance(time, bool):
            raise TypeError
        number = index(time)  # type: ignore[arg-type]
    except TypeError as error:
        found = _of_a_library(time)
        if found is None:
            raise ValueError(
                f"time {time!r} found, expected milliseconds since 1970, ISO 8601, a datetime with "
                "a time zone, or a time of pandas, NumPy or pyarrow"
            ) from error
        return Milliseconds(found)
    require_milliseconds(number, str(number))
    return Milliseconds(number)


def _of_date(time: date) -> int:
    """Return a `datetime`, a time of pandas, which is one, or a date, which begins in UTC."""
    if not isinstance(time, datetime):
        time = datetime(time.year, time.month, time.day, tzinfo=UTC)
    elif time != time:  # NaT of pandas
        raise ValueError("NaT found, expected a time")
    elif time.utcoffset() is None:
        if not hasattr(time, _OF_A_TABLE):
            raise ValueError(
                f"{time.isoformat()} found, expected a datetime with a time zone, for example "
                "datetime(2024, 5, 1, tzinfo=UTC)"
            )
        time = time.replace(tzinfo=UTC)
    return (time - _EPOCH) // timedelta(milliseconds=1)


def _of_a_library(time: Any) -> int | None:
    """Return a time of NumPy or pyarrow in ms; None for another object."""
    if hasattr(time, "as_py"):
        found = time.as_py()
        if isinstance(found, datetime):
            return _of_date(found if found.tzinfo else found.replace(tzinfo=UTC))
        return _of_date(found) if isinstance(found, date) else None
    if getattr(getattr(time, "dtype", None), "kind", "") == "M":
        found = time.astype("datetime64[ms]").astype("int64")
        return None if str(time) == "NaT" else int(found)
    return None


def require_milliseconds(number: int, shown: str) -> None:
    """Raise ValueError for a number that may be seconds, a year or a date: below 10^11, but not 0.

    `shown` is the number as the caller gave it.
    """
    if 0 < number < LEAST_MS:
        raise ValueError(
            f"{shown} found, expected ISO 8601 or milliseconds since 1973: in milliseconds it is "
            f"{iso_time(number)}, in seconds {iso_time(number * 1000)}; give the one you mean in "
            "ISO 8601"
        )


def milliseconds_in(text: str) -> int | None:
    """Return the time in a text: ISO 8601, UTC without a zone, or ms; None for another text.

    Raises ValueError for a number that may be seconds.

    >>> milliseconds_in("1970-01-02T00:00:01+00:00"), milliseconds_in("0"), milliseconds_in("soon")
    (86401000, 0, None)
    """
    if text.isascii() and text.isdigit():
        if len(text) > 20:
            return None
        number = int(text)
        require_milliseconds(number, repr(text))
        return number
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return milliseconds_of(time if time.tzinfo else time.replace(tzinfo=UTC))


def with_iso_times(value: Any, name: str = "") -> Any:
    """Return a value of the field `name`, or rows and lists of such, with times as ISO 8601.

    >>> with_iso_times({"max_timestamp": 1700000000250, "waited_ms": 5, "all": [{"at_ms": -1}]})
    {'max_timestamp': '2023-11-14T22:13:20.250Z', 'waited_ms': 5, 'all': [{'at_ms': None}]}
    """
    if isinstance(value, Mapping):
        return {one: with_iso_times(value[one], one) for one in value}
    if isinstance(value, list | tuple):
        return [with_iso_times(one, name) for one in value]
    if name not in TIME_FIELDS or not isinstance(value, int):
        return value
    return None if value < 0 else iso_time(value)


def time_name(field: str) -> str:
    """Return the name of the column with the times of one of TIME_FIELDS.

    >>> time_name("max_timestamp"), time_name("timestamp"), time_name("at_ms")
    ('max_time', 'time', 'at_time')
    """
    return f"{field.removesuffix('timestamp').removesuffix('_ms').rstrip('_')}_time".lstrip("_")


def utc_time(timestamp_ms: int | None) -> UtcTime:
    """Return a time in UTC; None for None, before 1970 and after the year 9999.

    >>> utc_time(1700000000250).isoformat(), utc_time(-1)
    ('2023-11-14T22:13:20.250000+00:00', None)
    """
    if timestamp_ms is None or timestamp_ms < 0:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None


def iso_time(timestamp_ms: int | None) -> str:
    """Return ISO 8601 in UTC, `-` for None, the number itself after the year 9999.

    >>> iso_time(1700000000250)
    '2023-11-14T22:13:20.250Z'
    """
    if timestamp_ms is None or timestamp_ms == -1:
        return "-"
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
