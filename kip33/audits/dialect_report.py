"""The comparison of dialects over all partitions: one row per dialect."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from kip33.audits.dialect_question import ComparedPartition, DialectFigures
from kip33.rules.draft_entries import INLINE, index_file_of

GIB: Final = 2**30
DIALECT_COLUMNS: Final = (
    "dialect",
    "file",
    "entries",
    "bytes",
    "bytes_with_offset_index",
    "bytes_per_gib",
    "memory_bytes",
    "memory_with_offset_index_bytes",
    "scanned_median_bytes",
    "scanned_p99_bytes",
    "searched_times",
    "missed_times",
    "guarantee",
    "counterexample_log",
    "counterexample_target_ms",
    "counterexample_start",
    "counterexample_position",
    "counterexample_offset",
    "counterexample_timestamp",
)


def dialect_rows(
    compared: Sequence[ComparedPartition], dialects: Iterable[str], *, partitions: int
) -> list[dict[str, Any]]:
    """Return a row of DIALECT_COLUMNS for each dialect; sizes are in bytes, times in ms.

    `bytes` are those of the dialect's own files; with the offset index that a search also needs it
    is `bytes_with_offset_index` (`inline` replaces it). Memory is for `partitions` partitions like
    those compared. Scanned are bytes of log per search, None if nothing was searched.
    """
    log_bytes = sum(one.log_bytes for one in compared)
    offset_index_bytes = sum(one.offset_index_bytes for one in compared)
    measured = sum(one.segments > 0 for one in compared)
    rows = []
    for name in dialects:
        figures = DialectFigures.summed([one.by_dialect[name] for one in compared])
        together = figures.file_bytes + (0 if name == INLINE.name else offset_index_bytes)
        searched = np.array(figures.scanned_bytes, np.int64)
        median, p99 = (
            np.percentile(searched, (50, 99), method="inverted_cdf").astype(int).tolist()
            if len(searched)
            else (None, None)
        )
        example = figures.counterexample
        values = (
            name,
            f".{index_file_of(name)}",
            figures.entries,
            figures.file_bytes,
            together,
            round(figures.file_bytes * GIB / log_bytes) if log_bytes else None,
            round(figures.file_bytes * partitions / measured) if measured else None,
            round(together * partitions / measured) if measured else None,
            median,
            p99,
            len(searched) + figures.missed,
            figures.missed,
            example is None,
            *(example or (None,) * 6),
        )
        rows.append(dict(zip(DIALECT_COLUMNS, values, strict=True)))
    return rows
