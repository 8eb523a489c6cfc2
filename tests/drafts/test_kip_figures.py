"""The figures of KIP-33 from generated batches of the same shape.

The batches are columns: no log is written. A broker of the KIP has 3,500 partitions.
"""

import numpy as np
import pytest

from kip33.drafts.comparison import KIP_PARTITIONS
from kip33.drafts.designs import BUCKET, INLINE, MINUTE, MINUTE_MAP, DraftBuilder, IndexDesign
from kip33.formats.batch import BATCH, BatchColumns
from kip33.formats.native import compiled
from kip33.rules.index_builder import IndexBuilder, IndexSettings
from kip33.rules.index_entries import RECOVER

GIB, MIB = 2**30, 2**20
DAY_START_MS = 1_704_067_200_000  # 2024-01-01, UTC
DAY_MS = 86_400_000


def batches_of(count: int, *, size_bytes: int, span_ms: int) -> BatchColumns:
    """Return batches of one record each, evenly over a time, side by side in one log."""
    batches = np.zeros(count, BATCH)
    batches["position"] = np.arange(count) * size_bytes
    batches["size_bytes"] = size_bytes
    batches["base_offset"] = batches["last_offset"] = np.arange(count)
    batches["max_timestamp"] = DAY_START_MS + np.arange(count) * span_ms // count
    batches["records_count"] = 1
    return batches


def file_of(draft: IndexDesign, batches: BatchColumns, *, bucket_ms: int = 60_000) -> bytes:
    builder = DraftBuilder(draft, base_offset=0, interval_ms=bucket_ms)
    indexes(batches, builder)
    return builder.data


def indexes(batches: BatchColumns, *drafts: DraftBuilder) -> IndexBuilder:
    builder = IndexBuilder(
        RECOVER, IndexSettings(), base_offset=0, topic="t", most_rows=len(batches), others=drafts
    )
    builder.append(batches, compiled)
    builder.close(int(batches["position"][-1] + batches["size_bytes"][-1]))
    return builder


def test_a_day_of_batches_has_these_entries_with_a_second_or_a_minute() -> None:
    day = batches_of(200_000, size_bytes=5_000, span_ms=DAY_MS)
    by_second = len(file_of(BUCKET, day, bucket_ms=1_000)) - 12  # without the closing entry
    assert by_second // 12 == 86_400
    assert round(by_second * KIP_PARTITIONS / GIB, 1) == 3.4
    assert len(file_of(MINUTE_MAP, day)) // 12 == 1_440
    by_minute = len(file_of(MINUTE, day))
    assert by_minute // 12 == 1_440
    assert by_minute * KIP_PARTITIONS // MIB == 57


def test_a_segment_of_1_gb_has_a_time_index_of_3_mb() -> None:
    """With an entry every 4 KiB. An interval ends after more than 4096 bytes, so 4097 of each."""
    segment = batches_of(GIB // 4097, size_bytes=4097, span_ms=7 * DAY_MS)
    assert len(indexes(segment).time_index) == pytest.approx(3 * MIB, rel=0.001)


def test_an_inline_index_of_16_gb_becomes_32_gb() -> None:
    segment = batches_of(50_000, size_bytes=16_384, span_ms=DAY_MS)
    offset_index = indexes(segment).offset_index
    assert len(file_of(INLINE, segment)) == 2 * len(offset_index) > 0
    partitions = 16 * GIB / len(offset_index)
    assert len(file_of(INLINE, segment)) * partitions == 32 * GIB
