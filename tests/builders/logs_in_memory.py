"""A log's bytes in memory, read as a file's are."""

from typing import Any

import numpy as np

from kip33.formats.batch import BATCH, BatchColumns
from kip33.formats.byte_sources import ReadInto
from kip33.formats.scan import BatchScan


def read_into_of(log: bytes) -> ReadInto:
    """Return the function by which a scan reads these bytes."""

    def read_into(position: int, view: memoryview) -> int:
        piece = log[position : position + len(view)]
        view[: len(piece)] = piece
        return len(piece)

    return read_into


def columns_of(log: bytes, **how: Any) -> BatchColumns:
    """Return all batches of a log as columns."""
    scan = BatchScan(read_into_of(log), len(log), **how)
    return np.concatenate([np.empty(0, BATCH), *(batches.copy() for batches in scan)])
