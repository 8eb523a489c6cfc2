"""Bring staged partitions to their places, or abandon them: the end of a restore, by its journal.

The order: partitions are renamed into the log directory, an empty one of a new topic is moved aside
before. Then the log directory's checkpoints, the clean-shutdown file, and last the directory
`.kip33-restore` and the journal. Each step may be done again.

    LOG_DIR/.kip33-restore.json      the journal: there from the first rename to the end
    LOG_DIR/.kip33-restore/          there from the first copy to the end; `run` has the run's id

While the directory is there a broker does not start: its name is not that of a partition. The
journal has all that is left to do and the options of the command, so the same command completes it,
without SOURCE. It is believed only in the log directory for which it was written: it has the
directory's inode and the id in `run`.
"""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from kip33.archive.broker_locks import alone_in, locked
from kip33.archive.log_directory import found_on_start, names_text
from kip33.archive.log_start_offsets import checkpoint_text
from kip33.archive.plans import JournalForm, inode_of
from kip33.archive.sources import RESTORE_JOURNAL, RESTORE_STAGING
from kip33.errors import PublishError, RestoreError, counted
from kip33.formats.names import partition_dir_name
from kip33.formats.partition_metadata import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINT_CHECKPOINT,
    parse_offset_checkpoint,
    with_offsets,
)
from kip33.restore.finished_partition import FinishedPartition
from kip33.restore.restore_plan import (
    CLEAN_SHUTDOWN,
    REPLACED,
    STAGED_FACTS,
    STAGED_PARTITIONS,
    RestorePlan,
    obstacle_at,
    require_own_files,
    run_in,
)
from kip33.restore.restore_request import PartitionName
from kip33.restore.restore_source import PartitionPlan
from kip33.rules.broker_directory import Find, Found
from kip33.stores.file_owners import FileOwner
from kip33.stores.files import one_line
from kip33.stores.locations import Location
from kip33.stores.own_files import (
    flush,
    publish,
    remove,
    remove_temporary,
    require_file_or_nothing,
    temporary_files_of,
)

_PUBLISHED: Final = (RESTORE_JOURNAL, CLEAN_SHUTDOWN, *OFFSET_CHECKPOINTS)
_AT_END: Final = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
_RESTORE_JOURNAL_FORM: Final = JournalForm(
    2,
    "the journal of a restore into this directory",
    f"move it away together with the directory {RESTORE_STAGING}, and run the command again",
    RestoreError,
)


class RestoredPartition(NamedTuple):
    """A partition that is staged as a whole: its offsets for the log directory's checkpoints."""

    topic: str
    partition: int
    name: str  # of its directory
    first_base_offset: int
    start_offset: int
    end_offset: int
    files_id: str  # of its files as they were staged

    @classmethod
    def of(cls, finished: FinishedPartition, files_id: str) -> Self:
        """Return a partition whose files have an id, as `files_id_of` gives it."""
        named = finished.plan.topic, finished.plan.partition, finished.plan.name
        start_offset, end_offset = finished.start_offset, finished.end_offset
        return cls(*named, finished.first_base_offset, start_offset, end_offset, files_id)


@dataclass(frozen=True)
class RestoreJournal:
    """The remaining steps when all partitions are staged."""

    asked: Mapping[str, Any]  # the options that decide what is restored
    partitions: tuple[RestoredPartition, ...]
    run: str  # that staged them
    marks_clean_shutdown: bool
    summary: dict[str, Any]  # what the command prints


class _RestoreProgress(NamedTuple):
    """Where the partitions of a journal are."""

    is_staging_there: bool
    staged: tuple[RestoredPartition, ...]
    in_place: tuple[RestoredPartition, ...]
    lost: tuple[RestoredPartition, ...]  # neither, or with other files than those staged

    @property
    def may_go_on(self) -> bool:
        """Return whether the restore can be completed without reading its source again."""
        return self.is_staging_there or not self.lost


