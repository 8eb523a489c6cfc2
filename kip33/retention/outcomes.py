"""The outcomes of an apply: for a segment, for a partition, and what the journal calls them."""

from enum import StrEnum


class RecordKind(StrEnum):
    """What an object of the journal is; each member is its own text."""

    INTENT = "intent"
    RESULT = "result"


class StepOutcome(StrEnum):
    """How a run of a plan left a segment; each member is its own text, also in names of objects."""

    DELETED = "deleted"
    MOVED = "moved"
    GONE_ALREADY = "gone_already"
    INCOMPLETE = "incomplete"
    STOPPED = "stopped"
    DONE_BEFORE = "done_before"  # an earlier run recorded the result: no new object


class PartitionOutcome(StrEnum):
    """How an apply left a partition; each member is its own text."""

    DONE = "done"  # every planned segment is deleted
    STOPPED = "stopped"  # at a difference from the plan, or a fault of the store
