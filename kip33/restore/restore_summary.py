"""The result of a restore, or of its plan, as `kip33 restore` prints it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kip33.archive.sources import OF_A_BROKER
from kip33.restore.finished_partition import FinishedPartition
from kip33.restore.restore_plan import PartitionPlan, RestorePlan
from kip33.restore.segment_facts import SegmentFacts
from kip33.rules.segment_summary import SegmentStatus


class RestoreOutcome(NamedTuple):
    """What became of a partition; bytes are those of logs."""

    finished: FinishedPartition
    bytes_copied: int
    bytes_linked: int
    bytes_there: int  # staged by an earlier run
    unreadable: tuple[str, ...]  # a line for each log that could not be read

    @classmethod
    def of(cls, facts: Sequence[SegmentFacts], finished: FinishedPartition) -> "RestoreOutcome":
        """Return the outcome of a partition whose segments have these facts."""
        there = sum(one.kept_bytes for one in facts if one.was_there)
        linked = sum(one.kept_bytes for one in facts if one.is_linked and not one.was_there)
        total = sum(one.kept_bytes for one in facts)
        unreadable = tuple(
            one.problem
            for one in facts
            if one.problem and one.status == SegmentStatus.UNREADABLE and not one.has_changed
        )
        return cls(finished, total - there - linked, linked, there, unreadable)


def summary_of(
    plan: RestorePlan,
    outcomes: Mapping[str, RestoreOutcome],
    *,
    others: Sequence[str],
    is_applied: bool,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the summary; `outcomes` are by the names of partitions.

    `others` are partitions of the log directory that are not restored.
    """
    rows = [_row(one, outcomes.get(one.name)) for one in plan.partitions]
    restored = [row for row in rows if row["problem"] is None]
    unreadable = [*plan.problems, *_unreadable(plan, outcomes)]
    done = [one for one in outcomes.values() if one.finished.problem is None]
    return {
        "source": plan.request.source.uri,
        "log_dir": plan.request.log_dir.uri,
        "applied": is_applied,
        "partitions_restored": len(restored),
        "partitions_refused": len(rows) - len(restored) + len(plan.problems),
        "segments": sum(row["segments"] for row in restored),
        "log_bytes": sum(row["log_bytes"] for row in restored),
        "logs": _logs(plan),
        "unreadable_logs": len(unreadable),
        "unreadable_example": min(unreadable, default=None),
        "bytes_copied": sum(one.bytes_copied for one in done),
        "bytes_linked": sum(one.bytes_linked for one in done),
        "bytes_there": sum(one.bytes_there for one in done),
        "clean_shutdown": plan.log_dir.is_cleanly_shut or not others,
        "notes": [*notes, *_notes(plan, rows, others)],
        "problems": list(plan.problems),
        "partitions": rows,
    }


def planned_summary(plan: RestorePlan) -> dict[str, Any]:
    """Return the summary of a plan that is not carried out."""
    others = plan.log_dir.others({one.name for one in plan.wanted})
    summary = summary_of(plan, {}, others=others, is_applied=False)
    return summary | {"free_bytes": plan.log_dir.free_bytes}


def _logs(plan: RestorePlan) -> int:
    """Return how many logs are read, or could not be; an unlisted directory counts as one.

    A partition whose range could not be found because of a log counts with this log alone.
    """
    partitions = [one for one in plan.partitions if one.problem is None or one.is_unreadable]
    counts = (1 if one.is_unreadable else len(one.segments) for one in partitions)
    return len(plan.problems) + sum(counts)


def _unreadable(plan: RestorePlan, outcomes: Mapping[str, RestoreOutcome]) -> Iterator[str]:
    for one in plan.partitions:
        if one.is_unreadable and one.problem:
            yield one.problem
        elif outcome := outcomes.get(one.name):
            yield from outcome.unreadable


def _row(plan: PartitionPlan, outcome: RestoreOutcome | None) -> dict[str, Any]:
    finished = outcome.finished if outcome else None
    problem = plan.problem or (finished.problem if finished else None)
    known = finished if finished and problem is None else None
    return {
        "topic": plan.topic,
        "partition": plan.partition,
        "replica": plan.replica,
        "replicas": plan.replicas,
        "segments": len(plan.segments),
        "log_bytes": plan.size_bytes,
        "start_offset": known.start_offset if known else None,
        "end_offset": known.end_offset if known else None,
        "largest_leader_epoch": known.largest_epoch if known else None,
        "topic_id": plan.topic_id,
        "problem": problem,
        "notes": list(finished.notes) if finished else [],
    }


def _notes(
    plan: RestorePlan, rows: Sequence[Mapping[str, Any]], others: Sequence[str]
) -> Iterator[str]:
    if others and not plan.log_dir.is_cleanly_shut:
        yield _will_recover(plan, others)
    if not plan.log_dir.is_formatted:
        yield (
            f"{plan.request.log_dir.uri}: there is no {OF_A_BROKER}, and a broker does not start "
            "without it: run kafka-storage.sh format --ignore-formatted"
        )
    if plan.request.leader_epoch is None:
        yield from _new_cluster(plan, rows)


def _new_cluster(plan: RestorePlan, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a note if a topic has another id than in the source, and leader epochs above 0."""
    for one, row in zip(plan.partitions, rows, strict=True):
        is_new = one.topic_id is not None and one.topic_id != one.own_topic_id
        if is_new and (row["largest_leader_epoch"] or 0) > 0:
            yield (
                f"{one.name}: batches have leader epochs up to {row['largest_leader_epoch']}, and "
                "the topic id is not from the source; in a new cluster, whose leader epochs begin "
                "at 0, replicas do not join: restore with --leader-epoch 0"
            )
            return


def _will_recover(plan: RestorePlan, others: Sequence[str]) -> str:
    more = f" and {len(others) - 1:,} others" if len(others) > 1 else ""
    return (
        f"{plan.request.log_dir.uri}: {others[0]}{more} were not shut down cleanly, so a broker "
        "that starts recovers all partitions of this log directory, the restored ones, too"
    )
