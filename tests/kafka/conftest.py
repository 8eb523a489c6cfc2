"""Kafka as a session fixture: built by Maven once, skipped with a reason where it cannot be.

`KIP33_REQUIRE_KAFKA=1` turns the skip into a failure, for a machine that must have Kafka.
"""

import os
from collections.abc import Iterator

import pytest

from tests.kafka.oracle import Oracle, OracleMissingError


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    try:
        kafka = Oracle()
    except OracleMissingError as missing:
        if os.environ.get("KIP33_REQUIRE_KAFKA"):
            raise
        pytest.skip(f"Kafka cannot be asked: {missing}")
    with kafka:
        yield kafka
