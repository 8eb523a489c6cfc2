"""Compare dialects on every segment of a tree.

The share of a task is made of partitions, not of segments: the entries of `bucket` depend on
earlier segments, and a search ends in the first segment with a record that is late enough.
"""

import zlib
from functools import partial
from typing import Final

import numpy as np
import pyarrow.compute as pc

from kip33.archive.bins import Engine
from kip33.audits.audited_logs import AuditedLog, logs_below, read_partitions
from kip33.drafts.comparison import (
    ComparedPartition,
    DialectFigures,
    DialectQuestion,
    compare_segment,
)
from kip33.formats.batch import NO_TIMESTAMP
from kip33.stores.progress import OnProgress, tell_nobody

MOST_TIMES: Final = 1_024  # of one partition that are kept: bounds the driver's memory


def compare_dialects(
    source: str,
    question: DialectQuestion,
    engine: Engine,
    *,
    topics: tuple[str, ...] = (),
    layout: str = "kafka",
    on_progress: OnProgress = tell_nobody,
) -> tuple[list[ComparedPartition], list[str]]:
    """Compare dialects on every segment below `source`; return the figures of each partition.

    They are in order of path. Also returns a line for each directory or log that cannot be read.
    Raises ValueError for an unknown dialect or setting, LocationError for a missing directory or
    one without segments.
    """
    question.require_valid()
    logs = logs_below(source, topics=topics, layout=layout, on_progress=on_progress)
    is_good = pc.and_(pc.is_null(logs["error"]), pc.is_valid(logs["base_offset"]))
    skipped = [
        f"{row['log_uri']}: "
        f"{'directory cannot be listed' if row['last_modified_ms'] is None else 'cannot be read'}: "
        f"{row['error']}"
        for row in logs.filter(pc.invert(is_good)).to_pylist()
    ]
    compared = read_partitions(logs.filter(is_good), partial(_compare_partition, question), engine)
    return sorted(compared, key=lambda partition: partition.path), skipped


def _compare_partition(question: DialectQuestion, logs: list[AuditedLog]) -> ComparedPartition:
    logs.sort(key=lambda log: (log.base_offset or 0, log.path or ""))
    path = logs[0].path or ""
    parts: dict[str, list[DialectFigures]] = {name: [] for name in question.dialects}
    largest = NO_TIMESTAMP
    log_bytes = bytes_read = offset_index_bytes = segments = 0
    skipped, unreadable = [], []
    for log in logs:
        compared = compare_segment(
            question,
            log.location,
            base_offset=log.base_offset or 0,
            topic=log.topic or "",
            largest_before=largest,
            random=_random(question, log.path or ""),
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
        name: _bounded(question, path, DialectFigures.summed(figures))
        for name, figures in parts.items()
    }
    return ComparedPartition(
        path,
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
