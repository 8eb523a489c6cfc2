"""Stores that are there for a session of the tests, and places in them."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests.integration.servers.fixtures import (
    ha_hdfs_server,
    hdfs_server,
    moto_server,
    or_skip,
    s3_proxy,
    s3_server,
)
from tests.integration.servers.maven import resolved_jars
from tests.integration.servers.moto import MotoServer
from tests.integration.stores.accounts import Account, make_account
from tests.integration.stores.places import Place, in_bucket, in_hdfs, on_disk

__all__ = ["ha_hdfs_server", "hdfs_server", "moto_server", "s3_proxy", "s3_server"]
S3A = Path(__file__).parents[1] / "servers" / "s3a"
_names = count(1)


@pytest.fixture(scope="session")
def s3a_jars() -> Path:
    """Return the folder of Spark's own client of S3."""
    with or_skip("hadoop-aws"):
        return resolved_jars(S3A, "hadoop-aws-3.5.0")


@pytest.fixture(scope="session")
def new_place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Place]:
    """Return a function that makes an empty place in the store of a scheme."""

    def new(scheme: str) -> Place:
        name = f"place-{next(_names)}"
        folder = tmp_path_factory.mktemp(name)
        if scheme == "file":
            return on_disk(folder)
        if scheme == "hdfs":
            return in_hdfs(folder, request.getfixturevalue("hdfs_server"), name)
        jars = request.getfixturevalue("s3a_jars")
        return in_bucket(folder, request.getfixturevalue("s3_server"), name, jars)

    return new


@pytest.fixture(scope="session")
def account(moto_server: MotoServer, tmp_path_factory: pytest.TempPathFactory) -> Account:
    """Return the account of moto's whose bucket opens to a role's keys only."""
    return make_account(moto_server, tmp_path_factory.mktemp("account"))
