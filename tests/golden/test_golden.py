"""kip33 leaves what Kafka's `LogSegment.recover` left, on every recorded segment. Needs no Java."""

from pathlib import Path

import pytest

from kip33 import build_time_index
from kip33.formats.transaction_index import TransactionIndex
from kip33.indexing.segment import BuiltIndexes
from kip33.rules.transaction_index import complete_transactions
from tests.cases import each_case
from tests.golden.vectors import Vector, read_vectors

SMALLEST_INDEX_BYTES = 12
EVERY_VECTOR = read_vectors()
VECTORS = [v for v in EVERY_VECTOR if v.segment_index_bytes >= SMALLEST_INDEX_BYTES]
REFUSED_SETTINGS = [v for v in EVERY_VECTOR if v.segment_index_bytes < SMALLEST_INDEX_BYTES]
LISTING_ROWS = {55}


def rebuild(vector: Vector, log: Path):
    return build_time_index(
        str(log),
        index_interval_bytes=vector.index_interval_bytes,
        segment_index_bytes=vector.segment_index_bytes,
    )


def aborted_of(result: BuiltIndexes) -> bytes:
    """Return the bytes of the `.txnindex`; no transaction was open before the segment."""
    assert result.transactions is not None
    done = complete_transactions(result.transactions, {}, base_offset=0)
    assert done.aborted is not None, done.problem
    return TransactionIndex.from_entries(done.aborted, base_offset=0).to_bytes()


def expected_status(vector: Vector) -> str:
    if vector.outcome != "recovered":
        return "invalid"
    if vector.size_bytes == 0:
        return "empty"
    return "ok" if vector.valid_bytes == vector.size_bytes else "truncated"


@each_case("vector", VECTORS)
def test_rebuilt_as_kafka_recovers(vector: Vector, tmp_path: Path) -> None:
    result = rebuild(vector, vector.lay_out(tmp_path))

    assert result.status == expected_status(vector), result.error
    assert result.time_index_data == vector.time_index
    assert result.offset_index_data == vector.offset_index
    if vector.outcome == "recovered":
        assert result.valid_bytes == vector.valid_bytes
        assert aborted_of(result) == (vector.transaction_index or b"")
    else:
        assert result.error


@each_case("vector", REFUSED_SETTINGS)
def test_a_setting_that_kafka_cannot_open_a_segment_with_is_refused(
    vector: Vector, tmp_path: Path
) -> None:
    assert vector.outcome == "load_failure"
    with pytest.raises(ValueError, match="segment_index_bytes"):
        rebuild(vector, vector.lay_out(tmp_path))


def test_every_row_that_recovers_something_has_a_vector() -> None:
    assert {vector.row for vector in EVERY_VECTOR} == set(range(1, 56)) - LISTING_ROWS
