"""The verdict on one segment's index files, and the kinds of files it is about."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from kip33.formats.producer_snapshot import PRODUCER_ENTRY_BYTES
from kip33.formats.time_index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kip33.formats.transaction_index import TRANSACTION_ENTRY_BYTES
from kip33.rules.index_verdict import GOOD, NOT_COMPARED, IndexVerdict
from kip33.rules.segment_summary import SegmentStatus


class IndexKind(NamedTuple):
    """A kind of index file that is verified: its suffix, and the fields of its verdict."""

    suffix: str
    entry_bytes: int
    verdict_field: str  # of SegmentVerdict, and of a printed row
    gap_field: str | None  # None: lookups do not depend on how many entries it has
    count_field: str  # of a summary


TIME_INDEX_KIND: Final = IndexKind(
    ".timeindex", TIME_ENTRY_BYTES, "verdict", "largest_gap_bytes", "by_verdict"
)
OFFSET_INDEX: Final = IndexKind(
    ".index",
    OFFSET_ENTRY_BYTES,
    "offset_index_verdict",
    "offset_index_largest_gap_bytes",
    "by_offset_index_verdict",
)
TRANSACTION_INDEX: Final = IndexKind(
    ".txnindex",
    TRANSACTION_ENTRY_BYTES,
    "transaction_index_verdict",
    None,
    "by_transaction_index_verdict",
)
INDEX_KINDS: Final = (TIME_INDEX_KIND, OFFSET_INDEX, TRANSACTION_INDEX)
PRODUCER_SNAPSHOT: Final = IndexKind(  # verified if asked for
    ".snapshot",
    PRODUCER_ENTRY_BYTES,
    "producer_snapshot_verdict",
    None,
    "by_producer_snapshot_verdict",
)
ALL_KINDS: Final = (*INDEX_KINDS, PRODUCER_SNAPSHOT)


@dataclass(frozen=True)
class SegmentVerdict:
    """The verdict on one segment's index files; `as_row` is what `kip33 verify` prints.

    A verdict on a `.index` or a `.txnindex` is None if the file is missing and not expected
    (`indexing.transaction_verification` adds the latter). The largest gaps are those of
    `rules.index_truth`, None if a file was not verified or is not correct.
    """

    log_uri: str
    index_uri: str
    verdict: IndexVerdict
    dialect: str | None
    entries: int | None
    problems: tuple[str, ...]
    offset_index_verdict: IndexVerdict | None
    log_status: SegmentStatus
    log_error: str | None
    largest_gap_bytes: int | None = None
    offset_index_largest_gap_bytes: int | None = None
    transaction_index_verdict: IndexVerdict | None = None
    producer_snapshot_verdict: IndexVerdict | None = None

    @classmethod
    def unreadable(cls, log_uri: str, index_uri: str, problem: str) -> Self:
        """Return the verdict on a directory or log that could not be read; the problem says why."""
        index, log = IndexVerdict.UNREADABLE, SegmentStatus.UNREADABLE
        return cls(log_uri, index_uri, index, None, None, (problem,), None, log, None)

    def as_row(self) -> dict[str, Any]:
        """Return the fields in order, problems as a list, statuses and verdicts as plain text.

        Spark 3.5 turns rows into its own by pickling them, and knows no enumeration.
        """
        fields = asdict(self) | {"problems": list(self.problems)}
        return {
            name: str(value) if isinstance(value, StrEnum) else value
            for name, value in fields.items()
        }

    def on(self, kind: IndexKind) -> IndexVerdict | None:
        """Return the verdict on one kind of index file."""
        verdict: IndexVerdict | None = getattr(self, kind.verdict_field)
        return verdict

    def largest_gap(self, kind: IndexKind) -> int | None:
        """Return the largest gap in one kind of index file, in bytes of the log."""
        size: int | None = getattr(self, kind.gap_field) if kind.gap_field else None
        return size

    @property
    def is_good(self) -> bool:
        """Return whether no index file has a problem."""
        return all(self.on(kind) in (*GOOD, None) for kind in ALL_KINDS)

    def with_missing_offset_index(self) -> "SegmentVerdict":
        """Return the verdict of a segment whose `.index` is expected: `missing` if it has none."""
        if self.offset_index_verdict is not None or self.verdict in NOT_COMPARED:
            return self
        problems = (*self.problems, ".index: missing, but other segments here have one")
        return replace(self, offset_index_verdict=IndexVerdict.MISSING, problems=problems)


def with_missing_offset_indexes(verdicts: Iterable[SegmentVerdict]) -> list[SegmentVerdict]:
    """Return the verdicts on a tree: if one segment has a `.index`, every other one needs one."""
    verdicts = list(verdicts)
    if all(verdict.offset_index_verdict is None for verdict in verdicts):
        return verdicts
    return [verdict.with_missing_offset_index() for verdict in verdicts]
