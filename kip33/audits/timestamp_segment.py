"""The timestamps of one log, from its batch headers; nothing is decompressed."""

from typing import Any, NamedTuple

from kip33.audits.timestamp_plan import TimestampQuestion
from kip33.errors import FileReadError, Kip33Error
from kip33.formats.scan import BatchScan
from kip33.rules.timestamp_profile import ProfileQuestion, TimestampProfile
from kip33.stores.files import one_line, scanned
from kip33.stores.locations import Location


class ProfiledSegment(NamedTuple):
    """The profile of a log up to its end, or up to the damage that `error` names."""

    number: int  # of its row in the plan
    profile: TimestampProfile
    largest_before: int  # the largest timestamp before it that the profile was made with
    bytes_read: int
    error: str | None = None
    is_unreadable: bool = False  # the error is no damage: the log could not be read

    def is_true_for(self, largest_before: int) -> bool:
        """Return whether the profile is the same with another largest timestamp before it.

        It is if both are at most the first timestamp, so that no batch is behind them.
        """
        first = self.profile.first_timestamp
        changed = largest_before != self.largest_before and first >= 0
        return not changed or max(largest_before, self.largest_before) <= first


def profile_log(row: dict[str, Any], question: TimestampQuestion) -> ProfiledSegment:
    """Return the profile of the log of a row of AUDITED. Errors are a text, never an exception."""
    number, before, profile = row["number"], row["largest_before"], TimestampProfile()
    if row["error"]:
        return ProfiledSegment(number, profile, before, 0, row["error"], is_unreadable=True)
    asked = ProfileQuestion(
        question.limits.of(row["topic"]),
        question.now_ms,
        question.clock_ms(row["last_modified_ms"]),
        row["last_modified_ms"],
        before,
    )
    bytes_read = 0
    try:
        with scanned(Location.of(row["log_uri"])) as (read_into, size_bytes, view_at):
            scan = BatchScan(read_into, size_bytes, check_crc=False, view_at=view_at)
            try:
                for batches in scan:
                    profile.append(batches, asked)
            finally:
                bytes_read = scan.bytes_read
            return ProfiledSegment(number, profile, before, bytes_read, scan.damage)
    except (FileReadError, Kip33Error) as error:
        return ProfiledSegment(
            number, profile, before, bytes_read, one_line(error), is_unreadable=True
        )
