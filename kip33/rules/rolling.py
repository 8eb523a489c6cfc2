"""When a broker starts a new segment: `LogSegment.shouldRoll` (Kafka 4.1), for one batch.

Before a batch is appended, the active segment is rolled if one of these is true:

1. size: its bytes and the batch's are more than `segment.bytes`.
2. time: it has a batch, and more than `segment.ms` minus a random jitter has passed.
3. index: one of its indexes is full.
4. offset range: the batch's last offset is below its base offset, or 2^31 or more above it.

Time is the batch's max timestamp minus the timestamp from which the segment's time counts: no
traffic, no roll. The texts differ about that timestamp (`RollReading`). In a segment that begins
without a timestamp, Kafka takes the time since it created the segment object, which no file has.

`rules.roll_verdicts` judges the segments of a catalog, `rules.roll_replay` replays batches.
"""

from enum import StrEnum
from typing import Final, Literal, NamedTuple, Self, TypeAlias

from kip33.errors import PolicyError
from kip33.formats.time_index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kip33.rules.index_entries import DEFAULT_INDEX_INTERVAL_BYTES, DEFAULT_SEGMENT_INDEX_BYTES
from kip33.rules.policies import Policies, Policy
from kip33.rules.retention import RetentionMode

DEFAULT_SEGMENT_MS: Final = 604_800_000  # Kafka's defaults: 7 days, 1 GiB
DEFAULT_SEGMENT_BYTES: Final = 1_073_741_824
INDEX_SIZE_KEY: Final = "segment.index.bytes"


RollReadingName: TypeAlias = Literal["kafka", "kip33", "kip33-largest"]
"""The texts of RollReading."""


class RollReading(StrEnum):
    """The timestamp from which a segment's time counts; each member is its own text."""

    KAFKA = "kafka"  # the max timestamp of its first batch, as every release does since 0.10.1
    KIP33 = "kip33"  # the timestamp of its first message: the KIP's section on rolling
    LARGEST = "kip33-largest"  # the largest timestamp so far: the KIP's section on interfaces


class RollReason(StrEnum):
    """Why a segment ended; the first four are Kafka's conditions, in its order."""

    SIZE = "size"
    TIME = "time"
    INDEX_FULL = "index_full"
    OFFSET_RANGE = "offset_range"
    JITTER = "jitter"  # by time, if the segment's random jitter was large enough; nothing else
    SEVERAL_BATCHES = "several_batches"  # only if several batches were appended at once
    UNEXPLAINED = "unexplained"  # none of them, under these settings
    UNKNOWN = "unknown"  # a figure that determines it is missing
    ACTIVE = "active"  # it has not ended


class RollSettings(NamedTuple):
    """A topic's settings that determine when its segments are rolled; Kafka's defaults."""

    segment_ms: int = DEFAULT_SEGMENT_MS  # for a compacted topic at most max.compaction.lag.ms
    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    segment_jitter_ms: int = 0
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES
    segment_index_bytes: int = DEFAULT_SEGMENT_INDEX_BYTES
    is_compacted: bool = False  # the log cleaner rewrites segments

    @classmethod
    def of_policy(cls, policy: Policy) -> Self:
        """Return the settings of a topic's policy, Kafka's default for each that is not set."""
        found = {
            name: value
            for name in cls._fields
            if name != "is_compacted" and (value := getattr(policy, name)) is not None
        }
        is_compacted = RetentionMode.COMPACT in (policy.cleanup_policy or ())
        settings = cls(**found, is_compacted=is_compacted)
        lag_ms = policy.max_compaction_lag_ms
        if is_compacted and lag_ms is not None:  # `LogConfig.maxSegmentMs`
            settings = settings._replace(segment_ms=min(settings.segment_ms, lag_ms))
        return settings

    @property
    def most_jitter_ms(self) -> int:
        """Return the largest random jitter that Kafka draws (`LogConfig.randomSegmentJitter`)."""
        return max(0, min(self.segment_jitter_ms, self.segment_ms) - 1)

    @property
    def offset_slots(self) -> int:
        """Return the number of entries with which a `.index` is full."""
        return self.segment_index_bytes // OFFSET_ENTRY_BYTES

    @property
    def time_slots(self) -> int:
        """Return the number of entries with which a `.timeindex` is full; one slot is reserved."""
        return self.segment_index_bytes // TIME_ENTRY_BYTES - 1


class GivenSettings(NamedTuple):
    """Settings that a user gives for all topics, over those of policies; None: not given."""

    segment_ms: int | None = None
    segment_bytes: int | None = None
    segment_jitter_ms: int | None = None
    index_interval_bytes: int | None = None
    segment_index_bytes: int | None = None


class TopicRollSettings(NamedTuple):
    """The settings of every topic: what is given, else the topic's policy, else the default."""

    policies: Policies = Policies()
    given: GivenSettings = GivenSettings()

    def require_valid(self) -> None:
        """Raise PolicyError for a policy's index size in which no entry has room."""
        for match, section in (("defaults", self.policies.defaults), *self.policies.topics):
            size = dict(section).get(INDEX_SIZE_KEY, TIME_ENTRY_BYTES)
            if int(size) < TIME_ENTRY_BYTES:
                raise PolicyError(
                    f"{match}: {INDEX_SIZE_KEY}={size} found, expected at least one entry of "
                    f"{TIME_ENTRY_BYTES} bytes; a broker cannot open such an index"
                )

    def of(self, topic: str | None) -> RollSettings:
        """Return the settings of a topic."""
        policy = self.policies.of(topic) if topic else Policy("")
        given = {name: value for name, value in self.given._asdict().items() if value is not None}
        return RollSettings.of_policy(policy)._replace(**given)
