"""Whether the index of a log without timestamps still has the right entry: `--untimestamped`.

The entry depends on the next segment, which may change while the log does not.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kip33.builds.build_spec import BuildSpec
from kip33.catalog.schema import IndexFileState
from kip33.rules.untimestamped import (
    FILE_TIME_OFFSET,
    NO_ENTRY,
    Untimestamped,
    entry_offsets,
)

COLUMNS = ("max_timestamp", "batch_count", "time_index_settings")
_Mask = npt.NDArray[np.bool_]
_Int64s = npt.NDArray[np.int64]


def file_times(table: pa.Table, build: BuildSpec) -> tuple[_Mask, _Int64s]:
    """Return which of our indexes may have an entry with their file's time, and its offset.

    `table` has rows of a catalog. Without a rule of the build, no row is one of them.
    """
    if build.settings.untimestamped == Untimestamped.NONE:
        return np.zeros(table.num_rows, bool), np.full(table.num_rows, NO_ENTRY, np.int64)
    written = pc.equal(table["index_file"], IndexFileState.WRITTEN)
    has_batches = pc.greater(table["batch_count"], 0)
    without_times = pc.and_(has_batches, pc.less(table["max_timestamp"], 0))
    said = pc.coalesce(table["time_index_settings"], "")
    found = pc.extract_regex(said, f'"{FILE_TIME_OFFSET}": (?P<offset>[0-9]+)')
    offsets = pc.struct_field(found, "offset").cast(pa.int64())
    mask: _Mask = pc.and_(written, without_times).fill_null(False).to_numpy()
    return mask, _numbers(offsets)


def file_time_offsets(untimestamped: str, files: pa.Table) -> _Int64s:
    """Return the offset of the entry of each log of a LISTING, if it has no timestamps."""
    is_active = pc.fill_null(files["active_segment"], True).to_numpy()
    next_base_offsets = np.where(is_active, NO_ENTRY, _numbers(files["next_base_offset"]))
    base_offsets, last_modified_ms = files["base_offset"], files["last_modified_ms"]
    return entry_offsets(
        untimestamped, _numbers(base_offsets), next_base_offsets, _numbers(last_modified_ms)
    )


def _numbers(column: Any) -> _Int64s:
    values: _Int64s = pc.fill_null(column, NO_ENTRY).to_numpy()
    return values
