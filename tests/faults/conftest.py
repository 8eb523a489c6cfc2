"""Processes that have loaded everything, whose children run the commands of all tests here."""

from collections.abc import Iterator

import pytest

from tests.faults.forks import Forks
from tests.faults.privileges import AS_ANY_OWNER, why_not


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with Forks() as started:
        yield started


@pytest.fixture(scope="session")
def forks_as_any_owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Permissions hold for these, also if root runs the tests."""
    problem = why_not(tmp_path_factory.mktemp("tried"))
    if problem:
        pytest.skip(f"nothing to be denied: {problem}")
    with Forks(*AS_ANY_OWNER) as started:
        yield started
