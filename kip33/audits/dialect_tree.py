"""Compare dialects on every segment of a tree: the plan, and what one task does.

The share of a task is made of partitions, not of segments: the entries of `bucket` depend on
earlier segments, and a search ends in the first segment with a record that is late enough.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kip33.archive.bins import Engine
from kip33.archive.directory import Segment
from kip33.archive.layouts import layout_of
from kip33.archive.listing import Listed
from kip33.archive.sources import require_segments
from kip33.drafts.comparison import (
    ComparedPartition,
    DialectFigures,
    DialectQuestion,
    compare_segment,
)
from kip33.formats.batch import NO_TIMESTAMP
from kip33.stores.locations import Location

MOST_TIMES: Final = 1_024  # of one partition that are kept: bounds the driver's memory
_LOG: Final = pa.struct(
    [
        pa.field("path", pa.string()),
        pa.field("inside", pa.string()),
        pa.field("base_offset", pa.int64()),
    ]
)
_FIELDS: list["pa.Field[Any]"] = [
    pa.field("path", pa.string()),  # of its first log
    pa.field("size_bytes", pa.int64()),
    pa.field("topic", pa.string()),
    pa.field("logs", pa.list_(_LOG)),
]
_PARTITIONS: Final = pa.schema(_FIELDS)


class DialectPlan(NamedTuple):
    """The plan of a comparison: the listing is done, no file is opened yet."""

    source: Location
    question: DialectQuestion
    partitions: pa.Table
    skipped: tuple[str, ...]  # a line for each directory or log that cannot be read


def plan_dialects(
    source: str,
    question: DialectQuestion | None = None,
    *,
    topics: Sequence[str] = (),
    layout: str = "kafka",
    on_listed: Listed | None = None,
) -> DialectPlan:
    """Return the plan to compare dialects on every segment below `source`.

    Raises ValueError for an unknown dialect or setting, LocationError for a missing directory or
    one without segments.
    """
    question = question or DialectQuestion()
    question.require_valid()
    place = Location.of(source)
    listing = require_segments(place, topics, layout=layout_of(layout), on_listed=on_listed)
    return DialectPlan(place, question, *_partitions(place, listing.segments()))


def _partitions(source: Location, listed: Iterator[Segment]) -> tuple[pa.Table, tuple[str, ...]]:
    found: defaultdict[Any, list[Segment]] = defaultdict(list)
    skipped = []
    for segment in listed:
        if segment.error or segment.base_offset is None:
            what = "directory cannot be listed" if segment.is_directory else "cannot be read"
            skipped.append(f"{segment.log(source).uri}: {what}: {segment.error}")
        else:
            found[segment.log_dir, segment.topic, segment.partition].append(segment)
    rows = []
    for (_, topic, _), segments in found.items():
        segments.sort(key=lambda segment: (segment.base_offset or 0, segment.path))
        logs = [
            {"path": one.path, "inside": one.inside, "base_offset": one.base_offset}
            for one in segments
        ]
        size_bytes = sum(one.size_bytes or 0 for one in segments)
        rows.append(
            {"path": segments[0].path, "size_bytes": size_bytes, "topic": topic, "logs": logs}
        )
    return pa.Table.from_pylist(rows, _PARTITIONS), tuple(skipped)


def execute_dialects(plan: DialectPlan, engine: Engine) -> list[ComparedPartition]:
    """Return the figures of every partition, in order of path."""
    compared = engine.run_on_bins(plan.partitions, partial(compare_bin, plan.source, plan.question))
    return sorted(compared, key=lambda partition: partition.path)


def compare_bin(
    source: Location, question: DialectQuestion, number: int, partitions: pa.Table
) -> Iterator[ComparedPartition]:
    """Yield the figures of every partition of one bin, which is the work of one task."""
    for row in partitions.to_pylist():
        yield _compare_partition(source, question, row)


def _compare_partition(
    source: Location, question: DialectQuestion, row: dict[str, Any]
) -> ComparedPartition:
    parts: dict[str, list[DialectFigures]] = {name: [] for name in question.dialects}
    largest = NO_TIMESTAMP
    log_bytes = bytes_read = offset_index_bytes = segments = 0
    skipped, unreadable = [], []
    for log in row["logs"]:
        place = source.child(log["path"])._replace(inside=log["inside"] or "")
        compared = compare_segment(
            question,
            place,
            base_offset=log["base_offset"],
            topic=row["topic"] or "",
            largest_before=largest,
            random=_random(question, log["path"]),
            native=True,
        )
        bytes_read += compared.bytes_read
        if compared.problem:
            skipped.append(compared.problem)
            unreadable += [compared.unreadable] if compared.unreadable else []
            continue
        segments += 1
        log_bytes += compared.log_bytes
        offset_index_bytes += compared.offset_index_bytes
        largest = max(largest, compared.largest)
        for name, figures in compared.by_dialect.items():
            parts[name].append(figures)
    summed = {
        name: _bounded(question, row["path"], DialectFigures.summed(figures))
        for name, figures in parts.items()
    }
    return ComparedPartition(
        row["path"],
        segments,
        log_bytes,
        bytes_read,
        offset_index_bytes,
        tuple(skipped),
        tuple(unreadable),
        summed,
    )


def _random(question: DialectQuestion, path: str) -> np.random.Generator:
    """Return random numbers that depend on the seed and the path only, not on the engine."""
    return np.random.default_rng([question.seed, zlib.crc32(path.encode())])


def _bounded(question: DialectQuestion, path: str, figures: DialectFigures) -> DialectFigures:
    if len(figures.scanned_bytes) <= MOST_TIMES:
        return figures
    chosen = _random(question, path).choice(figures.scanned_bytes, MOST_TIMES, replace=False)
    return figures._replace(scanned_bytes=tuple(chosen.tolist()))
