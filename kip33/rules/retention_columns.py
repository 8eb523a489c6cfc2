"""The input and output columns of the retention rule.

One value per segment; the segments of a partition are adjacent, oldest first. Modes and reasons are
stored as their indexes in `MODES` and `REASONS` of `rules.retention`; -1: there is no reason.
"""

from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int8]
NO_CODE: Final = -1


class Int64Column(NamedTuple):
    """Integers, and which of them are known."""

    values: Int64s
    known: Bools

    def where(self, which: Bools) -> Self:
        """Return the column with all other values unknown."""
        return self._replace(known=self.known & which)

    def take(self, rows: Int64s | slice) -> Self:
        """Return these rows of the column."""
        return self._replace(values=self.values[rows], known=self.known[rows])

    def to_list(self) -> list[int | None]:
        """Return the numbers, None for unknown ones."""
        if self.known.all():
            return list(self.values.tolist())
        pairs = zip(self.values.tolist(), self.known.tolist(), strict=True)
        return [value if known else None for value, known in pairs]


class SegmentColumns(NamedTuple):
    """What the rule needs of the segments."""

    starts: Int64s  # the index of each partition's first row
    base_offset: Int64Column  # unknown for a directory that cannot be listed
    size_bytes: Int64s  # 0: unknown
    largest_timestamp: Int64Column
    doubt: Codes  # `rules.retention.doubt_codes` of the status
    directory: Int64s  # a number for its partition directory's name, -1 if it has no such name

    @property
    def lengths(self) -> Int64s:
        """Return the number of segments of each partition."""
        return np.diff(self.starts, append=self.size_bytes.size)

    def so_far(self, flags: Bools) -> Int64s:
        """Return for each row how many rows of its partition are flagged up to this one."""
        counts = np.cumsum(flags, dtype=np.int64)
        before = counts[self.starts] - flags[self.starts]
        return counts - np.repeat(before, self.lengths)


class LimitColumns(NamedTuple):
    """The settings for each row's partition."""

    mode: Codes  # indexes in `rules.retention.MODES`
    retention_ms: Int64s
    retention_bytes: Int64s
    log_start_offset: Int64Column
    keeps_active: Bools  # `active_segment` is keep
    is_remote: Bools  # `boundary` is remote


class Decisions(NamedTuple):
    """Whether each segment is deletable, when, and why."""

    retention_ms_breached: Bools  # by its own timestamp, regardless of older segments
    deletable: Bools
    reason: Codes  # indexes in `rules.retention.REASONS`
    expires_at_ms: Int64Column  # by its own timestamp; unknown: never by time
    deletable_at_ms: Int64Column  # with all older ones; 0: by size or offset; unknown: not by time
    blocked_by_base_offset: Int64Column
    blocked_by_timestamp: Int64Column
    kept_only_by_blocker: Bools  # it would be deletable if the blocking segment were

    def part(self, rows: slice) -> "Decisions":
        """Return the decisions of some rows."""
        return Decisions(
            self.retention_ms_breached[rows],
            self.deletable[rows],
            self.reason[rows],
            self.expires_at_ms.take(rows),
            self.deletable_at_ms.take(rows),
            self.blocked_by_base_offset.take(rows),
            self.blocked_by_timestamp.take(rows),
            self.kept_only_by_blocker[rows],
        )
