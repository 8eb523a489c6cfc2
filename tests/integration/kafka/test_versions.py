"""The golden vectors, replayed through `LogSegment.recover` of each version that kip33 speaks of.

The vectors were recorded from the newest one. `DIFFERENCES` says where an older one differs; older
ones are asked in the long form, because nothing of kip33 changes their answers.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.golden.vectors import Vector, read_vectors
from tests.integration.kafka.kafka_jars import GOLDEN_VERSIONS, NEWEST, version_of
from tests.integration.kafka.oracle import Oracle
from tests.integration.kafka.record_golden import recovered_by

pytestmark = pytest.mark.kafka


@dataclass(frozen=True)
class Outcome:
    """What a recovery leaves: the fields of a golden vector."""

    outcome: str
    exception: str | None = None
    valid_bytes: int | None = None
    time_index: str | None = None
    offset_index: str | None = None
    transaction_index: str | None = None  # None: there is no file


@dataclass(frozen=True)
class Difference:
    """Before version `until` the vector of this meaning has another outcome."""

    until: tuple[int, int]
    meaning: str
    outcome: Outcome


def _kept_up_to_the_marker(meaning: str, valid_bytes: int) -> Difference:
    """Kafka 3.x stops after a marker whose value is too short; 4.x does not load the log."""
    time_index = "00000000000003e90000000100000000000003ea00000002"
    offset_index = "000000010000006200000002000000c4"
    left = Outcome("recovered", None, valid_bytes, time_index, offset_index)
    return Difference((4, 0), meaning, left)


DIFFERENCES = (
    _kept_up_to_the_marker("a control batch with an empty value", 268),
    _kept_up_to_the_marker("a control batch with a value of 1 byte", 269),
    _kept_up_to_the_marker("a control batch with a value of 5 bytes", 273),
    _kept_up_to_the_marker("a gzip control batch with a value of 4 bytes", 285),
    _kept_up_to_the_marker("a snappy control batch with a value of 4 bytes", 294),
    _kept_up_to_the_marker("a lz4 control batch with a value of 4 bytes", 287),
    _kept_up_to_the_marker("a zstd control batch with a value of 4 bytes", 284),
    # The snappy library of that time asks for the memory that the junk claims.
    Difference(
        (3, 6),
        "a snappy control batch with 9 bytes after the body",
        Outcome("load_failure", "OutOfMemoryError"),
    ),
)


def recorded(vector: Vector) -> Outcome:
    """Return what the golden file says of a segment."""
    if vector.time_index is None or vector.offset_index is None:
        return Outcome(vector.outcome, vector.exception)
    return Outcome(
        vector.outcome,
        None,
        vector.valid_bytes,
        vector.time_index.hex(),
        vector.offset_index.hex(),
        _hex(vector.transaction_index),
    )


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def recovered(kafka: Oracle, vector: Vector, directory: Path) -> Outcome:
    """Return what this version leaves of a segment."""
    left = recovered_by(kafka, vector, directory)
    outcome = Outcome(left.outcome, left.exception)
    if left.time_index is None or left.offset_index is None:
        return outcome
    return replace(
        outcome,
        valid_bytes=left.valid_bytes,
        time_index=left.time_index.hex(),
        offset_index=left.offset_index.hex(),
        transaction_index=_hex(left.transaction_index),
    )


@pytest.mark.parametrize(
    "kafka_of",
    [
        NEWEST,
        *(
            pytest.param(version, marks=pytest.mark.long)
            for version in GOLDEN_VERSIONS
            if version != NEWEST
        ),
    ],
    indirect=True,
)
def test_each_version_recovers_what_the_golden_vectors_say(kafka_of: Oracle) -> None:
    version = version_of(kafka_of.version)
    other = {d.meaning: d.outcome for d in DIFFERENCES if version < d.until}
    assert len(other) == {(3, 1): 8, (3, 6): 7, (3, 9): 7}.get(version, 0)
    vectors = read_vectors()
    assert set(other) <= {vector.meaning for vector in vectors}
    assert sum(recorded(vector).transaction_index is not None for vector in vectors) >= 8
    with tempfile.TemporaryDirectory() as directory:
        for vector in vectors:
            expected = other.get(vector.meaning, recorded(vector))
            left = recovered(kafka_of, vector, Path(directory))
            assert left == expected, f"Kafka {kafka_of.version}, {vector}"