def complete(log_dir: Location, journal: RestoreJournal) -> _RestoreProgress:
    """Do all steps in order; those that an earlier run did have no effect.

    Returns where the partitions were before. Without the staging directory a broker may have
    started since, so only partitions in their places are completed. Raises RestoreError, and
    changes nothing, if a partition is lost beside others that are staged; PublishError if a step
    fails: the same command continues.
    """
    progress = progress_of(log_dir, journal)
    require_all(log_dir, progress)
    what = "the restore is not complete, and a broker does not start"
    with unfinished(log_dir, what), temporary_files_of(journal.run):
        for one in progress.staged:
            _place(log_dir, one)
        flush(log_dir.path)
        changed = [one for one in journal.partitions if one not in progress.lost]
        for name in OFFSET_CHECKPOINTS:
            _update(log_dir.child(name), {one[:2]: _offset_in(name, one) for one in changed})
        if progress.is_staging_there and journal.marks_clean_shutdown:
            _publish(log_dir.child(CLEAN_SHUTDOWN), b"")
        remove_unfinished(log_dir, journal.run)
        remove_staging(log_dir)
        remove(log_dir.child(RESTORE_JOURNAL))
        flush(log_dir.path)
    return progress


def require_all(log_dir: Location, progress: _RestoreProgress) -> None:
    """Raise RestoreError if a partition is lost beside others that are staged."""
    if not progress.may_go_on or not progress.lost:
        return
    names = names_text([one.name for one in progress.lost])
    raise RestoreError(
        f"{log_dir.uri}: {names}: neither staged in {RESTORE_STAGING} nor in its place as "
        "planned; another program has changed the directory: restore with --abandon, then again"
    )


class AbandonedRestore(NamedTuple):
    """What was left of a restore that was given up."""

    log_dir: str
    partitions_removed: int
    partitions_in_place: tuple[str, ...]  # they stay, because a broker may have started since


def abandon(log_dir: Location) -> AbandonedRestore:
    """Remove what an interrupted restore has staged or placed; return what was removed.

    Partitions in their places are removed, and the empty ones of new topics return there. Without
    the staging directory a broker may have started since: then partitions in their places stay.
    Raises RestoreError if no restore was begun, PublishError if a step fails: the same command
    continues.
    """
    with alone_in(log_dir, "restore", RestoreError), locked([log_dir.child("any")], restores=True):
        require_own_files(log_dir)
        journal = _read_restore_journal(log_dir)
        progress = progress_of(log_dir, journal) if journal else None
        is_there = os.path.isdir(log_dir.child(RESTORE_STAGING).path)  # noqa: PTH112
        if not journal and not is_there:
            raise RestoreError(f"{log_dir.uri}: no restore was begun here; nothing was changed")
        kept: tuple[RestoredPartition, ...] = ()
        if journal and not is_there:
            kept = complete(log_dir, journal).in_place
        with unfinished(log_dir, "the restore is not removed yet, and a broker does not start"):
            run = journal.run if journal else run_in(log_dir)
            if journal and progress and is_there:
                with temporary_files_of(run):
                    _undo(log_dir, journal, progress)
            remove_unfinished(log_dir, run)
            remove(log_dir.child(RESTORE_JOURNAL))
            flush(log_dir.path)
            remove_staging(log_dir)
        removed = len(journal.partitions) - len(kept) if journal else 0
        return AbandonedRestore(log_dir.uri, removed, tuple(one.name for one in kept))


def _undo(log_dir: Location, journal: RestoreJournal, progress: _RestoreProgress) -> None:
    """Take partitions out of their places; offsets first, so it can be done again."""
    if progress.in_place:
        gone = dict.fromkeys(one[:2] for one in journal.partitions)
        for name in OFFSET_CHECKPOINTS:
            _update(log_dir.child(name), gone)
        if journal.marks_clean_shutdown:
            remove(log_dir.child(CLEAN_SHUTDOWN))
        folder = log_dir.child(f"{RESTORE_STAGING}/{STAGED_PARTITIONS}")
        os.makedirs(folder.path, exist_ok=True)  # noqa: PTH103 - a killed run may have removed it
    for one in progress.in_place:
        place = log_dir.child(one.name)
        os.rename(place.path, staged_place(log_dir, one.name).path)  # noqa: PTH104
    for one in journal.partitions:
        before = log_dir.child(f"{RESTORE_STAGING}/{REPLACED}/{one.name}")
        place = log_dir.child(one.name)
        if os.path.lexists(before.path) and not os.path.lexists(place.path):
            os.rename(before.path, place.path)  # noqa: PTH104


