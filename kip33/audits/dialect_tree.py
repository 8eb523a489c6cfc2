"""Compare dialects on every segment of a tree.

The share of a task is made of partitions, not of segments: the entries of `bucket` depend on
earlier segments, and a search ends in the first segment with a record that is late enough.
"""

import zlib
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive import common_options as common
from kip33.archive.bins import Engine
from kip33.audits.audited_logs import AuditedLog, logs_below, read_partitions
from kip33.drafts.comparison import (
    COMPARED,
    DIALECT_ROWS,
    KIP_PARTITIONS,
    ComparedPartition,
    ComparedSegment,
    DialectFigures,
    DialectQuestion,
    compare_segment,
    dialect_rows,
)
from kip33.drafts.designs import DesignName
from kip33.formats.batch import NO_TIMESTAMP
from kip33.options import Option
from kip33.rules.index_builder import TopicSettings
from kip33.rules.policies import positive_ms
from kip33.stores.progress import OnProgress, tell_nobody

MOST_TIMES: Final = 1_024  # of one partition that are kept: bounds the driver's memory


class DialectOptions(TypedDict, total=False):
    """Which dialects are compared, and how."""

    dialects: Annotated[
        Sequence[DesignName],
        Option(
            "Compare only this dialect. May be repeated [default: all].",
            default=(),
            flag="--dialect",
            python="Compare only these dialects; by default all.",
        ),
    ]
    index_interval_bytes: common.IndexIntervalBytes
    segment_index_bytes: common.SegmentIndexBytes
    kafka_configs: common.TopicConfigsFile
    interval_ms: Annotated[
        int | str,
        Option(
            "Length of a bucket of the dialect bucket.",
            default="1m",
            flag="--time-index-interval",
            metavar="1m",
            parse=positive_ms,
        ),
    ]
    partitions: Annotated[
        int,
        Option(
            "Show the memory for N partitions like those of SOURCE.",
            default=KIP_PARTITIONS,
            metavar="N",
            least=1,
            most=10_000_000,
            python="For how many partitions like those of `source` the memory is given.",
        ),
    ]
    targets: Annotated[
        int,
        Option(
            "Search N times in each segment.",
            default=16,
            metavar="N",
            least=1,
            most=1_000,
            python="How many times are searched in each segment.",
        ),
    ]
    seed: Annotated[
        int,
        Option(
            "Seed from which these times are drawn.",
            default=0,
            metavar="N",
            least=0,
            most=2**32 - 1,
        ),
    ]
    check_crc: Annotated[
        bool, "Read all bytes of the logs and check CRCs, to find where damaged logs end."
    ]
    layout: common.LayoutName
    topics: common.TopicGlobList


class DialectRequest(DialectOptions):
    """What a comparison of dialects is asked."""

    source: str  # a path or URI


class DialectAnswer(NamedTuple):
    """The rows of DIALECT_ROWS, and what was compared."""

    rows: list[dict[str, Any]]
    summary: dict[str, Any]
    skipped: list[str]  # a line for each directory or log that is not compared
    unreadable: list[str]  # those of them that could not be read

    def table(self) -> pa.Table:
        """Return the rows."""
        return pa.Table.from_pylist(self.rows, DIALECT_ROWS)


def compare_dialects(
    asked: DialectRequest,
    settings: TopicSettings,
    engine: Engine,
    on_progress: OnProgress = tell_nobody,
) -> DialectAnswer:
    """Compare dialects on every segment below a source; `settings` are those of its topics.

    Raises ValueError for an unknown dialect or setting, LocationError for a missing directory or
    one without segments.
    """
    wanted, interval_ms = asked["dialects"] or COMPARED, positive_ms(asked["interval_ms"])
    names = (*filter(wanted.__contains__, COMPARED), *(set(wanted) - set(COMPARED)))
    question = DialectQuestion(settings, names, interval_ms, asked["targets"], asked["seed"])
    logs = logs_below(
        asked["source"], topics=asked["topics"], layout=asked["layout"], on_progress=on_progress
    )
    compared, unread = compare_partitions(logs, question, engine)
    skipped = [*unread, *(line for one in compared for line in one.skipped)]
    summary = {
        "segments": sum(one.segments for one in compared),
        "skipped": len(skipped),
        "partitions": sum(one.segments > 0 for one in compared),
        "log_bytes": sum(one.log_bytes for one in compared),
        "bytes_read": sum(one.bytes_read for one in compared),
        "offset_index_bytes": sum(one.offset_index_bytes for one in compared),
        "memory_for_partitions": asked["partitions"],
    }
    rows = dialect_rows(compared, names, partitions=asked["partitions"])
    unreadable = [*unread, *(line for one in compared for line in one.unreadable)]
    return DialectAnswer(rows, summary, skipped, unreadable)


def compare_partitions(
    logs: pa.Table, question: DialectQuestion, engine: Engine
) -> tuple[list[ComparedPartition], list[str]]:
    """Return the figures of each partition of logs, by path, and a line for each unread log."""
    question.require_valid()
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
    largest = NO_TIMESTAMP
    every: list[ComparedSegment] = []
    for log in logs:
        compared = compare_segment(
            question,
            log.location,
            base_offset=log.base_offset or 0,
            topic=log.topic or "",
            largest_before=largest,
            random=_random(question, log.path or ""),
        )
        largest = max(largest, compared.largest)
        every.append(compared)
    good = [one for one in every if not one.problem]
    summed = {
        name: DialectFigures.summed([one.by_dialect[name] for one in good])
        for name in question.dialects
    }
    return ComparedPartition(
        path,
        segments=len(good),
        log_bytes=sum(one.log_bytes for one in good),
        bytes_read=sum(one.bytes_read for one in every),
        offset_index_bytes=sum(one.offset_index_bytes for one in good),
        skipped=tuple(one.problem for one in every if one.problem),
        unreadable=tuple(one.unreadable for one in every if one.unreadable),
        by_dialect={name: _bounded(question, path, one) for name, one in summed.items()},
    )


def _random(question: DialectQuestion, path: str) -> np.random.Generator:
    """Return random numbers that depend on the seed and the path only, not on the engine."""
    return np.random.default_rng([question.seed, zlib.crc32(path.encode())])


def _bounded(question: DialectQuestion, path: str, figures: DialectFigures) -> DialectFigures:
    if len(figures.scanned_bytes) <= MOST_TIMES:
        return figures
    chosen = _random(question, path).choice(figures.scanned_bytes, MOST_TIMES, replace=False)
    return figures._replace(scanned_bytes=tuple(chosen.tolist()))
