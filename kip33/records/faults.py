"""What to do about bytes that cannot be read."""

from collections.abc import Iterator
from enum import StrEnum

import pyarrow as pa

from kip33.errors import Kip33Error, NoReadableLogError, unreadable_logs_text
from kip33.records.columns import corrupt_row
from kip33.records.read_segment import ReadSegment


class OnError(StrEnum):
    """The choices of a caller."""

    ROW = "row"  # return a row that says why
    FAIL = "fail"  # raise the error; also for a record that may be of an aborted transaction
    SKIP = "skip"  # only count them


class LogsRead:
    """Which logs could be read: for a command, which fails if there are logs and none could."""

    def __init__(self) -> None:
        """Start with no logs."""
        self.is_any_read = False
        self.unreadable: dict[str, str] = {}  # log URI to a line with the reason

    def unreadable_text(self) -> str:
        """Return how many logs could not be read, and the line of the first."""
        count, first = len(self.unreadable), self.unreadable[min(self.unreadable)]
        return unreadable_logs_text(count, first, of=None if self.is_any_read else count)

    def require_one(self) -> None:
        """Raise NoReadableLogError if there were logs and none could be read."""
        if self.unreadable and not self.is_any_read:
            raise NoReadableLogError(
                f"{self.unreadable_text()}; make the logs readable, and run the command again"
            )


class Faults:
    """Decides about what cannot be read; `skipped` gets a line for each that is skipped."""

    def __init__(
        self,
        on_error: OnError,
        schema: pa.Schema,
        skipped: list[str],
        logs: LogsRead | None = None,
    ) -> None:
        """Take the caller's choice, the columns of a row, and what gets lines and logs."""
        self.on_error, self._schema, self._skipped = on_error, schema, skipped
        self.logs = logs or LogsRead()

    def seen(self, error: Kip33Error) -> None:
        """Raise an error, or count it as skipped, unless it becomes a row."""
        if self.on_error == OnError.FAIL:
            raise error
        if self.on_error == OnError.SKIP:
            self._skipped.append(str(error))

    def found(self, segment: ReadSegment, error: Kip33Error) -> Iterator[pa.RecordBatch]:
        """Yield a row for an error, or raise it, or skip it."""
        self.seen(error)
        if self.on_error == OnError.ROW:
            yield corrupt_row(self._schema, segment, str(error))
