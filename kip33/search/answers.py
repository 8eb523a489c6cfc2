"""The answer of a search for one target, a target that is not answered yet, a hit in a segment."""

from dataclasses import dataclass, field
from typing import NamedTuple

from kip33.formats.batch import NO_TIMESTAMP
from kip33.rules.search import Exactness, SearchResult


class Answer(NamedTuple):
    """The answer for one target.

    `offset` and `timestamp` are null unless a record was found. With exactness `batch` or `index`
    no such record is before the offset, and there is no timestamp. `bytes_read` counts the bytes
    read for this target in addition to those for smaller targets. `note` is for the user.
    `passed_over`: unreadable records could change the answer, and the exactness is `unsure`.
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
    """A target that is searched in segment after segment."""

    target_ms: int  # as given
    time_ms: int  # the time to search for
    choice: int | None = None  # the only segment that a broker searches
    answer: Answer | None = None
    bytes_read: int = 0
    notes: list[str] = field(default_factory=list)
    passed_over: bool = False

    def pass_over(self, note: str) -> None:
        """Record that something unreadable could change the answer."""
        self.notes.append(note)
        self.passed_over = True

    def settle(
        self,
        result: SearchResult = SearchResult.FOUND,
        offset: int | None = None,
        timestamp: int | None = None,
        exactness: Exactness = Exactness.RECORD,
    ) -> None:
        """Set the answer, without bytes read and notes."""
        self.answer = Answer(self.target_ms, offset, timestamp, result, exactness, 0, None)

    def settled(self, otherwise: SearchResult, exactness: Exactness) -> Answer:
        """Return the answer with bytes read and notes; `otherwise`: the result without a record."""
        answer = self.answer or Answer(self.target_ms, None, None, otherwise, exactness, 0, None)
        note = "; ".join(dict.fromkeys(self.notes)) or None
        answer = answer._replace(bytes_read=self.bytes_read, note=note)
        if self.passed_over:
            return answer._replace(exactness=Exactness.UNSURE, passed_over=True)
        return answer


class Hit(NamedTuple):
    """A record, or, without a timestamp, the batch that should have it but cannot be decoded."""

    offset: int
    timestamp: int | None
    exactness: Exactness = Exactness.RECORD
    note: str | None = None
    is_first_of_batch: bool = False
    position: int = 0  # of the batch
    claimed: int = NO_TIMESTAMP  # the record's timestamp, or the one in the batch's header
