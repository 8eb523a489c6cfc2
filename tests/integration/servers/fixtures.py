"""The servers as fixtures: `pytest_plugins` is not for subfolders, so import them by name.

    from tests.integration.servers.fixtures import s3_server  # noqa: F401

Where a server cannot be had the tests are skipped with the reason; `KIP33_REQUIRE_SERVERS=1` turns
the skip into a failure, for a machine that must have them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from tests.integration.servers.hdfs import HdfsServer
from tests.integration.servers.moto import MotoServer
from tests.integration.servers.processes import ServerMissingError
from tests.integration.servers.proxy import FaultProxy
from tests.integration.servers.s3 import S3Server
from tests.integration.servers.spark import SparkCluster

Server = TypeVar("Server", S3Server, MotoServer, HdfsServer, SparkCluster)


@contextmanager
def or_skip(what: str) -> Iterator[None]:
    """Skip the test where the server within is missing."""
    try:
        yield
    except ServerMissingError as missing:
        if os.environ.get("KIP33_REQUIRE_SERVERS"):
            raise
        pytest.skip(f"{what} cannot be had: {missing}")


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One versitygw for the session; each test makes buckets of its own."""
    yield from _running(S3Server(tmp_path_factory.mktemp("s3")), "versitygw")


@pytest.fixture
def s3_proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    """A proxy before the session's S3 server, without faults yet."""
    with FaultProxy(s3_server.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    """One account of moto's for the session; users, roles and buckets need names of their own."""
    yield from _running(MotoServer(tmp_path_factory.mktemp("moto")), "moto")


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """One HDFS of one NameNode and one DataNode for the session."""
    yield from _running(HdfsServer(tmp_path_factory.mktemp("hdfs")), "HDFS")


@pytest.fixture(scope="session")
def ha_hdfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """One HDFS of two NameNodes for the session; tests may call `failover`."""
    yield from _running(HdfsServer(tmp_path_factory.mktemp("ha"), ha=True), "HDFS")


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """One standalone cluster for the session: a worker of two cores that has no kip33."""
    yield from _running(SparkCluster(tmp_path_factory.mktemp("spark")), "Spark")


def _running(server: Server, what: str) -> Iterator[Server]:
    with or_skip(what):
        server.start()
    try:
        yield server
    finally:
        server.stop()