def remove_unfinished(log_dir: Location, run: str) -> None:
    """Remove the temporary files of a run's interrupted steps."""
    remove_temporary(log_dir, _PUBLISHED, run)


def remove_staging(log_dir: Location) -> None:
    """Remove the staging directory; the run's id, which shows whose files these are, last."""
    staging = log_dir.child(RESTORE_STAGING)
    kinds = (STAGED_PARTITIONS, STAGED_FACTS, REPLACED)
    for place in (*map(staging.child, kinds), staging):
        with suppress(FileNotFoundError):
            shutil.rmtree(place.path)
    flush(log_dir.path)


@contextmanager
def unfinished(directory: Location, consequence: str) -> Iterator[None]:
    """Raise PublishError for an OSError of a block that changes a directory."""
    try:
        yield
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise PublishError(
            f"{directory.uri}: {name}{one_line(error)}; {consequence}: fix it and run the same "
            "command again"
        ) from error


def require_checkpoints(log_dir: Location) -> None:
    """Raise RestoreError for a checkpoint of the log directory that cannot be read."""
    for name in OFFSET_CHECKPOINTS:
        place = log_dir.child(name)
        try:
            parse_offset_checkpoint(checkpoint_text(place))
            require_file_or_nothing(place)
        except (OSError, ValueError) as error:
            raise RestoreError(
                f"{place.uri}: {one_line(error)}; fix it and run the command again"
            ) from error


def give_to_owner(log_dir: Location, path: str) -> None:
    """Give a new file or directory the owner and the group of the log directory."""
    owner, have = FileOwner.of(log_dir.path), FileOwner.of(path)
    if owner and have and owner[:2] != have[:2]:
        os.chown(path, owner.uid, owner.gid)


def _place(log_dir: Location, partition: RestoredPartition) -> None:
    target = log_dir.child(partition.name)
    if os.path.lexists(target.path):
        obstacle = obstacle_at(target)
        if obstacle:
            raise FileExistsError(0, obstacle, target.path)
        aside = log_dir.child(f"{RESTORE_STAGING}/{REPLACED}")
        os.makedirs(aside.path, exist_ok=True)  # noqa: PTH103
        os.rename(target.path, aside.child(partition.name).path)  # noqa: PTH104
    os.rename(staged_place(log_dir, partition.name).path, target.path)  # noqa: PTH104


def _update(place: Location, changes: Mapping[PartitionName, int | None]) -> None:
    text = checkpoint_text(place)
    there = parse_offset_checkpoint(text)
    if any(there.get(key) != offset for key, offset in changes.items()):
        _publish(place, with_offsets(text, changes).encode())


def _offset_in(name: str, partition: RestoredPartition) -> int | None:
    """Return the offset of a restored partition in a checkpoint, None: it has none."""
    if name in _AT_END:
        return partition.end_offset
    is_start = partition.start_offset > partition.first_base_offset
    return partition.start_offset if is_start and name == LOG_START_OFFSET_CHECKPOINT else None


def has_offsets(log_dir: Location, partition: RestoredPartition) -> bool:
    """Return whether the checkpoints have what a restore writes for a partition, and no more."""
    try:
        return all(
            parse_offset_checkpoint(checkpoint_text(log_dir.child(name))).get(partition[:2])
            == _offset_in(name, partition)
            for name in OFFSET_CHECKPOINTS
        )
    except (OSError, ValueError):
        return False


def _publish(place: Location, data: bytes) -> None:
    publish(
        place,
        data,
        before_rename=lambda at: give_to_owner(place.parent, at),
        durable=True,
    )


def progress_of(log_dir: Location, journal: RestoreJournal) -> _RestoreProgress:
    """Return where each partition of a journal is, as its files say."""
    staged: list[RestoredPartition] = []
    in_place: list[RestoredPartition] = []
    lost: list[RestoredPartition] = []
    for partition in journal.partitions:
        folder = staged_place(log_dir, partition.name)
        is_staged = os.path.lexists(folder.path)
        files_id = files_id_of(folder if is_staged else log_dir.child(partition.name))
        where = staged if is_staged else in_place
        (where if files_id == partition.files_id else lost).append(partition)
    is_there = os.path.isdir(log_dir.child(RESTORE_STAGING).path)  # noqa: PTH112
    return _RestoreProgress(is_there, tuple(staged), tuple(in_place), tuple(lost))


