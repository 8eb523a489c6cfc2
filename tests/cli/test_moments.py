"""Moments, durations and sizes as options: every form, and one line for all others."""

from datetime import UTC, datetime

import click
import pytest
from click.testing import CliRunner

from kip33.archive.moments import moment_ms
from kip33.cli.times import DURATION, MOMENT, SIZE
from kip33.formats.times import milliseconds_of

NOW_MS = 1_714_564_800_000  # 2024-05-01T12:00:00Z

MOMENTS = {
    "milliseconds": ("1714564800000", NOW_MS),
    "the least of milliseconds": ("100000000000", 10**11),
    "the beginning": ("0", 0),
    "the largest": (str(2**63 - 1), 2**63 - 1),
    "UTC": ("2024-05-01T12:00:00Z", NOW_MS),
    "UTC without saying so": ("2024-05-01T12:00:00", NOW_MS),
    "a blank instead of the T": ("2024-05-01 12:00:00", NOW_MS),
    "blanks around": (" 2024-05-01T12:00Z ", NOW_MS),
    "without seconds": ("2024-05-01T12:00", NOW_MS),
    "a date is its first moment": ("2024-05-01", NOW_MS - 43_200_000),
    "another zone": ("2024-05-01T14:00:00+02:00", NOW_MS),
    "another zone, before UTC's date": ("2024-04-30T23:30:00-12:30", NOW_MS),
    "milliseconds of a second": ("2024-05-01T12:00:00.250Z", NOW_MS + 250),
    "less than a millisecond": ("2024-05-01T12:00:00.000999Z", NOW_MS),
    "the basic form": ("20240501T120000Z", NOW_MS),
    "the last year": ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    "now": ("now", NOW_MS),
    "a week before": ("now-7d", NOW_MS - 604_800_000),
    "36 hours later": ("now+36h", NOW_MS + 129_600_000),
    "milliseconds before": ("now-5ms", NOW_MS - 5),
    "three hours before": ("-3h", NOW_MS - 10_800_000),
    "a time of today": ("09:05", NOW_MS - 10_500_000),
    "a time of today, as people write it": ("9:05", NOW_MS - 10_500_000),
    "the beginning of today": ("0:00", NOW_MS - 43_200_000),
    "the last second of today": ("23:59:59", NOW_MS + 43_199_000),
}


def test_moment(subtests: pytest.Subtests) -> None:
    for name, (text, ms) in MOMENTS.items():
        with subtests.test(name):
            assert moment_ms(text, NOW_MS) == ms


NO_MOMENTS = {
    "nothing": "",
    "a word": "yesterday",
    "a day that is none": "2024-02-30",
    "an hour that is none": "2024-05-01T25:00Z",
    "a zone by name": "2024-05-01T12:00 Europe/Berlin",
    "another order": "01.05.2024",
    "before 1970": "1969-12-31T23:59:59Z",
    "the year 1, east of UTC": "0001-01-01T00:00+14:00",
    "a negative number": "-1",
    "seconds": "1700000000",
    "a year": "2024",
    "a date without dashes": "20240501",
    "below the least of milliseconds": "99999999999",
    "beyond int64": str(2**63),
    "digits without end": "9" * 5000,
    "a fraction": "1714564800.5",
    "another script's digits": "٣",
    "a duration: before or after what?": "7d",
    "now and nothing": "now-",
    "now and before 1970": "now-99999d",
    "now with a capital": "NOW",
    "an hour of no day": "24:00",
    "a minute of no hour": "9:60",
    "an hour alone": "9:",
    "a time of day with a zone": "9:05Z",
}


def test_no_moment(subtests: pytest.Subtests) -> None:
    for name, text in NO_MOMENTS.items():
        with (
            subtests.test(name),
            pytest.raises(ValueError, match=r"found, expected .*milliseconds"),
        ):
            moment_ms(text, NOW_MS)


def test_seconds_are_shown_in_both_readings() -> None:
    with pytest.raises(ValueError, match=r"is 1970-01-20T.*, in seconds 2023-11-14T22"):
        moment_ms("1700000000", NOW_MS)


def test_a_time_in_1970_is_not_taken_for_seconds_again() -> None:
    for time in ("1970-01-20T16:13:20Z", datetime(1970, 1, 20, 16, 13, 20, tzinfo=UTC)):
        assert milliseconds_of(milliseconds_of(time)) == 1_700_000_000
    assert milliseconds_of(moment_ms("1970-01-20T16:13:20Z", NOW_MS)) == 1_700_000_000


@click.command()
@click.option("--now", type=MOMENT, default="now", show_default=True)
@click.option("--retention", type=DURATION, default=5)
@click.option("--size", type=SIZE)
def echo(now: int, retention: int, size: int | None) -> None:
    click.echo(f"{now} {retention} {size}")


def test_as_options() -> None:
    result = CliRunner().invoke(
        echo, ["--now", "1970-01-02", "--retention", "7d", "--size", "1KiB"]
    )
    assert result.output == "86400000 604800000 1024\n"


def test_a_wrong_option_is_one_line() -> None:
    """Wrong durations and sizes: tests/rules/test_quantities.py."""
    result = CliRunner().invoke(echo, ["--now", "soon"])
    assert result.exit_code == 2
    assert result.output.splitlines()[-1] == (
        "Error: Invalid value for '--now': 'soon' found, expected ISO 8601 (UTC without a zone), "
        "9:05 (today in UTC), milliseconds, now, now-7d, -3h or now+36h, not before 1970; for "
        "example 2024-05-01T12:00:00Z"
    )
