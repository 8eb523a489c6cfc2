"""An HDFS behind Kerberos: by a ticket, by a keytab, by a token file such as Spark gives executors.

The user is alice, to whom /alice belongs and nothing else.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hdfs_native import Client
from pyarrow import fs

from kip33 import build_time_index
from kip33.demo import START_MS, orders, write
from kip33.stores.hdfs import HdfsHandler, open_hdfs
from tests.cli.console import PROJECT
from tests.integration.servers.fixtures import or_skip
from tests.integration.servers.hdfs import HdfsServer
from tests.integration.servers.kerberos import REALM, SUPERUSER, Realm, fetchdt, secured
from tests.integration.servers.yarn import container_outputs, submit_to_yarn
from tests.integration.stores.places import Place, Ran

pytestmark = pytest.mark.integration
WAYS = ("ticket", "keytab", "token")
ATTEMPTS = "dfs.client.failover.max.attempts"
POLICY = '[defaults]\n"cleanup.policy" = "delete"\n"retention.ms" = "7d"\n'


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    started = Realm(tmp_path_factory.mktemp("realm"))
    with or_skip("Kerberos"):
        started.start()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KRB5_CONFIG", str(started.krb5_conf))  # for this process's own client
        yield started
    started.stop()


@pytest.fixture(scope="module")
def server(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """Return two name nodes, of which the first is the active one."""
    folder = tmp_path_factory.mktemp("secured")
    with or_skip("HDFS"), HdfsServer(folder, ha=True, **secured(realm)) as started:
        yield started


@pytest.fixture
def yarn(realm: Realm, tmp_path: Path) -> Iterator[HdfsServer]:
    with or_skip("YARN"), HdfsServer(tmp_path / "yarn", yarn=True, **secured(realm)) as started:
        yield started


def superuser_of(server: HdfsServer, realm: Realm, *, without: str = "") -> Client:
    """Return a client that may do all; `without` is a setting that it alone does not have."""
    settings = {key: value for key, value in server.client_options.items() if key != without}
    principal, keytab = f"{SUPERUSER}@{REALM}", str(realm.keytab(SUPERUSER))
    return Client(server.uri, settings, kerberos_principal=principal, kerberos_keytab=keytab)


@pytest.fixture(scope="module")
def token(realm: Realm, server: HdfsServer) -> Path:
    """Return a file with alice's delegation token."""
    file = realm.folder / "alice.token"
    fetchdt(server, realm, realm.ticket("alice"), "-fs", server.uri, file)
    return file


@pytest.fixture(scope="module")
def ways(realm: Realm, token: Path) -> dict[str, dict[str, str]]:
    """Return, by its name, what of the environment lets alice in."""
    return {
        "ticket": {"KRB5CCNAME": str(realm.ticket("alice"))},
        "keytab": {
            "KRB5_CLIENT_KTNAME": str(realm.keytab("alice")),
            "KRB5CCNAME": str(realm.folder / "by-keytab.ccache"),  # where the client puts a ticket
        },
        "token": {"HADOOP_TOKEN_FILE_LOCATION": str(token)},
    }


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("archive")
    for base_offset in (0, 4000):
        entries = orders(base_offset, START_MS + base_offset * 100, 400)
        write(root, "broker-1/orders-0", base_offset, entries)
    return root


def place_of_alice(server: HdfsServer, realm: Realm, archive: Path) -> Place:
    """Return alice's directory with the archive in it, for commands that have no way in."""
    superuser = superuser_of(server, realm)
    for directory in ("/alice", "/user/alice"):  # the latter is where Spark puts a job's files
        superuser.mkdirs(directory, 0o755, True)
        superuser.set_owner(directory, "alice", "alice")
    environment = realm.environment | {"HADOOP_CONF_DIR": str(server.conf_dir)}
    filesystem = fs.PyFileSystem(HdfsHandler(superuser))
    place = Place(
        "hdfs", f"{server.uri}/alice", filesystem, "/alice", realm.folder, {}, environment
    )
    place.put(archive, "logs")
    return place


@pytest.fixture(scope="module")
def nobody(realm: Realm, server: HdfsServer, archive: Path) -> Place:
    return place_of_alice(server, realm, archive)


def let_in(place: Place, way: dict[str, str]) -> Place:
    return replace(place, environment=place.environment | way)


def build(place: Place, name: str) -> Ran:
    """Build into a directory of this name, on one core."""
    indexes = f"{place.uri}/{name}"
    return place.run("build", f"{place.uri}/logs", "--index-dir", indexes, "--master", "local[1]")


@pytest.fixture(scope="module")
def built(nobody: Place, ways: dict[str, dict[str, str]]) -> Callable[[str], Ran]:
    """Return how a build ended that alice was let in for by one of the ways; each runs once."""
    return cache(lambda way: build(let_in(nobody, ways[way]), f"by-{way}"))


@pytest.fixture(scope="module")
def expected(archive: Path) -> dict[str, bytes]:
    """Return the index files of the archive on disk."""
    logs = {log.relative_to(archive): build_time_index(str(log)) for log in archive.rglob("*.log")}
    return {str(p.with_suffix(".timeindex")): log.time_index_data or b"" for p, log in logs.items()}


def require_published(place: Place, name: str, files: dict[str, bytes]) -> None:
    """Assert that a directory of alice's has just these index files."""
    found = place.files(name).items()
    assert {path: data for path, data in found if path.endswith("index")} == files
    assert sum(map(len, files.values())) > 100