def staged_place(log_dir: Location, name: str) -> Location:
    """Return where a partition is staged."""
    return log_dir.child(f"{RESTORE_STAGING}/{STAGED_PARTITIONS}/{name}")


def files_id_of(folder: Location) -> str | None:
    """Return an id of the names and sizes of the files in a directory.

    None if it is not there, is a link, or has anything but files.
    """
    digest = hashlib.sha256()
    try:
        if not stat.S_ISDIR(os.lstat(folder.path).st_mode):
            return None
        with os.scandir(folder.path) as entries:
            found = sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in entries)
    except FileNotFoundError:
        return None
    for name, status in found:
        if not stat.S_ISREG(status.st_mode):
            return None
        digest.update(f"{name} {status.st_size}\n".encode())
    return digest.hexdigest()[:32]


def begun_restore(log_dir: Location, asked: Mapping[str, Any]) -> RestoreJournal | None:
    """Return the journal of a restore that was interrupted, or None.

    Raises RestoreError if that restore had other options, or for a file that is not the journal
    of a restore into this directory.
    """
    journal = _read_restore_journal(log_dir)
    if journal is None or journal.asked == asked:
        return journal
    then, now = journal.asked, asked
    others = [key for key in {**then, **now} if then.get(key) != now.get(key)]
    texts = [
        ", ".join(f"{key} {json.dumps(options.get(key))}" for key in others)
        for options in (then, now)
    ]
    raise RestoreError(
        f"{log_dir.uri}: a restore with {texts[0]} was begun and has not ended, but this one has "
        f"{texts[1]}; run the command as it was begun, or with --abandon to remove what it staged"
    )


def _read_restore_journal(log_dir: Location) -> RestoreJournal | None:
    """Return the journal of a restore that was interrupted, or None.

    Raises RestoreError for a file that is not the journal of a restore into this directory.
    """

    def journal_of(record: dict[str, Any]) -> RestoreJournal:
        _require_here(log_dir, record)
        partitions = tuple(RestoredPartition(**one) for one in record["partitions"])
        for one in partitions:
            if one.name != partition_dir_name(one.topic, one.partition):
                raise ValueError(f"{one.name!r} found, expected the name of a partition")
        return RestoreJournal(
            *(record["asked"], partitions, str(record["run"])),
            *(record["marks_clean_shutdown"], record["summary"]),
        )

    return _RESTORE_JOURNAL_FORM.read(log_dir.child(RESTORE_JOURNAL), journal_of)


def _require_here(log_dir: Location, record: dict[str, Any]) -> None:
    """Raise ValueError unless the journal was written in this log directory."""
    if record["inode"] != inode_of(log_dir):
        raise ValueError(f"it was written in another directory, {record['summary']['log_dir']}")
    if os.path.lexists(log_dir.child(RESTORE_STAGING).path):
        run = run_in(log_dir)
        if run not in ("", record["run"]):
            raise ValueError(f"{RESTORE_STAGING} is of run {run!r}, not {record['run']!r}")


def begin_restore_journal(log_dir: Location, journal: RestoreJournal) -> None:
    """Publish the journal; PublishError if that fails, then no partition is in its place."""
    content = vars(journal) | {"partitions": [one._asdict() for one in journal.partitions]}
    consequence = "no partition of the log directory was changed"
    with temporary_files_of(journal.run):
        _RESTORE_JOURNAL_FORM.publish(log_dir.child(RESTORE_JOURNAL), content, consequence)


