"""The batches whose records are wanted, as rows: where each body is, and how to read it.

The functions run uncompiled and compiled, as `kip33.formats.walk` does.
"""

from typing import Any, Final

import numpy as np

from kip33.formats.batch import (
    CODEC_MASK,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
)
from kip33.formats.bigendian import Bytes, int32_at, int64_at

# What the body of an entry is.
V2_RECORDS: Final = 0  # records of magic 2
MESSAGE: Final = 1  # one message of magic 0 or 1, from its CRC on
WRAPPED: Final = 2  # the decompressed messages of a wrapper, each with offset and size
UNREADABLE: Final = 3  # not to be read: iterate_records gives the reason

ENTRY: Final = np.dtype(
    [
        ("position", np.int64),  # of the batch in the .log
        ("start", np.int64),  # of its body in the array
        ("stop", np.int64),
        ("offset", np.int64),  # the batch's offset field
        ("base_timestamp", np.int64),
        ("max_timestamp", np.int64),
        ("count", np.int32),  # records of magic 2
        ("kind", np.int16),
        ("magic", np.int16),
        ("attributes", np.int16),
        ("is_complete", np.int16),  # 0: decompression failed where the body ends
    ]
)
"""One row per batch whose records are wanted."""


def fill_entries(data: Bytes, start: int, batches: Any, entries: Any) -> None:
    """Fill one entry per batch, with the place of its body as it is stored.

    `data` has the batches; its first byte is at position `start` of the log.
    """
    for i in range(batches.size):
        batch, entry = batches[i], entries[i]
        at = batch["position"] - start
        entry["position"] = batch["position"]
        entry["stop"] = at + batch["size_bytes"]
        entry["offset"] = batch["base_offset"]
        entry["max_timestamp"] = batch["max_timestamp"]
        entry["base_timestamp"] = NO_TIMESTAMP
        entry["count"] = 0
        entry["magic"] = batch["magic"]
        entry["attributes"] = batch["attributes"]
        entry["is_complete"] = 1
        if batch["magic"] >= 2:
            entry["kind"] = V2_RECORDS
            entry["start"] = at + RECORD_BATCH_OVERHEAD
            entry["base_timestamp"] = int64_at(data, at + 27)
            entry["count"] = batch["records_count"]
        elif batch["attributes"] & CODEC_MASK:
            find_wrapped(data, at, entry)
        else:
            entry["kind"] = MESSAGE
            entry["start"] = at + LOG_OVERHEAD


def find_wrapped(data: Bytes, at: int, entry: Any) -> None:
    """Find the compressed value of the wrapper at `at`."""
    entry["kind"] = UNREADABLE
    entry["start"] = at
    end = entry["stop"]
    if entry["magic"] < 0:
        return
    key_at = at + (18 if entry["magic"] == 0 else 26)
    if key_at + 4 > end:
        return
    value_at = key_at + 4 + max(0, int32_at(data, key_at))
    if value_at + 4 > end:
        return
    size = int32_at(data, value_at)
    if size >= 0 and size <= end - value_at - 4:
        entry["kind"] = WRAPPED
        entry["start"] = value_at + 4
        entry["stop"] = value_at + 4 + size
