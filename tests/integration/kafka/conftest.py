"""Kafka as a session fixture: built by Maven once, skipped with a reason where it cannot be.

`KIP33_REQUIRE_KAFKA=1` turns the skip into a failure, for a machine that must have Kafka.
"""

from collections.abc import Iterator

import pytest

from tests.integration.kafka.kafka_jars import KAFKA_3_6, KAFKA_VERSION, kafka_or_skip
from tests.integration.kafka.oracle import Oracle


def start(version: str) -> Oracle:
    """Return Kafka of a version, or skip the test."""
    with kafka_or_skip(f"Kafka {version}"):
        return Oracle(version)


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    with start(KAFKA_VERSION) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def oracle_of_4(oracle: Oracle) -> Oracle:
    """The oracle, where its version has the verbs that only the modules of 4.x have."""
    if not oracle.is_at_least(4, 0):
        pytest.skip("the module of this version does not have this verb")
    return oracle


@pytest.fixture(scope="session")
def leader() -> Iterator[Oracle]:
    """A leader of 3.6, which indexes the offset of the record, not of the batch."""
    with start(KAFKA_3_6) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def kafka_of(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    """The version that a test asks for as its indirect parameter."""
    with start(request.param) as kafka:
        yield kafka
