"""Each server starts, answers a real client, and can be broken and healed as its module says."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hdfs_native import Client, WriteOptions
from pyarrow.fs import AwsDefaultS3RetryStrategy, FileSelector, FileType, S3FileSystem

from tests.integration.servers.faults import Request
from tests.integration.servers.fixtures import or_skip
from tests.integration.servers.hdfs import HdfsServer
from tests.integration.servers.libhdfs import libhdfs_environment
from tests.integration.servers.proxy import FaultProxy
from tests.integration.servers.s3 import S3Server
from tests.integration.servers.spark import SparkCluster
from tests.integration.servers.yarn import container_outputs, submit_to_yarn

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.integration


def put(files: S3FileSystem, key: str, content: bytes) -> None:
    with files.open_output_stream(key) as stream:
        stream.write(content)


def test_s3_puts_gets_lists_and_deletes(s3_server: S3Server):
    folder = s3_server.make_bucket("smoke")
    files = s3_server.filesystem()
    put(files, "smoke/t-0/00.log", b"0123456789")
    assert (folder / "t-0" / "00.log").read_bytes() == b"0123456789"
    assert files.open_input_file("smoke/t-0/00.log").read_at(3, 4) == b"456"
    (listed,) = files.get_file_info(FileSelector("smoke/t-0"))
    assert (listed.path, listed.size) == ("smoke/t-0/00.log", 10)
    files.delete_file("smoke/t-0/00.log")
    assert files.get_file_info("smoke/t-0/00.log").type is FileType.NotFound


def test_s3_goes_on_with_its_data_after_a_stop_and_a_crash(tmp_path: Path, s3_server: S3Server):
    with S3Server(tmp_path) as server:
        server.make_bucket("kept")
        files = server.filesystem()
        put(files, "kept/key", b"content")
        for end in (server.stop, server.kill):
            end()
            with pytest.raises(OSError, match="Could not connect"):
                files.open_input_file("kept/key")
            server.start()
            assert files.open_input_file("kept/key").read() == b"content"


def test_proxy_makes_requests_fail_and_sees_them_repeated(
    s3_server: S3Server, s3_proxy: FaultProxy
):
    s3_server.make_bucket("failing")
    files = s3_server.filesystem(endpoint_override=s3_proxy.endpoint)
    put(files, "failing/key", b"x" * 5000)
    stream = files.open_input_file("failing/key")
    s3_proxy.fail_next(method="GET", target="/key")
    s3_proxy.cut_next(after_bytes=100, target="/key")
    assert stream.read_at(5000, 0) == b"x" * 5000
    seen = [request for request in s3_proxy.requests if request.method == "GET"]
    assert [(one.status, one.sent_bytes) for one in seen] == [(503, 0), (206, 100), (206, 5000)]
    assert {one.range for one in seen} == {"bytes=0-4999"}


def test_proxy_refuses_connections_until_it_accepts_them(s3_server: S3Server, s3_proxy: FaultProxy):
    s3_server.make_bucket("refusing")
    waits = AwsDefaultS3RetryStrategy(max_attempts=10)  # 25 ms, 50 ms ...: beyond the 0.3 s below
    files = s3_server.filesystem(endpoint_override=s3_proxy.endpoint, retry_strategy=waits)
    put(files, "refusing/key", b"content")
    s3_proxy.refuse()
    healing = threading.Timer(0.3, s3_proxy.heal)
    healing.start()
    assert files.open_input_file("refusing/key").read() == b"content"
    healing.join()


def test_proxy_calls_a_test_before_the_server_sees_the_request(
    s3_server: S3Server, s3_proxy: FaultProxy
):
    folder = s3_server.make_bucket("changing")
    files = s3_server.filesystem(endpoint_override=s3_proxy.endpoint)
    put(files, "changing/key", b"before")
    stream = files.open_input_file("changing/key")

    def replace(_: Request) -> None:
        (folder / "other").write_bytes(b"after!")  # a new file: without the old one's checksum
        (folder / "other").replace(folder / "key")

    s3_proxy.before = replace
    assert stream.read() == b"after!"


OWNER = """
import os, pathlib, signal, sys
from tests.integration.servers.s3 import S3Server
print(S3Server(pathlib.Path(sys.argv[1])).start().port, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_server_dies_with_its_owner(tmp_path: Path, s3_server: S3Server):
    owner = subprocess.run(
        [sys.executable, "-c", OWNER, tmp_path], cwd=ROOT, capture_output=True, timeout=600
    )
    orphan = S3Server(tmp_path)
    orphan.port = int(owner.stdout)
    orphan.start()  # the port is free again
    orphan.stop()


def write(client: Client, path: str, content: bytes) -> None:
    with client.create(path, WriteOptions(overwrite=True)) as stream:
        stream.write(content)


def client_of(server: HdfsServer) -> Client:
    return Client(server.uri, server.client_options)


def test_hdfs_writes_reads_lists_and_renames(hdfs_server: HdfsServer):
    client = client_of(hdfs_server)
    write(client, "/smoke/new", b"0123456789")
    write(client, "/smoke/old", b"old")
    assert client.read("/smoke/new").read_range(4, 3) == b"456"
    with pytest.raises(FileExistsError):
        client.rename("/smoke/new", "/smoke/old")
    client.rename("/smoke/new", "/smoke/old", overwrite=True)
    (listed,) = client.list_status("/smoke")
    assert (listed.path, listed.length) == ("/smoke/old", 10)
    with pytest.raises(FileNotFoundError):
        client.get_file_info("/smoke/new")


def test_hdfs_reads_nothing_while_its_datanode_is_stopped(hdfs_server: HdfsServer):
    client = client_of(hdfs_server)
    write(client, "/stopped", b"content")
    hdfs_server.stop_datanode()
    with pytest.raises(RuntimeError, match="All DataNodes failed"):
        client.read("/stopped").read_range(0, 7)
    hdfs_server.start_datanode()
    assert client.read("/stopped").read_range(0, 7) == b"content"


def test_hdfs_client_follows_a_failover(ha_hdfs_server: HdfsServer):
    client = client_of(ha_hdfs_server)
    for number in range(3):
        write(client, f"/failover/{number}", b"content")
        ha_hdfs_server.failover()
    assert len(list(client.list_status("/failover"))) == 3


READER = """
from pyarrow.fs import HadoopFileSystem
files = HadoopFileSystem("default")  # a file does not keep its filesystem open
print(files.open_input_file("/native").read())
"""


def test_libhdfs_reads_what_hdfs_native_wrote(hdfs_server: HdfsServer):
    with or_skip("libhdfs"):
        environment = libhdfs_environment(hdfs_server.conf_dir)
    write(client_of(hdfs_server), "/native", b"content")
    reader = subprocess.run(
        [sys.executable, "-c", READER], env=environment, capture_output=True, text=True, timeout=600
    )
    assert "b'content'" in reader.stdout.splitlines(), reader.stderr  # Hadoop warns there, too


PROBE = """
import importlib.util
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
numbers = spark.sparkContext.parallelize(range(4), 2)
print(numbers.map(lambda n: (n * n, importlib.util.find_spec("kip33") is None)).collect())
"""


def test_spark_runs_a_job_on_workers_without_kip33(spark_cluster: SparkCluster, tmp_path: Path):
    script = tmp_path / "probe.py"
    script.write_text(PROBE)
    job = spark_cluster.submit(script)
    assert job.stdout.strip() == "[(0, True), (1, True), (4, True), (9, True)]", job.stderr[-2000:]


def test_yarn_runs_a_driver_and_executors_without_kip33(tmp_path: Path):
    script = tmp_path / "probe.py"
    script.write_text(PROBE)
    with or_skip("YARN"), HdfsServer(tmp_path / "yarn", yarn=True) as server:
        job = submit_to_yarn(server, script)
        printed = container_outputs(server)
    assert job.returncode == 0, job.stderr[-2000:]
    assert "[(0, True), (1, True), (4, True), (9, True)]" in printed.splitlines()
