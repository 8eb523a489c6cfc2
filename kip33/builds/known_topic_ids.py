"""Topic ids that a build takes from the newest snapshot, and rows whose log is another one now.

A topic's id is read from `partition.metadata`. The row of an unchanged segment has the id and the
file's modification time, so a directory whose segments are all known is not read again. Kafka never
changes such a file; only another one can take its place.
"""

import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip33.archive.listing import Column
from kip33.builds.reusable_rows import NULL_NUMBER, Int64s, Mask, ReusableRows
from kip33.builds.reuse import may_change_unseen

_WITH_TOPIC_ID: Final = re.compile(r"(?:.*/)?[A-Za-z0-9_-]{22}")


def known_topic_ids(
    known: ReusableRows, at: Int64s, files: pa.Table, *, known_listed_ms: int
) -> Column:
    """Return for each of `files` the id in its row of the snapshot, null if it may be another.

    `at` are the numbers of their rows, -1 without one. A file that changed less than 2 s before
    the listing that gave the row is read again.
    """
    if not known.rows:
        return pa.nulls(files.num_rows, pa.string())
    now_ms = pc.fill_null(files["partition_metadata_modified_ms"], NULL_NUMBER).to_numpy()
    same = (
        (at >= 0) & (now_ms != NULL_NUMBER) & (known.partition_metadata_modified_ms[at] == now_ms)
    )
    same &= ~may_change_unseen(now_ms, known_listed_ms)
    if not same.any():
        return pa.nulls(files.num_rows, pa.string())
    return known.topic_id.take(pa.array(at, mask=~same)).combine_chunks()


def has_moved(known: ReusableRows, at: Int64s, files: pa.Table) -> Mask:
    """Return which of `files` have another log_dir than their rows.

    This is so after a topic was deleted and created again: its log_dir gets the topic id. Such a
    segment is read again, because other segments are before it now.
    """
    names = pc.unique(known.log_dir).to_pylist() + pc.unique(files["log_dir"]).to_pylist()
    if not known.rows or not any(name and _WITH_TOPIC_ID.fullmatch(name) for name in names):
        return np.zeros(files.num_rows, bool)
    before = known.log_dir.take(pa.array(at, mask=at < 0))
    moved: Mask = pc.not_equal(before, files["log_dir"]).fill_null(False).to_numpy()
    return moved