def summary_of(
    plan: RestorePlan,
    finished: Sequence[FinishedPartition],
    notes: Sequence[str],
    *,
    is_applied: bool,
) -> dict[str, Any]:
    """The summary of a plan whose partitions were `finished`; empty if no log was read."""
    outcomes = {one.plan.name: one for one in finished}
    done = [one for one in finished if one.problem is None]
    refused = outcomes.keys() - {one.plan.name for one in done}
    others = plan.log_dir.others({one.name for one in plan.wanted} - refused)
    rows = [_row(one, outcomes.get(one.name)) for one in plan.partitions]
    there = sum(row["is_there"] for row in rows)
    restored = [row for row in rows if row["problem"] is None and not row["is_there"]]
    unreadable = [*plan.problems, *_unreadable(plan, outcomes)]
    return {
        "source": plan.request.source.uri,
        "remote_source": next((one.uri for one in plan.request.sources[1:]), None),
        "log_dir": plan.request.log_dir.uri,
        "applied": is_applied,
        "partitions_restored": len(restored),
        "partitions_refused": len(rows) - there - len(restored) + len(plan.problems),
        "segments": sum(row["segments"] for row in restored),
        "log_bytes": sum(row["log_bytes"] for row in restored),
        "logs": _logs(plan),
        "unreadable_logs": len(unreadable),
        "unreadable_example": min(unreadable, default=None),
        "bytes_copied": sum(one.bytes_copied for one in done),
        "bytes_linked": sum(one.bytes_linked for one in done),
        "bytes_there": sum(one.bytes_there for one in done),
        "clean_shutdown": plan.log_dir.is_cleanly_shut or not others,
        "notes": [*notes, *plan.notes, *_notes(plan, rows, others), *_left_out(done)],
        "problems": list(plan.problems),
        "partitions": rows,
        "partitions_there": there,
    }


def _logs(plan: RestorePlan) -> int:
    """Return how many logs are read, or could not be; an unlisted directory counts as one.

    A partition whose range could not be found because of a log counts with this log alone.
    """
    partitions = [one for one in plan.partitions if one.problem is None or one.is_unreadable]
    counts = (1 if one.is_unreadable else len(one.segments) for one in partitions)
    return len(plan.problems) + sum(counts)


def _unreadable(plan: RestorePlan, outcomes: Mapping[str, FinishedPartition]) -> Iterator[str]:
    for one in plan.partitions:
        if one.is_unreadable and one.problem:
            yield one.problem
        elif outcome := outcomes.get(one.name):
            yield from outcome.unreadable


def _row(plan: PartitionPlan, finished: FinishedPartition | None) -> dict[str, Any]:
    problem = plan.problem or (finished.problem if finished else None)
    known = finished if finished and problem is None else plan.there
    return {
        "topic": plan.topic,
        "partition": plan.partition,
        "replica": plan.replica,
        "replicas": plan.replicas,
        "segments": len(plan.segments),
        "remote_segments": plan.remote_segments,
        "log_bytes": plan.size_bytes,
        "start_offset": known.start_offset if known else None,
        "end_offset": known.end_offset if known else None,
        "largest_leader_epoch": known.largest_epoch if known else None,
        "topic_id": plan.topic_id,
        "problem": problem,
        "notes": list(dict.fromkeys([*plan.notes, *(finished.notes if finished else ())])),
        "is_there": plan.there is not None,
    }


def _notes(
    plan: RestorePlan, rows: Sequence[Mapping[str, Any]], others: Sequence[str]
) -> Iterator[str]:
    if others and not plan.log_dir.is_cleanly_shut:
        more = f" and {len(others) - 1:,} others" if len(others) > 1 else ""
        yield (
            f"{plan.request.log_dir.uri}: {others[0]}{more} were not shut down cleanly, so a "
            "broker that starts recovers all partitions of this log directory, the restored ones, "
            "too"
        )
    if not plan.log_dir.is_formatted:
        yield Found(Find.NOT_FORMATTED, plan.request.log_dir.uri).line
    replaced = {f"{row['topic']}-{row['partition']}" for row in rows if row["problem"] is None}
    if plan.log_dir.is_there:
        yield from (one.line for one in found_on_start(plan.log_dir.place, replaced))
    if plan.request.leader_epoch is None:
        yield from _new_cluster(plan, rows)


def _left_out(done: Sequence[FinishedPartition]) -> Iterator[str]:
    if count := sum(one.producers_left_out for one in done):
        yield (
            f"{counted(count, 'producer')} left out of the .snapshot files: a new cluster "
            "(--leader-epoch) gives their ids again, and it would not write a new producer's first "
            "batch. Followers find them in the log: restore all replicas, or set "
            "producer.id.expiration.ms below the age of the last records until they have copied it"
        )


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
