"""Worlds of `small_kafka` as files: logs, checkpoints and topic ids, and uploads in a bucket.

A record's timestamp names it: T and its number.
"""

from collections.abc import Sequence
from pathlib import Path

from kip33.formats.partition_metadata import (
    EpochStart,
    PartitionMetadata,
    format_epoch_checkpoint,
)
from kip33.rules.which_log import ChosenLog, Status, which_log
from tests.builders.layouts import Stored, kafka, local_tiered, put, uuid22
from tests.builders.segment_builder import Record, segment, v2_batch
from tests.builders.small_kafka import Archived, Batch, Made
from tests.faults.builds import build_here

TOPIC = "orders"
T = 1_700_000_000_000


def written(made: Made, place: Path) -> list[Path]:
    """Write the archive of a world; return its directory, and a bucket if there are two tiers."""
    places = [place / "disks"]
    for number, copy in enumerate(made.archive.copies):
        rows = [row for row in made.archive.rows if row.copy == number]
        stored = [Stored(TOPIC, 0, row.base, log_of(row), upload=at) for at, row in enumerate(rows)]
        if copy.is_remote:
            places.append(place / "bucket")
            local_tiered(places[-1], stored)
            continue
        log_dir = places[0] / copy.name
        directory = log_dir / f"{TOPIC}-0"
        kafka(log_dir, stored)
        put(directory / "partition.metadata", PartitionMetadata(uuid22(TOPIC)).to_bytes())
        if copy.checkpoint:
            starts = tuple(EpochStart(*entry) for entry in copy.checkpoint)
            text = format_epoch_checkpoint(starts)
            put(directory / "leader-epoch-checkpoint", text.encode())
        if start := log_starts(made)[number]:
            text = f"0\n1\n{TOPIC} 0 {start}\n"
            put(log_dir / "log-start-offset-checkpoint", text.encode())
    return places


def catalogs(places: Sequence[Path]) -> list[Path]:
    """Build a catalog of each place."""
    for place in places:
        layout = "local-tiered" if place.name == "bucket" else "kafka"
        build_here(place, place.with_suffix(".index"), layout=layout)
    return [place.with_suffix(".index") / "_catalog" for place in places]


def log_of(row: Archived) -> bytes:
    """The bytes of a segment; what is damaged ends within a batch, or has no batch."""
    if row.status == Status.LOST:
        return b"\xff" * 80
    data = segment(map(batch_bytes, row.batches))
    if row.status == Status.CUT:
        data += v2_batch(row.end, [Record(T, value=b"torn")])[:50]
    return data


def batch_bytes(batch: Batch) -> bytes:
    records = [
        Record(
            *(T + one.uid, b"%d" % one.key, None if one.is_tombstone else b"v"),
            offset_delta=one.offset - batch.base,
        )
        for one in batch.records
    ]
    return v2_batch(
        batch.base, records, leader_epoch=batch.epoch, last_offset_delta=batch.last - batch.base
    )


def log_starts(made: Made) -> list[int]:
    """What brokers write down of each copy; in one tier only a start after the first segment's."""
    copies, rows, *_ = made.archive
    firsts = [min([row.base for row in rows if row.copy == at] or [0]) for at in range(len(copies))]
    return [
        one.log_start if made.world.kinds.tiered or one.log_start > first else 0
        for one, first in zip(copies, firsts, strict=True)
    ]


def common_log_start(made: Made) -> int:
    """The one log start that all brokers wrote down, or 0."""
    seen = {row.copy for row in made.archive.rows}
    starts = log_starts(made)
    of_local = {starts[at] for at in seen if not made.archive.copies[at].is_remote}
    return of_local.pop() if len(of_local) == 1 else 0


def is_written(made: Made) -> bool:
    """Whether there is a log in each tier."""
    copies, rows, *_ = made.archive
    tiers = {copies[row.copy].is_remote for row in rows}
    return tiers == {False, *(one.is_remote for one in copies)}


def expected(made: Made, replica: str | None = None) -> ChosenLog:
    """The answer of the rule on what the files show.

    A directory without a log is not seen. The remote tier has the brokers' log start. An only copy
    is read as it is, whatever its checkpoints say.
    """
    copies, rows, segments, _ = made.archive
    seen = {row.copy for row in rows}
    starts = log_starts(made)
    if common_log_start(made):  # what all copies have deleted is read from the archive
        starts = [0] * len(copies)
    latest = max([starts[at] for at in seen if not copies[at].is_remote], default=0)
    shown = [
        one._replace(
            log_start=latest if one.is_remote else starts[at] if len(seen) > 1 else 0,
            checkpoint=one.checkpoint if at in seen and len(seen) > 1 else (),
        )
        for at, one in enumerate(copies)
    ]
    return which_log(shown, segments, replica=replica)
