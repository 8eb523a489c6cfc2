"""The facts of a report. The page shows them, the JSON file beside it contains them.

Each class is an object of the JSON file, each field a key. Times are ms since 1970, sizes bytes.
`kip33/report/README.md` says how they are found.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

REPORT_VERSION: Final = 1


class FindingLevel(StrEnum):
    """How much a finding matters; each member is its own text."""

    PROBLEM = "problem"  # data is missing or damaged
    WARNING = "warning"  # something prevents retention, or an answer is less certain
    NOTE = "note"  # nothing is wrong


class BarState(StrEnum):
    """The state of the segments of a bar; where bars are joined, the first of these wins."""

    BLOCKER = "blocker"  # it is kept, and keeps newer segments that have expired
    BLOCKED = "blocked"
    EXPIRED = "expired"  # it can be deleted
    KEPT = "kept"


@dataclass(frozen=True)
class Evidence:
    """The snapshot that the report is about."""

    snapshot: str
    created_ms: int
    rows: int
    commit_uri: str
    commit_sha256: str  # of the commit file, which has size and CRC of each part


@dataclass(frozen=True)
class Totals:
    """The sums over the snapshot; those of retention are 0 without a policy."""

    topics: int
    partitions: int
    segments: int
    log_bytes: int
    records: int | None  # None: not all are counted
    time_index_entries: int
    by_status: dict[str, int]
    deletable_segments: int
    deletable_bytes: int
    blocked_partitions: int
    blocked_segments: int
    blocked_bytes: int
    untrusted_segments: int
    by_hole: dict[str, int]
    missing_offsets: int
    disordered_batches: int
    orphaned_index_files: int
    orphaned_bytes: int


@dataclass(frozen=True)
class ReportFinding:
    """Something to know, and the command that looks closer."""

    level: FindingLevel
    count: int
    text: str
    examples: tuple[str, ...]  # new ones first
    command: str | None  # for a POSIX shell
    new: int | None = None  # of `count`: since the snapshot before; None: not known


@dataclass(frozen=True)
class ChangedSegment:
    """A segment that is not new and differs from the snapshot before."""

    log_uri: str
    changes: tuple[str, ...]
    bytes_before: int | None
    bytes_after: int | None


@dataclass(frozen=True)
class Changes:
    """What changed since the snapshot before."""

    before: str
    before_created_ms: int
    segments: dict[str, int]  # by change
    bytes: dict[str, int]  # by change: more, or less if negative
    net_bytes: int
    listed: tuple[ChangedSegment, ...]
    unlisted: int


@dataclass(frozen=True)
class Bar:
    """Neighbouring segments of one state, where they are in time."""

    from_ms: int
    until_ms: int
    state: BarState
    segments: int
    bytes: int
    untrusted: int  # segments that are damaged, unverified, or judged by their file's time
    largest_timestamp: int | None


@dataclass(frozen=True)
class HoleMark:
    """A hole, and where it is in time."""

    from_ms: int
    until_ms: int
    hole: str
    first_offset: int
    last_offset: int


@dataclass(frozen=True)
class PartitionFacts:
    """One replica of a partition; without `bars` it is the sum of those that are not shown."""

    name: str
    policy: str
    segments: int
    bytes: int
    deletable_segments: int
    deletable_bytes: int
    blocked_segments: int
    blocked_bytes: int
    untrusted_segments: int
    missing_offsets: int
    holes: int
    remarks: tuple[str, ...]
    bars: tuple[Bar, ...] = ()
    marks: tuple[HoleMark, ...] = ()


@dataclass(frozen=True)
class Timelines:
    """The partitions, worst first, on one axis of time."""

    from_ms: int
    until_ms: int
    partitions: tuple[PartitionFacts, ...]
    others: int
    rest: PartitionFacts | None  # the sums of the others

    def reach_ms(self, bar: Bar) -> int | None:
        """Return where the line from a bar to its largest timestamp ends; None: no line.

        A bar ends where the next segment begins, but its timestamps may go on.
        """
        if bar.largest_timestamp is None or bar.largest_timestamp <= bar.until_ms:
            return None
        reach_ms = min(bar.largest_timestamp, self.until_ms)
        return reach_ms if reach_ms > bar.until_ms else None


@dataclass(frozen=True)
class DisorderFacts:
    """Batches whose largest timestamp is below that of an earlier batch, by partition."""

    name: str
    batches: int
    out_of_order_batches: int
    segments: int  # that have such batches


@dataclass(frozen=True)
class FreedFacts:
    """What becomes deletable up to a time, and after the one before."""

    at_ms: int
    segments: int
    bytes: int


@dataclass(frozen=True)
class RemoteTierFacts:
    """What brokers delete in the remote tier, judged over both tiers."""

    catalog: str
    snapshot: str
    segments: int
    bytes: int
    deletable_segments: int
    deletable_bytes: int
    only_local_bytes: int  # in segments that only the brokers have: they count for retention.bytes
    timelines: Timelines
    forecast: tuple[FreedFacts, ...]
    command: str | None  # for a POSIX shell


@dataclass(frozen=True)
class AgeFacts:
    """Segments by the age of their largest timestamp."""

    age: str
    segments: int
    bytes: int


@dataclass(frozen=True)
class TopicFacts:
    """The sums of a topic, or of all that are not shown."""

    topic: str
    partitions: int
    segments: int
    log_bytes: int
    records: int | None
    first_timestamp: int | None
    largest_timestamp: int | None
    not_ok: dict[str, int]


@dataclass(frozen=True)
class Report:
    """All facts of a report."""

    kip33_version: str
    made_ms: int
    now_ms: int  # the time at which retention is judged
    catalog: str
    source: str
    is_judged: bool  # whether there is a policy
    evidence: Evidence
    totals: Totals
    findings: tuple[ReportFinding, ...]
    changes: Changes | None
    timelines: Timelines
    forecast: tuple[FreedFacts, ...]
    ages: tuple[AgeFacts, ...]
    topics: tuple[TopicFacts, ...]
    other_topics: int
    other_topics_sum: TopicFacts | None
    disorder: tuple[DisorderFacts, ...]
    other_disorder: int
    other_disorder_sum: DisorderFacts | None
    remote: RemoteTierFacts | None  # None: not given, or retention is not judged
    warnings: tuple[str, ...]

    def as_record(self) -> dict[str, Any]:
        """Return the object of the JSON file."""
        return {"kind": "report", "version": REPORT_VERSION, **asdict(self)}