@pytest.mark.parametrize("way", WAYS)
def test_a_build_publishes_the_same_bytes_as_on_disk(
    way: str,
    built: Callable[[str], Ran],
    realm: Realm,
    server: HdfsServer,
    nobody: Place,
    expected: dict[str, bytes],
) -> None:
    ran = built(way)
    assert ran.code == 0, ran.err
    require_published(nobody, f"by-{way}", expected)
    written = superuser_of(server, realm).list_status(f"/alice/by-{way}", recursive=True)
    assert {status.owner for status in written} == {"alice"}


def test_on_yarn_driver_and_executors_use_the_tokens_that_spark_got_by_a_ticket(
    realm: Realm,
    yarn: HdfsServer,
    archive: Path,
    expected: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ticket is spark-submit's alone. A host is written, and an IP in the token."""
    place = place_of_alice(yarn, realm, archive)
    for name, value in (realm.environment | {"KRB5CCNAME": str(realm.ticket("alice"))}).items():
        monkeypatch.setenv(name, value)
    root = place.uri.replace("127.0.0.1", "localhost")
    kip33 = shutil.make_archive(str(tmp_path / "kip33"), "zip", PROJECT, "kip33")
    [java_option] = realm.java_options
    settings = (
        f"spark.kerberos.access.hadoopFileSystems={root}",
        f"spark.driver.extraJavaOptions={java_option}",
        f"spark.executor.extraJavaOptions={java_option}",
    )
    done = submit_to_yarn(
        yarn,
        *(
            PROJECT / "jobs" / "run_kip33.py",
            "build",
            f"{root}/logs",
            "--index-dir",
            f"{root}/by-yarn",
        ),
        options=("--py-files", kip33, *(part for pair in settings for part in ("--conf", pair))),
    )
    assert done.returncode == 0, done.stderr[-2000:] + container_outputs(yarn, "stderr")[-2000:]
    require_published(place, "by-yarn", expected)


def test_spark_itself_reads_the_catalog_with_a_token(
    built: Callable[[str], Ran], nobody: Place, ways: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    assert built("token").code == 0
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    ran = let_in(nobody, ways["token"]).run(
        *("retention", f"{nobody.uri}/by-token/_catalog", "--policy", policy),
        *("--format", "jsonl", "--master", "local[1]"),
        conf={"spark.sql.shuffle.partitions": "1"},
    )
    assert ran.code == 0, ran.err
    assert [one["base_offset"] for one in ran.records if one["kind"] == "segment"] == [0, 4000]


def test_without_ticket_or_token_it_is_one_line(nobody: Place) -> None:
    ran = build(nobody, "by-nobody")
    assert (ran.code, ran.out) == (2, "")
    assert ran.line.startswith(
        f"Error: {nobody.uri}/logs: SOURCE cannot be read: GSSAPIError: No cred"
    )
    assert ran.line.endswith(
        "check the name node's address, HADOOP_CONF_DIR and your ticket or token"
    )


def test_who_may_not_write_there_is_told_so_without_a_trace(
    server: HdfsServer, ways: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", ways["ticket"]["KRB5CCNAME"])
    with pytest.raises(PermissionError) as told:
        open_hdfs(server.client_options, server.uri).create_dir("/elsewhere")
    assert re.search("Permission denied: user=alice, access=WRITE, .*-x$", str(told.value))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_name_nodes_token_is_found_however_its_host_is_written(
    host: str,
    realm: Realm,
    server: HdfsServer,
    nobody: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hadoop writes the IP into it, and hdfs-native compares it with the URL."""
    address, token = f"hdfs://{host}:{server.ports[0]}", tmp_path / "token"
    fetchdt(server, realm, realm.ticket("alice"), "-fs", address, token)
    monkeypatch.setenv("KRB5CCNAME", nobody.environment["KRB5CCNAME"])
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(token))
    for settings, uri in (
        (server.client_options, address),
        (server.client_options | {"fs.defaultFS": address}, "hdfs://"),
    ):
        [info] = open_hdfs(settings, uri).get_file_info(["/alice"])
        assert info.type == fs.FileType.Directory


def test_a_token_that_was_cancelled_is_one_line(
    realm: Realm, server: HdfsServer, nobody: Place, tmp_path: Path
) -> None:
    token, ticket = tmp_path / "token", realm.ticket("alice")
    fetchdt(server, realm, ticket, "-fs", server.uri, token)
    fetchdt(server, realm, ticket, "--cancel", token)
    alice = let_in(nobody, {"HADOOP_TOKEN_FILE_LOCATION": str(token)})
    assert "SOURCE cannot be read: SecretManager$InvalidToken: " in build(alice, "late").line


def test_a_token_file_that_was_cut_off_is_no_crash(
    nobody: Place, token: Path, tmp_path: Path
) -> None:
    torn = tmp_path / "token"
    torn.write_bytes(token.read_bytes()[:30])
    ran = build(let_in(nobody, {"HADOOP_TOKEN_FILE_LOCATION": str(torn)}), "torn")
    assert ran.code == 2
    assert "Traceback" not in ran.err
    assert ran.err.splitlines()[-1].endswith("your ticket or token")


def test_name_nodes_want_a_login(server: HdfsServer) -> None:
    settings = server.client_options | {"hadoop.security.authentication": "simple", ATTEMPTS: "1"}
    with pytest.raises(OSError):
        open_hdfs(settings, server.uri).get_file_info(["/"])


def test_data_nodes_want_a_login(realm: Realm, server: HdfsServer, nobody: Place) -> None:
    """A name node's word is not enough: who does not shake hands with a data node gets no byte."""
    client = superuser_of(server, realm, without="dfs.data.transfer.protection")
    listed = client.list_status("/alice/logs", recursive=True)
    [file, *_] = (status.path for status in listed if not status.isdir)
    with pytest.raises(RuntimeError, match="DataNode"):
        client.read(file).read_range(0, 10)
