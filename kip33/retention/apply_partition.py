"""Delete one partition's planned segments, oldest first: the rest never has a gap.

The first difference from the plan ends the partition: nothing after it is deleted.
"""

from typing import NamedTuple

from kip33.archive.segment_paths import PartitionFiles, list_partition
from kip33.errors import PlanError
from kip33.formats.names import segment_file_name
from kip33.retention.apply_segment import CONTINUE, Run, SegmentStep
from kip33.retention.journal import Journal
from kip33.retention.outcomes import PartitionOutcome, StepOutcome
from kip33.retention.plan import PlannedPartition
from kip33.retention.planned_files import linked_directory
from kip33.stores.files import one_line


class PartitionResult(NamedTuple):
    """The result for one partition; for a dry run, the result it would have."""

    log_dir: str
    topic: str
    partition: int
    segments_planned: int
    segments_deleted: int  # by this run, including moved ones
    segments_gone_already: int  # by other runs of this plan
    bytes_deleted: int  # of all files, by this run
    outcome: PartitionOutcome
    why: str | None
    stopped_at: int | None  # base offset of the first segment that is not done
    refused: bool = False  # stopped at a difference from the plan, not by an error


def delete_partition(run: Run, partition: PlannedPartition) -> PartitionResult:
    """Delete the planned segments; a difference or a fault of the store is in the result."""
    journal = Journal(run.plan, partition, run.run_id)
    files = PartitionFiles({}, frozenset())
    refused = False
    try:
        journal.load()
        run.continues.update(journal.other_runs)
        files = list_partition(partition.directory, may_be_absent=True)
        why = _hole(partition, files)
        refused = why is not None
    except PlanError as error:
        why, refused = str(error), True
    except OSError as error:
        why = (
            f"{partition.directory.uri}, or its journal, cannot be listed: {one_line(error)}; "
            f"{CONTINUE}"
        )
    source = run.plan.basis.source
    deleted = gone_already = bytes_deleted = 0
    stopped_at = None
    for segment in partition.segments:
        listed = files.segments.get(segment.base_offset, [])
        step = SegmentStep(run, partition, segment, journal, listed)
        if linked := linked_directory(partition.directory, partition.index_directory, source):
            why, refused = linked, True
        if run.interrupted.is_set():
            why, refused = "interrupted", False
        taken = step.stop(why, refused=refused) if why else step.take()
        deleted += taken.outcome in (StepOutcome.DELETED, StepOutcome.MOVED)
        gone_already += taken.outcome in (StepOutcome.GONE_ALREADY, StepOutcome.DONE_BEFORE)
        bytes_deleted += sum(file.size_bytes for file in taken.deleted)
        why, refused = taken.why, taken.refused
        if why:
            stopped_at = segment.base_offset
            break
    return PartitionResult(
        *partition.key,
        len(partition.segments),
        deleted,
        gone_already,
        bytes_deleted,
        PartitionOutcome.STOPPED if why else PartitionOutcome.DONE,
        why,
        stopped_at,
        refused,
    )


def _hole(partition: PlannedPartition, files: PartitionFiles) -> str | None:
    """Return why the directory could be left with a gap, None if it cannot."""
    planned = {segment.base_offset for segment in partition.segments}
    last = max(planned)
    logs = files.logs()
    for base_offset in logs:
        if base_offset < last and base_offset not in planned:
            log = partition.directory.child(segment_file_name(base_offset, "log"))
            return (
                f"{log.uri}: the segment is not in the plan, but older than a segment of the plan"
            )
    if any(swap <= last for swap in files.swaps):
        return f"{partition.directory.uri}: contains a .log.swap, which a broker must load first"
    kept = partition.first_kept_base_offset
    if kept is not None and kept not in logs:
        log = partition.directory.child(segment_file_name(kept, "log"))
        return f"{log.uri}: the first segment that the plan keeps is missing"
    return None
