"""The answer of a search for one target, and a target on its way to it."""

from dataclasses import dataclass, field
from typing import NamedTuple

from kip33.rules.search import Exactness, SearchResult


class Answer(NamedTuple):
    """The answer for one target.

    `offset` and `timestamp` are null unless there is a record; with exactness `batch` or `index`
    the offset is one before which there is no such record, and there is no timestamp.
    `bytes_read` is what this target added to what smaller ones had read. `note` says what a user
    should know. `passed_over`: records that cannot be read could change the answer, and the
    exactness is `unsure`.
    """

    target_ms: int
    offset: int | None
    timestamp: int | None
    result: SearchResult
    exactness: Exactness
    bytes_read: int
    note: str | None
    passed_over: bool = False


@dataclass
class Pending:
    """A target on its way through the segments."""

    target_ms: int  # as asked
    time_ms: int  # what is looked for
    choice: int | None = None  # the only segment that a broker looks into
    answer: Answer | None = None
    bytes_read: int = 0
    notes: list[str] = field(default_factory=list)
    passed_over: bool = False

    def pass_over(self, note: str) -> None:
        """Note that something could not be read that could change the answer."""
        self.notes.append(note)
        self.passed_over = True

    def settle(
        self,
        result: SearchResult = SearchResult.FOUND,
        offset: int | None = None,
        timestamp: int | None = None,
        exactness: Exactness = Exactness.RECORD,
    ) -> None:
        """Give the answer, but for what was read and noted."""
        self.answer = Answer(self.target_ms, offset, timestamp, result, exactness, 0, None)

    def settled(self, otherwise: SearchResult, exactness: Exactness) -> Answer:
        """Return the answer with what was read and noted; `otherwise` is the result without one."""
        answer = self.answer or Answer(self.target_ms, None, None, otherwise, exactness, 0, None)
        note = "; ".join(dict.fromkeys(self.notes)) or None
        answer = answer._replace(bytes_read=self.bytes_read, note=note)
        if self.passed_over:
            return answer._replace(exactness=Exactness.UNSURE, passed_over=True)
        return answer
